#!/usr/bin/env node
/**
 * Builds and runs the unit tests of native/.
 *
 *   node scripts/native-tests.mjs [--sanitize address|thread] [--report FILE] [-- GTEST_OPTIONS]
 *   node scripts/native-tests.mjs --build-only TARGET
 *
 * Each sanitizer has its own build folder. --report writes GoogleTest's JSON.
 */
import { spawnSync } from 'node:child_process';
import { rmSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { parseArgs } from 'node:util';
import { cmakeBuild } from './setup/cmake.mjs';
import { root, succeeds } from './setup/common.mjs';

const buildFolders = { none: 'build-native', address: 'build-native-asan', thread: 'build-native-tsan' };
const testTimeoutMs = 600_000;

function runOrExit(command, args, options = {}) {
  const { error, signal, status } = spawnSync(command, args, { cwd: root, stdio: 'inherit', ...options });
  if (status === 0) return;
  if (error || signal) console.error(`${command}: ${error?.message ?? `ended by ${signal}`}`);
  process.exit(status || 1);
}

function build(sanitize, target = 'dualpath_native_tests') {
  const options = ['-DDUALPATH_NATIVE_TESTS=ON', `-DDUALPATH_SANITIZE=${sanitize}`];
  if (!cmakeBuild(root, buildFolders[sanitize], options, target)) process.exit(1);
  return join(root, buildFolders[sanitize], target);
}

function test(executable, { sanitize, report }, gtestOptions) {
  const command = [executable, '--gtest_brief=1', ...gtestOptions];
  if (report !== undefined) {
    // A test that crashes writes no report; an old one must not stand in for it.
    rmSync(report, { force: true });
    command.push(`--gtest_output=json:${resolve(report)}`);
  }
  // The TSan of older compilers fails on kernels that spread mappings over more bits than it knows.
  const fixedAddresses = ['setarch', '--addr-no-randomize'];
  if (sanitize === 'thread' && succeeds(fixedAddresses[0], [fixedAddresses[1], 'true'])) {
    command.unshift(...fixedAddresses);
  }
  const env = { TSAN_OPTIONS: 'halt_on_error=1', UBSAN_OPTIONS: 'print_stacktrace=1', ...process.env };
  runOrExit(command[0], command.slice(1), { timeout: testTimeoutMs, env });
}

const { values, positionals } = parseArgs({
  options: {
    sanitize: { type: 'string', default: 'none' },
    report: { type: 'string' },
    'build-only': { type: 'string' },
  },
  allowPositionals: true,
});
if (!Object.hasOwn(buildFolders, values.sanitize)) {
  console.error(`--sanitize ${values.sanitize}: it must be one of ${Object.keys(buildFolders).join(', ')}`);
  process.exit(2);
}
if (values['build-only'] !== undefined) build(values.sanitize, values['build-only']);
else test(build(values.sanitize), values, positionals);
