#!/usr/bin/env node
/**
 * Everything that runs under a sanitizer: native tests under ASan and UBSan and under TSan, the unit tests and the
 * terminations of workers with the add-on under ASan and UBSan. Ends at the first that fails.
 *
 *   node scripts/sanitize-tests.mjs [--rounds 1]
 *
 * --rounds: of 30 terminations each; 14 is the count that is called enough.
 */
import { spawnSync } from 'node:child_process';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { root } from './setup/common.mjs';

const { values } = parseArgs({ options: { rounds: { type: 'string', default: '1' } } });
const rounds = Number(values.rounds);
if (!Number.isSafeInteger(rounds) || rounds < 1) {
  console.error(`--rounds ${values.rounds}: a whole number of at least 1 is needed, as in --rounds 14`);
  process.exit(2);
}

const terminations = ['--script', 'test/transfer/terminations.mjs', '--rounds', values.rounds];
const steps = [
  ['native-tests.mjs', '--sanitize', 'address'],
  ['native-tests.mjs', '--sanitize', 'thread'],
  ['addon-asan-tests.mjs'],
  ['addon-asan-tests.mjs', ...terminations],
];
for (const [script, ...args] of steps) {
  console.error(`\n=== ${script} ${args.join(' ')}`);
  const { status, signal } = spawnSync(process.execPath, [join(root, 'scripts', script), ...args], {
    cwd: root,
    stdio: 'inherit',
  });
  if (status === 0) continue;
  console.error(
    `${script} ${args.join(' ')}: ${signal === null ? `status ${status}` : `ended by ${signal}`}`,
  );
  process.exit(status || 1);
}
