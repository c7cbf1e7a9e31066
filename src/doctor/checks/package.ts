/** This package itself. */
import type { Check } from '../check.js';

export const addon: Check = {
  id: 'addon',
  looksAt: 'the native add-on, carried in the package or built',
  why: 'It moves every byte; without it only planning, routing and simulation work.',
  remedy: '`npm rebuild dualpath`, in a checkout `npm run setup` (docs/install.md)',
  run: ({ view }) => {
    const problem = view.probes.addonProblem();
    if (problem === null) return [];
    return [
      {
        severity: 'error',
        found: `the add-on cannot be used: ${problem}`,
        remedy: 'npm rebuild dualpath; in a checkout npm run setup (docs/install.md says what it needs)',
      },
    ];
  },
};
