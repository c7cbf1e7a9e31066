/** Engine processes of this host, started for a replay and ended with it. */
import type { Address } from '../control/index.js';
import { DualPathError } from '../errors/index.js';
import { endChild, startChild, type Child } from './child.js';

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

const anyPort = ['--listen', '127.0.0.1:0'];
const listens = / engine on (\S+),/;

export class EngineProcesses {
  readonly #engines = new Map<string, Child>();
  readonly #argvOf: ReadonlyMap<string, readonly string[]>;
  readonly #note: ((line: string) => void) | undefined;

  private constructor(
    argvOf: ReadonlyMap<string, readonly string[]>,
    note: ((line: string) => void) | undefined,
  ) {
    this.#argvOf = argvOf;
    this.#note = note;
  }

  /** @throws PEER_LOST with what it said when one does not come up */
  static async start(options: EngineProcessOptions): Promise<EngineProcesses> {
    const { prefill, decode, prefix = '', args, note } = options;
    const argvOf = new Map<string, string[]>();
    for (const [role, count] of [
      ['prefill', prefill],
      ['decode', decode],
    ] as const) {
      for (let index = 0; index < count; index++) {
        const name = `${prefix}${role}-${index}`;
        argvOf.set(name, ['engine', '--role', role, '--name', name, ...args, ...anyPort]);
      }
    }
    const processes = new EngineProcesses(argvOf, note);
    const settled = await Promise.allSettled(
      [...argvOf].map(async ([name, argv]) => {
        processes.#engines.set(name, await startChild(name, argv, listens, note));
      }),
    );
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

  /** Kills one as a crash would, and starts another one under its name. @throws as kill() and start() */
  async killAndRestart(name: string): Promise<Address> {
    const argv = this.#argvOf.get(name);
    await this.kill(name);
    const engine = await startChild(name, argv!, listens, this.#note);
    this.#engines.set(name, engine);
    return engine.address;
  }

  /** Kills one as a crash would. @throws INVALID_ARGUMENT if there is none of that name */
  async kill(name: string): Promise<void> {
    const engine = this.#engines.get(name);
    if (engine === undefined) {
      const known = this.names.join(', ');
      throw new DualPathError('INVALID_ARGUMENT', `there is no engine process ${name}: name one of ${known}`);
    }
    this.#engines.delete(name);
    await endChild(engine.process, 'SIGKILL');
  }

  /** They end as when asked to, and are killed when they do not. */
  async close(): Promise<void> {
    const engines = [...this.#engines.values()];
    this.#engines.clear();
    await Promise.all(engines.map(({ process }) => endChild(process, 'SIGTERM')));
  }
}
