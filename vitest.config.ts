import { defineConfig } from 'vitest/config';

export default defineConfig({
  test: {
    include: ['test/**/*.test.ts'],
    globalSetup: ['test/global-setup.ts'],
    // In guests: npm run test:rxe. With packages of its own: npm run test:example.
    exclude: ['test/rxe/**', 'test/example/**'],
    // A process for each file: the add-on's threads and locked memory end with the file that used them.
    pool: 'forks',
    isolate: true,
    // They end what hangs, and say nothing of speed: a busy machine takes several times as long as an idle one.
    testTimeout: 60_000,
    hookTimeout: 60_000,
    teardownTimeout: 10_000,
  },
});
