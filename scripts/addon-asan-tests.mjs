#!/usr/bin/env node
/**
 * Runs the vitest suite, or one script, against an add-on built with ASan and UBSan.
 *
 *   node scripts/addon-asan-tests.mjs [VITEST_ARGUMENTS]
 *   node scripts/addon-asan-tests.mjs --script test/transfer/terminations.mjs [ITS_ARGUMENTS]
 *
 * The add-on has one name and one place, so this works on a copy of the checkout, build-addon-asan/,
 * and leaves the add-on in use alone. Needs what `npm run setup -- --test` installs.
 */
import { spawnSync } from 'node:child_process';
import { cpSync, mkdirSync, readdirSync, rmSync, symlinkSync } from 'node:fs';
import { join } from 'node:path';
import { addonOptions } from './setup/build.mjs';
import { cmakeBuild } from './setup/cmake.mjs';
import { root } from './setup/common.mjs';

const copyName = 'build-addon-asan';
const copy = join(root, copyName);
const notCopied = /^(build|build-.*|dist|prebuilds|coverage|node_modules|\.git)$/;

function runOrExit(command, args, env = {}) {
  const { error, signal, status } = spawnSync(command, args, {
    cwd: copy,
    stdio: 'inherit',
    env: { ...process.env, ...env },
  });
  if (error || signal) console.error(`${command}: ${error?.message ?? `ended by ${signal}`}`);
  if (status !== 0) process.exit(status || 1);
}

/** Everything but the add-on's build folder is made anew, with its times, so that only changes are rebuilt. */
function copyCheckout() {
  mkdirSync(copy, { recursive: true });
  for (const name of readdirSync(copy)) {
    if (name !== 'build') rmSync(join(copy, name), { recursive: true });
  }
  for (const name of readdirSync(root)) {
    if (!notCopied.test(name)) {
      cpSync(join(root, name), join(copy, name), { recursive: true, preserveTimestamps: true });
    }
  }
  symlinkSync(join(root, 'node_modules'), join(copy, 'node_modules'));
}

function runtimeOf(sanitizer) {
  const { stdout } = spawnSync('g++', [`-print-file-name=lib${sanitizer}.so`], { encoding: 'utf8' });
  return stdout.trim();
}

copyCheckout();
if (!cmakeBuild(copy, 'build', [...addonOptions, '-DDUALPATH_SANITIZE=address'])) process.exit(1);
// Tests of workers, processes and examples run what is built.
runOrExit(process.execPath, [join(root, 'node_modules/typescript/bin/tsc'), '-p', 'tsconfig.build.json']);
const given = process.argv.slice(2);
runOrExit(
  process.execPath,
  given[0] === '--script'
    ? given.slice(1)
    : [join(root, 'node_modules/vitest/vitest.mjs'), 'run', '--exclude', 'test/style/**', ...given],
  // Node itself does not free everything at exit.
  { LD_PRELOAD: runtimeOf('asan'), ASAN_OPTIONS: 'detect_leaks=0', UBSAN_OPTIONS: 'print_stacktrace=1' },
);
