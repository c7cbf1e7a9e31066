import { defineConfig, globalIgnores } from 'eslint/config';
import prettier from 'eslint-config-prettier';
import tseslint from 'typescript-eslint';

/** What the type checker cannot see and a reader easily misses; prettier owns the layout. */
const typedRules = {
  '@typescript-eslint/consistent-type-imports': 'error',
  '@typescript-eslint/explicit-module-boundary-types': 'error',
  '@typescript-eslint/no-unused-vars': 'off', // the compiler's noUnusedLocals and noUnusedParameters say it
  '@typescript-eslint/require-await': 'off', // an async method may owe its type to an interface
  '@typescript-eslint/restrict-template-expressions': [
    'error',
    { allowNumber: true, allowBoolean: true, allowNullish: true },
  ],
  '@typescript-eslint/switch-exhaustiveness-check': [
    'error',
    { considerDefaultExhaustiveForUnions: true, requireDefaultForNonUnion: true },
  ],
  eqeqeq: 'error',
  'no-console': 'error',
};

export default defineConfig(
  globalIgnores(['build/', 'build-*/', 'coverage/', 'dist/', 'prebuilds/', 'vendor/']),
  { linterOptions: { reportUnusedDisableDirectives: 'error' } },
  {
    files: ['**/*.ts'],
    extends: [tseslint.configs.recommendedTypeChecked],
    languageOptions: { parserOptions: { projectService: true, tsconfigRootDir: import.meta.dirname } },
    rules: typedRules,
  },
  // Commands and benchmarks talk to the terminal; the library never does.
  { files: ['src/cli/**', 'bench/**', 'examples/**'], rules: { 'no-console': 'off' } },
  // expect.any() and its like are typed `any`.
  { files: ['test/**'], rules: { '@typescript-eslint/no-unsafe-assignment': 'off' } },
  {
    files: ['**/*.{js,mjs}'],
    extends: [tseslint.configs.recommended],
    rules: { eqeqeq: 'error' },
  },
  prettier,
);
