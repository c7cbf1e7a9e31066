import { spawnSync } from 'node:child_process';
import { dirname, resolve } from 'node:path';
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
