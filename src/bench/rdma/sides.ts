/** The two sides of an RDMA benchmark, and what is measured between them. */
import { availableParallelism } from 'node:os';
import type { RdmaLoadAddress, RdmaLoadRun } from '../../binding/index.js';
import {
  addressFields,
  findRdmaDevices,
  gidAt,
  selectDevice,
  trafficClasses,
  type LinkLayer,
  type TrafficClassName,
} from '../../rdma/index.js';
import { DualPathError } from '../../errors/index.js';
import { LocalNode, type BenchNode, type RunResult } from './node.js';
import { parseBandwidth, parseLatencies, perftestArguments, type PerftestRun } from './perftest.js';
import { connectNode, defaultControlPort, type RemoteNode } from './remote.js';

export interface SidesOptions {
  /** Default: the first that can be used. */
  readonly device?: string;
  /** Default: the best of the port. */
  readonly gidIndex?: number;
  /** Where the other side serves; left out: both are in this process. */
  readonly peer?: string;
  readonly controlPort?: number;
  readonly signal?: AbortSignal;
}

export interface LoadSetting {
  readonly bytes: number;
  readonly queuePairs: number;
  readonly depth: number;
  readonly trafficClass: TrafficClassName;
}

const runLimitMs = 120_000;
const firstPerftestPort = 18700;
const perftestPorts = 200;

/** Polling for ever starves the kernel's part of soft-RoCE, and the peer, where there is one core. */
const spinNs = availableParallelism() > 1 ? 1e12 : 0;

export class Sides {
  readonly device: string;
  readonly port: number;
  readonly gidIndex: number;
  readonly linkLayer: LinkLayer;
  readonly here: BenchNode;
  readonly there: BenchNode;
  readonly hosts: number;
  readonly #addressThere: string;
  readonly #addressHere: string;
  readonly #end: () => Promise<void>;
  #perftests = 0;

  private constructor(options: SidesOptions, there: RemoteNode | undefined) {
    const device = selectDevice(findRdmaDevices(), options.device);
    const port = device.ports.find(({ state }) => state === 'active') ?? device.ports[0]!;
    const best = port.gids.find(({ rank }) => rank === 1)?.index;
    const gidIndex = options.gidIndex ?? best ?? -1;
    if (port.linkLayer !== 'infiniband' || options.gidIndex !== undefined) gidAt(port.gids, gidIndex);
    this.device = device.name;
    this.port = port.port;
    this.gidIndex = gidIndex;
    this.linkLayer = port.linkLayer;
    this.here = new LocalNode();
    this.there = there ?? this.here;
    this.hosts = there === undefined ? 1 : 2;
    this.#addressThere = options.peer ?? '127.0.0.1';
    this.#addressHere = there?.localAddress ?? '127.0.0.1';
    this.#end = async () => {
      await this.here.reset();
      await there?.reset().catch(() => undefined);
      there?.disconnect();
    };
  }

  /** @throws RDMA_UNAVAILABLE, PEER_LOST, INVALID_ARGUMENT */
  static async open(options: SidesOptions): Promise<Sides> {
    const { peer, controlPort = defaultControlPort, signal } = options;
    const there = peer === undefined ? undefined : await connectNode(peer, controlPort, signal);
    try {
      return new Sides(options, there);
    } catch (error) {
      there?.disconnect();
      throw error;
    }
  }

  /** Over a connection that there is already; it ends with them. */
  static over(options: SidesOptions, there: RemoteNode): Sides {
    return new Sides(options, there);
  }

  async close(): Promise<void> {
    await this.#end();
  }

  /** Two connected ends of load. */
  async connect(setting: LoadSetting): Promise<LoadPair> {
    const { bytes, queuePairs, depth, trafficClass } = setting;
    const options = {
      device: this.device,
      port: this.port,
      gidIndex: this.gidIndex,
      bytes,
      queuePairs,
      depth,
    };
    const [a, b] = [await this.here.open(options), await this.there.open(options)];
    const [atA, atB] = [await this.here.address(a), await this.there.address(b)];
    const mtuBytes = Math.min(atA.mtuBytes, atB.mtuBytes);
    const path = { ...addressFields(trafficClasses()[trafficClass], this.linkLayer), mtuBytes };
    await this.there.connect(b, { ...atA, ...path });
    await this.here.connect(a, { ...atB, ...path });
    const numbers = ({ queuePairs: made }: RdmaLoadAddress): number[] => made.map(({ qpNum }) => qpNum);
    return new LoadPair(
      { node: this.here, end: a, qpNums: numbers(atA) },
      { node: this.there, end: b, qpNums: numbers(atB) },
    );
  }

  /** Bytes per second of perftest's bandwidth test from `from` to the other side. */
  async perftestBandwidth(run: PerftestSetting): Promise<number> {
    const { server, client } = await this.#startPerftest(run, false);
    await this.there.toolOutput(server);
    return parseBandwidth(await this.here.toolOutput(client));
  }

  /** Samples in microseconds. */
  async perftestLatencies(run: PerftestSetting): Promise<number[]> {
    const { server, client } = await this.#startPerftest(run, false);
    const text = await this.here.toolOutput(client);
    await this.there.toolOutput(server);
    return parseLatencies(text);
  }

  /** A bandwidth test from the other side to this one, until it is stopped. */
  async perftestFlood(run: PerftestSetting): Promise<() => Promise<void>> {
    const { server, client } = await this.#startPerftest(run, true);
    return async () => {
      await this.there.stopTool(client);
      await this.here.stopTool(server);
    };
  }

  async #startPerftest(
    { trafficClass, ...run }: PerftestSetting,
    fromThere: boolean,
  ): Promise<{ server: number; client: number }> {
    const { device, port, gidIndex } = this;
    const fields = addressFields(trafficClasses()[trafficClass], this.linkLayer);
    // Another port each time: the last one may still be closing.
    const controlPort = firstPerftestPort + (this.#perftests++ % perftestPorts);
    const args = perftestArguments({ ...run, ...fields, device, port, gidIndex, controlPort });
    const [serving, calling] = fromThere ? [this.here, this.there] : [this.there, this.here];
    const address = fromThere ? this.#addressHere : this.#addressThere;
    const server = await serving.startTool(run.tool, args);
    return { server, client: await calling.startTool(run.tool, [...args, address]) };
  }
}

export type PerftestSetting = Omit<
  PerftestRun,
  'device' | 'port' | 'gidIndex' | 'trafficClass' | 'serviceLevel' | 'controlPort'
> & { readonly trafficClass: TrafficClassName };

interface End {
  readonly node: BenchNode;
  readonly end: number;
  readonly qpNums: readonly number[];
}

/** Runs on one of two connected ends. */
export class LoadPair {
  readonly #here: End;
  readonly #there: End;

  constructor(here: End, there: End) {
    this.#here = here;
    this.#there = there;
  }

  /** Numbers of the queue pairs, on this side and on the other: they tell packets of a capture apart. */
  get qpNums(): { here: readonly number[]; there: readonly number[] } {
    return { here: this.#here.qpNums, there: this.#there.qpNums };
  }

  run(run: Omit<RdmaLoadRun, 'limitNs' | 'spinNs'>): Promise<RunResult> {
    return this.#run(this.#here, run);
  }

  /** Half of the round trip, in ns, of each ping-pong. */
  async pingPong(bytes: number, requests: number): Promise<readonly number[]> {
    const answering = this.#run(this.#there, { kind: 'writeAnswer', bytes, requests });
    answering.catch(() => undefined);
    const { latencyNs } = await this.#run(this.#here, { kind: 'writeLatency', bytes, requests });
    await answering;
    return latencyNs;
  }

  /** Writes from the other side to this one until the returned function is called; its bytes per second. */
  floodBack(bytes: number, chain: number): () => Promise<number> {
    const flood = this.#run(this.#there, { kind: 'write', bytes, chain, requests: 0 });
    flood.catch(() => undefined);
    return async () => {
      await this.#there.node.stop(this.#there.end);
      const result = await flood;
      return (result.bytes / result.elapsedNs) * 1e9;
    };
  }

  async close(): Promise<void> {
    await this.#here.node.close(this.#here.end);
    await this.#there.node.close(this.#there.end);
  }

  async #run({ node, end }: End, run: Omit<RdmaLoadRun, 'limitNs' | 'spinNs'>): Promise<RunResult> {
    const result = await node.run(end, { ...run, spinNs, limitNs: runLimitMs * 1e6 });
    if (result.postCalls !== result.chains || result.completions !== result.chains) {
      throw new DualPathError(
        'INTERNAL',
        `${result.chains} chains took ${result.postCalls} posts and ${result.completions} completions`,
      );
    }
    return result;
  }
}
