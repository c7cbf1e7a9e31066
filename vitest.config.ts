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
    testTimeout: 20_000,
    hookTimeout: 20_000,
    teardownTimeout: 10_000,
  },
});
