import { defineConfig } from 'vitest/config';

/** examples/engine in its small form: npm run test:example. It has packages of its own, which the unit tests do without. */
export default defineConfig({
  test: { include: ['test/example/**/*.test.ts'], testTimeout: 240_000 },
});
