/** `dualpath serve` as a process of this host, started for a replay and ended with it. */
import { addressText } from '../control/index.js';
import { endChild, startChild, type Child } from './child.js';

export class SchedulerProcess {
  readonly #args: readonly string[];
  readonly #note: ((line: string) => void) | undefined;
  #child: Child;

  private constructor(child: Child, args: readonly string[], note: ((line: string) => void) | undefined) {
    this.#child = child;
    this.#args = args;
    this.#note = note;
  }

  /** @param args more of its command line @throws PEER_LOST with what it said when it does not come up */
  static async start(args: readonly string[], note?: (line: string) => void): Promise<SchedulerProcess> {
    return new SchedulerProcess(await startServe('127.0.0.1:0', args, note), args, note);
  }

  /** host:port, the same after a restart. */
  get endpoint(): string {
    return addressText(this.#child.address);
  }

  /** Kills it as a crash would, and starts another one in its place. */
  async killAndRestart(): Promise<void> {
    await endChild(this.#child.process, 'SIGKILL');
    this.#child = await startServe(this.endpoint, this.#args, this.#note);
  }

  async close(): Promise<void> {
    await endChild(this.#child.process, 'SIGTERM');
  }
}

function startServe(listen: string, args: readonly string[], note?: (line: string) => void): Promise<Child> {
  return startChild('serve', ['serve', '--listen', listen, ...args], /\bscheduler on (\S+),/, note);
}
