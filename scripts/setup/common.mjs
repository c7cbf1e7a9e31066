import { spawnSync } from 'node:child_process';
import { existsSync, readFileSync, rmSync } from 'node:fs';
import { dirname, join, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';

/** The checkout's folder. */
export const root = resolve(dirname(fileURLToPath(import.meta.url)), '../..');

/** A failure the user can act on: shown without a stack. */
export class SetupError extends Error {}

/** One plain line of progress. */
export function say(line) {
  process.stderr.write(`setup: ${line}\n`);
}

/** True when the command starts and exits with 0; its output is dropped. */
export function succeeds(command, args) {
  return spawnSync(command, args, { stdio: 'ignore' }).status === 0;
}

/**
 * Runs a command in the checkout with its output on stderr.
 * @returns true when it exits with 0
 */
export function run(command, args, env = {}) {
  const { error, status } = spawnSync(command, args, {
    cwd: root,
    stdio: ['ignore', 2, 2],
    env: { ...process.env, ...env },
  });
  if (error) throw new SetupError(`${command} did not start: ${error.message}`);
  return status === 0;
}

/**
 * Removes a CMake build folder that cannot be built: configured for another source folder, as a copied
 * checkout has it, or left without build files by a failed configuration.
 * @returns true when the folder is configured
 */
export function dropUnusableBuildFolder(buildFolder, sourceFolder) {
  const cache = join(buildFolder, 'CMakeCache.txt');
  if (!existsSync(cache)) return false;
  const ours = readFileSync(cache, 'utf8').includes(`CMAKE_HOME_DIRECTORY:INTERNAL=${sourceFolder}\n`);
  const complete = ['build.ninja', 'Makefile'].some((name) => existsSync(join(buildFolder, name)));
  if (ours && complete) return true;
  rmSync(buildFolder, { recursive: true });
  return false;
}
