#!/usr/bin/env node
/**
 * Tests over real soft-RoCE, in guests (npm run test:rxe): builds what they need, then runs vitest on this machine, which starts
 * the guests.
 *
 *   npm run test:rxe -- [VITEST_OPTIONS]
 *
 * With DUALPATH_TEST_REPORT vitest's JSON report is written there.
 */
import { spawnSync } from 'node:child_process';
import { root } from './setup/common.mjs';

function runOrExit(command, args) {
  const { error, status } = spawnSync(command, args, { cwd: root, stdio: 'inherit' });
  if (error) console.error(`${command}: ${error.message}`);
  if (status !== 0) process.exit(status ?? 1);
}

const report = process.env.DUALPATH_TEST_REPORT;
runOrExit('npm', ['run', '--silent', 'setup', '--', '--test']);
runOrExit(process.execPath, ['scripts/native-tests.mjs', '--build-only', 'dualpath_rxe_tests']);
runOrExit('npx', [
  ...['vitest', 'run', '--config', 'vitest.rxe.config.ts'],
  ...(report === undefined ? [] : ['--reporter=default', '--reporter=json', `--outputFile.json=${report}`]),
  ...process.argv.slice(2),
]);
