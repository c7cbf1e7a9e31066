/** Engine processes of this host, started for a replay and ended with it. */
import { spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import { parseAddress, type Address } from '../control/index.js';
import { DualPathError } from '../errors/index.js';

export interface EngineProcessOptions {
  readonly prefill: number;
  readonly decode: number;
  /** Names, from `prefill-0` on, are set apart by this. */
  readonly prefix?: string;
  /** More of the command line of `dualpath engine`: model, block size, store, transport. */
  readonly args: readonly string[];
  /** What they say, a line at a time. */
  readonly note?: (line: string) => void;
}

interface Started {
  readonly name: string;
  readonly child: ChildProcess;
  readonly address: Address;
}

const startMs = 30_000;
const endMs = 10_000;

/** The built command, also for sources that are run as they are. */
const command = fileURLToPath(
  new URL(import.meta.url.endsWith('.ts') ? '../../dist/cli/main.js' : '../cli/main.js', import.meta.url),
);

export class EngineProcesses {
  readonly #engines = new Map<string, Started>();

  private constructor(engines: readonly Started[]) {
    for (const engine of engines) this.#engines.set(engine.name, engine);
  }

  /** @throws PEER_LOST with what it said when one does not come up */
  static async start(options: EngineProcessOptions): Promise<EngineProcesses> {
    const { prefill, decode, prefix = '' } = options;
    const names = (role: 'prefill' | 'decode', count: number): { role: string; name: string }[] =>
      Array.from({ length: count }, (_, index) => ({ role, name: `${prefix}${role}-${index}` }));
    const starting = [...names('prefill', prefill), ...names('decode', decode)].map(({ role, name }) =>
      startOne(name, ['--role', role, '--name', name, ...options.args], options.note),
    );
    const settled = await Promise.allSettled(starting);
    const engines = settled.flatMap((one) => (one.status === 'fulfilled' ? [one.value] : []));
    const processes = new EngineProcesses(engines);
    const failed = settled.find((one) => one.status === 'rejected');
    if (failed === undefined) return processes;
    await processes.close();
    throw failed.reason;
  }

  get names(): readonly string[] {
    return [...this.#engines.keys()];
  }

  get addresses(): readonly Address[] {
    return [...this.#engines.values()].map(({ address }) => address);
  }

  /** Kills one as a crash would. @throws INVALID_ARGUMENT if there is none of that name */
  async kill(name: string): Promise<void> {
    const engine = this.#engines.get(name);
    if (engine === undefined) {
      const known = this.names.join(', ');
      throw new DualPathError('INVALID_ARGUMENT', `there is no engine process ${name}: name one of ${known}`);
    }
    this.#engines.delete(name);
    await end(engine.child, 'SIGKILL');
  }

  /** They end as when asked to, and are killed when they do not. */
  async close(): Promise<void> {
    const engines = [...this.#engines.values()];
    this.#engines.clear();
    await Promise.all(engines.map(({ child }) => end(child, 'SIGTERM')));
  }
}

async function startOne(
  name: string,
  args: readonly string[],
  note: ((line: string) => void) | undefined,
): Promise<Started> {
  const child = spawn(
    process.execPath,
    [command, 'engine', ...args, '--listen', '127.0.0.1:0', '--until-input-ends', '--json'],
    { stdio: ['pipe', 'ignore', 'pipe'] },
  );
  child.stdin.on('error', () => undefined); // it has ended, which is seen otherwise
  const said: string[] = [];
  const lines = createInterface({ input: child.stderr });
  try {
    const address = await new Promise<Address>((resolve, reject) => {
      const failed = (why: string): void => {
        const words = said.length === 0 ? 'it said nothing' : said.join('\n');
        reject(new DualPathError('PEER_LOST', `engine process ${name} ${why}: ${words}`, { engine: name }));
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
        const listens = / engine on (\S+),/.exec(line)?.[1];
        if (listens === undefined) return;
        clearTimeout(late);
        resolve(parseAddress(listens));
      });
    });
    return { name, child, address };
  } catch (error) {
    await end(child, 'SIGKILL');
    throw error;
  }
}

async function end(child: ChildProcess, signal: 'SIGTERM' | 'SIGKILL'): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null || child.pid === undefined) return;
  const ended = once(child, 'exit');
  child.kill(signal);
  const late = setTimeout(() => child.kill('SIGKILL'), endMs);
  await ended;
  clearTimeout(late);
}
