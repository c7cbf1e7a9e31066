/**
 * What traffic classes are for: the latency of the inference class on a link that KV-Cache traffic fills, with queueing by
 * class, without it, and on the idle link. This project's chains and perftest's tools in the same set-up, in turns.
 *
 * The measuring side reads from the other one while that one floods this one with writes, so that what is read and the
 * flood share a queue. The link is made slower by tc on both sides, or the hosts themselves would be the limit.
 */
import { DualPathError } from '../../errors/index.js';
import { defaultQos, type QueueingKind } from '../../qos/index.js';
import { latencyFigures, type LatencyFigures } from './bandwidth.js';
import { Sides, type LoadPair, type SidesOptions } from './sides.js';

export interface QosOptions extends SidesOptions {
  /** Of each of idle and flood with classes; default 10,000. */
  readonly samples?: number;
  /** Of the flood without classes, where a sample takes fifty times as long; default 2,000. */
  readonly samplesWithoutClasses?: number;
  /** Turns that they are taken in; default 5. */
  readonly rounds?: number;
  readonly rateMbit?: number;
  /** Of what is read, and of each write of the flood. */
  readonly bytes?: number;
  readonly floodBytes?: number;
  /** perftest's tools as well. */
  readonly compare?: 'perftest';
  readonly onProgress?: (step: string) => void;
}

export const qosCases = ['idle', 'floodWithClasses', 'floodWithoutClasses'] as const;
export type QosCase = (typeof qosCases)[number];

export interface QosFigures extends LatencyFigures {
  /** What the flood moved meanwhile; null without one, and where the tool does not say. */
  readonly kvBytesPerS: number | null;
}

export interface QosResult extends Readonly<Record<QosCase, QosFigures>> {
  readonly perftest: Readonly<Record<QosCase, QosFigures>> | undefined;
  /** Flood with classes over idle. */
  readonly overIdle: OverIdle;
  readonly perftestOverIdle: OverIdle | undefined;
  /** Ours over perftest's. */
  readonly overIdleRatio: OverIdle | undefined;
  readonly linkBytesPerS: number;
  readonly sizeBytes: number;
  readonly rounds: number;
  readonly carriedBy: string;
}

export interface OverIdle {
  readonly p50: number;
  readonly p99: number;
}

const defaults = {
  samples: 10_000,
  samplesWithoutClasses: 2000,
  rounds: 5,
  rateMbit: 80,
  bytes: 4096,
  floodBytes: 65536,
};
type Settings = typeof defaults & Pick<QosOptions, 'compare' | 'signal' | 'onProgress' | 'peer'>;

const floodDepth = 128;
const floodChain = 16;
const floodStartMs = 300;
/** More than a flood sends while it is needed; it is stopped. */
const endlessIterations = 1_000_000;
const queueing: Record<QosCase, QueueingKind> = {
  idle: 'classes',
  floodWithClasses: 'classes',
  floodWithoutClasses: 'fifo',
};

interface Collected {
  readonly samplesUs: number[];
  readonly kvBytesPerS: number[];
}
type Collection = Record<QosCase, Collected>;

const emptyCollection = (): Collection => ({
  idle: { samplesUs: [], kvBytesPerS: [] },
  floodWithClasses: { samplesUs: [], kvBytesPerS: [] },
  floodWithoutClasses: { samplesUs: [], kvBytesPerS: [] },
});

/** @throws INVALID_ARGUMENT without a second host, RDMA_UNAVAILABLE, RDMA_FAILED */
export async function benchQos(options: QosOptions): Promise<QosResult> {
  const given = Object.fromEntries(Object.entries(options).filter(([, value]) => value !== undefined));
  const settings: Settings = { ...defaults, ...given };
  if (options.peer === undefined) {
    throw new DualPathError(
      'INVALID_ARGUMENT',
      "packets to oneself never reach a queue: this needs two hosts ('dualpath rxe --hosts 2 -- ...', or --peer)",
    );
  }
  const sides = await Sides.open(options);
  try {
    return await new QosBench(sides, settings).run();
  } finally {
    await sides.close();
  }
}

class QosBench {
  readonly #sides: Sides;
  readonly #settings: Settings;
  readonly #ours = emptyCollection();
  readonly #theirs = emptyCollection();

  constructor(sides: Sides, settings: Settings) {
    this.#sides = sides;
    this.#settings = settings;
  }

  async run(): Promise<QosResult> {
    const { bytes, floodBytes, rounds, compare, onProgress } = this.#settings;
    const latency = await this.#sides.connect({ bytes, queuePairs: 1, depth: 4, trafficClass: 'inference' });
    const flood = await this.#sides.connect({
      bytes: floodBytes,
      queuePairs: 1,
      depth: floodDepth,
      trafficClass: 'kv',
    });
    for (let round = 1; round <= rounds; round++) {
      for (const name of qosCases) {
        await this.#setQueueing(queueing[name]);
        const turns = [
          () => this.#measureOurs(name, latency, flood),
          ...(compare === undefined ? [] : [() => this.#measureTheirs(name)]),
        ];
        onProgress?.(`round ${round} of ${rounds}, ${name}`);
        for (const turn of round % 2 === 1 ? turns : turns.reverse()) {
          this.#settings.signal?.throwIfAborted();
          await turn();
        }
      }
    }
    await this.#setQueueing('none');
    await flood.close();
    await latency.close();
    return this.#result();
  }

  #samplesOf(name: QosCase): number {
    const { samples, samplesWithoutClasses, rounds } = this.#settings;
    return Math.ceil((name === 'floodWithoutClasses' ? samplesWithoutClasses : samples) / rounds);
  }

  async #setQueueing(kind: QueueingKind): Promise<void> {
    const { here, there, device } = this.#sides;
    const options = { rateMbit: this.#settings.rateMbit, description: defaultQos };
    await here.setQueueing(kind, device, options);
    await there.setQueueing(kind, device, options);
  }

  async #measureOurs(name: QosCase, latency: LoadPair, flood: LoadPair): Promise<void> {
    const { bytes, floodBytes } = this.#settings;
    const stop = name === 'idle' ? undefined : flood.floodBack(floodBytes, floodChain);
    if (stop !== undefined) await delay(floodStartMs);
    const requests = this.#samplesOf(name);
    const { latencyNs } = await latency.run({ kind: 'readLatency', bytes, requests });
    for (const ns of latencyNs) this.#ours[name].samplesUs.push(ns / 1000);
    if (stop !== undefined) this.#ours[name].kvBytesPerS.push(await stop());
  }

  async #measureTheirs(name: QosCase): Promise<void> {
    const { bytes, floodBytes } = this.#settings;
    const stop =
      name === 'idle'
        ? undefined
        : await this.#sides.perftestFlood({
            tool: 'ib_write_bw',
            bytes: floodBytes,
            iterations: endlessIterations - (endlessIterations % floodChain),
            queuePairs: 1,
            depth: floodDepth,
            chain: floodChain,
            trafficClass: 'kv',
          });
    try {
      if (stop !== undefined) await delay(floodStartMs);
      const samplesUs = await this.#sides.perftestLatencies({
        tool: 'ib_read_lat',
        bytes,
        // It prints one sample fewer.
        iterations: this.#samplesOf(name) + 1,
        queuePairs: 1,
        trafficClass: 'inference',
      });
      for (const us of samplesUs) this.#theirs[name].samplesUs.push(us);
    } finally {
      await stop?.();
    }
  }

  #result(): QosResult {
    const { compare, rateMbit, bytes, rounds } = this.#settings;
    const ours = figuresOf(this.#ours);
    const perftest = compare === undefined ? undefined : figuresOf(this.#theirs);
    const overIdle = overIdleOf(ours);
    const perftestOverIdle = perftest === undefined ? undefined : overIdleOf(perftest);
    return {
      ...ours,
      perftest,
      overIdle,
      perftestOverIdle,
      overIdleRatio:
        perftestOverIdle === undefined
          ? undefined
          : { p50: overIdle.p50 / perftestOverIdle.p50, p99: overIdle.p99 / perftestOverIdle.p99 },
      linkBytesPerS: (rateMbit * 1e6) / 8,
      sizeBytes: bytes,
      rounds,
      carriedBy: `RDMA device ${this.#sides.device}, port ${this.#sides.port}, ${this.#sides.linkLayer}`,
    };
  }
}

const delay = (ms: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, ms));

function figuresOf(collection: Collection): Record<QosCase, QosFigures> {
  const of = ({ samplesUs, kvBytesPerS }: Collected): QosFigures => ({
    ...latencyFigures(samplesUs),
    kvBytesPerS:
      kvBytesPerS.length === 0 ? null : kvBytesPerS.reduce((sum, rate) => sum + rate, 0) / kvBytesPerS.length,
  });
  return {
    idle: of(collection.idle),
    floodWithClasses: of(collection.floodWithClasses),
    floodWithoutClasses: of(collection.floodWithoutClasses),
  };
}

const overIdleOf = ({ idle, floodWithClasses }: Record<QosCase, QosFigures>): OverIdle => ({
  p50: floodWithClasses.p50Us / idle.p50Us,
  p99: floodWithClasses.p99Us / idle.p99Us,
});
