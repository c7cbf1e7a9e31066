/** This package itself. */
import type { Check } from '../check.js';

export const addon: Check = {
  id: 'addon',
  looksAt: 'the native add-on',
  why: 'It moves every byte; without it only planning, routing and simulation work.',
  remedy: '`npm run setup` in the package’s folder builds it',
  run: ({ view }) => {
    const problem = view.probes.addonProblem();
    if (problem === null) return [];
    return [
      {
        severity: 'error',
        found: `the add-on cannot be used: ${problem}`,
        remedy: "npm run setup, in the package's folder",
      },
    ];
  },
};
