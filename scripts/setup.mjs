#!/usr/bin/env node
/**
 * Brings a checkout to the point where it runs: system packages, npm packages, add-on, TypeScript.
 * Does only what is missing or out of date. Needs Node and nothing else; says what it does on stderr.
 *
 *   node scripts/setup.mjs [--test]
 *
 * --test also sees to what the native unit tests and the format check need.
 */
import { spawnSync } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { buildAddon, buildTypeScript, copyPlotLibrary } from './setup/build.mjs';
import { SetupError, root, say } from './setup/common.mjs';
import { checkNode, installNpmPackages } from './setup/npm-packages.mjs';
import { installSystemPackages } from './setup/system-packages.mjs';

const lockedExitCode = 75;
const lockWaitSeconds = 1800;

function readOptions() {
  try {
    const { values } = parseArgs({
      options: { test: { type: 'boolean', default: false }, locked: { type: 'boolean', default: false } },
    });
    return values;
  } catch (error) {
    throw new SetupError(`${error.message}\nusage: node scripts/setup.mjs [--test]`);
  }
}

/**
 * Runs this script again while holding a kernel lock (flock(1)) on the checkout's folder. The kernel
 * drops it with the process that holds it, so no lock outlives a crash.
 * @returns the exit status of that run
 */
function runLocked() {
  const again = [
    root,
    process.execPath,
    fileURLToPath(import.meta.url),
    '--locked',
    ...process.argv.slice(2),
  ];
  const flock = (...options) => {
    const { error, status } = spawnSync('flock', ['--close', ...options, ...again], { stdio: 'inherit' });
    if (error) throw new SetupError(`flock(1) did not start (${error.message}); install util-linux`);
    return status ?? 1;
  };
  const status = flock('--nonblock', '--conflict-exit-code', String(lockedExitCode));
  if (status !== lockedExitCode) return status;
  say('another setup of this checkout is running, waiting for it');
  return flock('--timeout', String(lockWaitSeconds));
}

try {
  const options = readOptions();
  checkNode();
  if (!options.locked) {
    process.exitCode = runLocked();
  } else {
    await installSystemPackages({ forTests: options.test });
    installNpmPackages();
    copyPlotLibrary();
    buildAddon();
    buildTypeScript();
  }
} catch (error) {
  if (!(error instanceof SetupError)) throw error;
  say(`error: ${error.message}`);
  process.exitCode = 1;
}
