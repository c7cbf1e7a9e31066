/**
 * One side of an RDMA benchmark: ends of load, perftest's tools, queueing of its network device. The side that measures
 * has one of its own and one of the peer's: in this process, or across TCP (remote.ts). Arguments and results are JSON.
 */
import { callNative, fromNative, native, type NativeRdmaLoad } from '../../binding/index.js';
import type {
  RdmaLoadAddress,
  RdmaLoadOptions,
  RdmaLoadPath,
  RdmaLoadResult,
  RdmaLoadRun,
} from '../../binding/index.js';
import { DualPathError } from '../../errors/index.js';
import { Tools } from './perftest.js';
import { Queueing, type QosDescription, type QueueingKind } from '../../qos/index.js';

export type RunResult = Omit<RdmaLoadResult, 'latencyNs'> & { readonly latencyNs: readonly number[] };

export interface BenchNode {
  open(options: RdmaLoadOptions): Promise<number>;
  address(end: number): Promise<RdmaLoadAddress>;
  connect(end: number, peer: RdmaLoadAddress & RdmaLoadPath): Promise<void>;
  run(end: number, run: RdmaLoadRun): Promise<RunResult>;
  stop(end: number): Promise<void>;
  close(end: number): Promise<void>;
  /** Starts a tool; a server has said that it waits when this resolves. */
  startTool(tool: string, args: readonly string[]): Promise<number>;
  /** Its standard output, when it has ended. */
  toolOutput(id: number): Promise<string>;
  /** Ends it; its output is of no interest. */
  stopTool(id: number): Promise<void>;
  setQueueing(kind: QueueingKind, device: string, options: QueueingOptions): Promise<void>;
  /** Ends whatever is under way and takes back what was set. */
  reset(): Promise<void>;
}

export interface QueueingOptions {
  readonly rateMbit: number;
  readonly description: QosDescription;
}

/** Methods that the other side may call. */
export const nodeMethods = [
  'open',
  'address',
  'connect',
  'run',
  'stop',
  'close',
  'startTool',
  'toolOutput',
  'stopTool',
  'setQueueing',
  'reset',
] as const satisfies readonly (keyof BenchNode)[];

export class LocalNode implements BenchNode {
  readonly #ends = new Map<number, NativeRdmaLoad>();
  readonly #tools = new Tools();
  readonly #queueing = new Queueing();
  #next = 1;

  async open(options: RdmaLoadOptions): Promise<number> {
    this.#ends.set(
      this.#next,
      callNative(() => new (native().RdmaLoad)(options)),
    );
    return this.#next++;
  }

  async address(end: number): Promise<RdmaLoadAddress> {
    return callNative(() => this.#end(end).address());
  }

  async connect(end: number, peer: RdmaLoadAddress & RdmaLoadPath): Promise<void> {
    callNative(() => this.#end(end).connect(peer));
  }

  async run(end: number, run: RdmaLoadRun): Promise<RunResult> {
    try {
      const result = await callNative(() => this.#end(end).run(run));
      return { ...result, latencyNs: Array.from(result.latencyNs) };
    } catch (error) {
      throw fromNative(error);
    }
  }

  async stop(end: number): Promise<void> {
    this.#end(end).stop();
  }

  async close(end: number): Promise<void> {
    this.#ends.get(end)?.close();
    this.#ends.delete(end);
  }

  startTool(tool: string, args: readonly string[]): Promise<number> {
    return this.#tools.start(tool, args);
  }

  toolOutput(id: number): Promise<string> {
    return this.#tools.output(id);
  }

  stopTool(id: number): Promise<void> {
    return this.#tools.stop(id);
  }

  setQueueing(kind: QueueingKind, device: string, options: QueueingOptions): Promise<void> {
    return this.#queueing.set(kind, device, options);
  }

  async reset(): Promise<void> {
    for (const end of [...this.#ends.keys()]) await this.close(end);
    await this.#tools.stopAll();
    await this.#queueing.remove();
  }

  #end(end: number): NativeRdmaLoad {
    const found = this.#ends.get(end);
    if (found === undefined) throw new DualPathError('CLOSED', `there is no end ${end}`);
    return found;
  }
}
