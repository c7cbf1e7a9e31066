/** A `dualpath` command as a child of this process, which ends when this one does. */
import { spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import { parseAddress, type Address } from '../control/index.js';
import { DualPathError } from '../errors/index.js';

export interface Child {
  readonly name: string;
  readonly process: ChildProcess;
  /** Where it listens. */
  readonly address: Address;
}

const startMs = 30_000;
const endMs = 10_000;

/** The built command, also for sources that are run as they are. */
const command = fileURLToPath(
  new URL(import.meta.url.endsWith('.ts') ? '../../dist/cli/main.js' : '../cli/main.js', import.meta.url),
);

/**
 * Resolves when it has said where it listens.
 * @param listens finds that in a line of what it says
 * @throws PEER_LOST with what it said when it does not come up
 */
export async function startChild(
  name: string,
  args: readonly string[],
  listens: RegExp,
  note?: (line: string) => void,
): Promise<Child> {
  const child = spawn(process.execPath, [command, ...args, '--until-input-ends', '--json'], {
    stdio: ['pipe', 'ignore', 'pipe'],
  });
  child.stdin.on('error', () => undefined); // it has ended, which is seen otherwise
  const said: string[] = [];
  const lines = createInterface({ input: child.stderr });
  try {
    const address = await new Promise<Address>((resolve, reject) => {
      const failed = (why: string): void => {
        const words = said.length === 0 ? 'it said nothing' : said.join('\n');
        reject(new DualPathError('PEER_LOST', `process ${name} ${why}: ${words}`, { process: name }));
      };
      const late = setTimeout(() => failed(`did not come up within ${startMs / 1000} s`), startMs);
      child.once('error', (error) => failed(`could not be started (${error.message})`));
      child.once('exit', (code, signal) => {
        clearTimeout(late);
        failed(`ended (${signal ?? code}) before it came up`);
      });
      lines.on('line', (line) => {
        note?.(line);
        if (said.length < 20) said.push(line);
        const found = listens.exec(line)?.[1];
        if (found === undefined) return;
        clearTimeout(late);
        resolve(parseAddress(found));
      });
    });
    return { name, process: child, address };
  } catch (error) {
    await endChild(child, 'SIGKILL');
    throw error;
  }
}

export async function endChild(child: ChildProcess, signal: 'SIGTERM' | 'SIGKILL'): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null || child.pid === undefined) return;
  const ended = once(child, 'exit');
  child.kill(signal);
  const late = setTimeout(() => child.kill('SIGKILL'), endMs);
  await ended;
  clearTimeout(late);
}
