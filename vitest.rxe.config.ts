import { defineConfig } from 'vitest/config';

/** Tests in guests: npm run test:rxe. One file after the other, each with guests of its own. */
export default defineConfig({
  test: {
    include: ['test/rxe/**/*.test.ts'],
    fileParallelism: false,
    testTimeout: 120_000,
    hookTimeout: 480_000,
  },
});
