/**
 * Canaries: takes memory that no request holds, fills it with a pattern of its own, looks after a while whether it is still
 * there, and gives it back. Who wrote into memory that was given back, or never his, is seen here.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { EmulatedGpu, KvSeeds } from '../emulation/index.js';
import type { BlockLayout } from '../layout/index.js';
import type { BlockList, BlockSpace } from '../memory/index.js';
import type { TrafficManager } from '../traffic/index.js';

export interface CanarySpace {
  readonly space: BlockSpace;
  /** Layers that the space holds of a block. */
  readonly layers: number;
}

const heldMs = 100;
const mostBlocks = 16;

export class Canaries {
  readonly #gpu: EmulatedGpu;
  readonly #layout: BlockLayout;
  readonly #spaces: readonly CanarySpace[];
  readonly #stop = new AbortController();
  readonly #running: Promise<void>;
  #early = new AbortController();
  #guarding: Promise<unknown> = Promise.resolve();
  #round = 0;

  constructor(traffic: TrafficManager, spaces: readonly CanarySpace[]) {
    this.#gpu = new EmulatedGpu(traffic.engine);
    this.#layout = traffic.layout;
    this.#spaces = spaces;
    this.#running = this.#run();
  }

  async #run(): Promise<void> {
    while (!this.#stop.signal.aborted) {
      this.#early = new AbortController();
      this.#guarding = Promise.all(this.#spaces.map((space) => this.#guard(space)));
      await this.#guarding;
    }
  }

  /** The newest memory to be given back is the first to be taken. */
  async #guard({ space, layers }: CanarySpace): Promise<void> {
    const blocks = Math.min(mostBlocks, space.available >> 1);
    const slots = blocks === 0 ? undefined : space.tryTake(blocks);
    // A token's KV is made from all tokens before it: another round, another pattern.
    const tokens = new Uint32Array(blocks * this.#layout.blockTokens);
    if (blocks > 0) tokens[0] = ++this.#round;
    const seeds = new KvSeeds(tokens);
    try {
      if (slots !== undefined) await this.#kernels(space, slots, layers, seeds, [tokens.length, 0]);
      const signal = AbortSignal.any([this.#stop.signal, this.#early.signal]);
      await sleep(heldMs, undefined, { signal }).catch(() => undefined);
      if (slots !== undefined) await this.#kernels(space, slots, layers, seeds, [0, tokens.length]);
    } finally {
      slots?.release();
    }
  }

  async #kernels(
    space: BlockSpace,
    slots: BlockList,
    layers: number,
    seeds: KvSeeds,
    [writeEnd, checkEnd]: readonly [number, number],
  ): Promise<void> {
    await this.#gpu.run({
      steps: layers,
      stepDurationS: 0,
      bodies: [
        {
          geometry: space.geometry,
          list: slots.offset,
          count: slots.count,
          firstBlock: 0,
          seeds,
          checkBegin: 0,
          checkEnd,
          writeBegin: 0,
          writeEnd,
          windowEnd: 0,
        },
      ],
    });
  }

  /** Looks at what is held now; statistics() then has it. */
  async check(): Promise<void> {
    this.#early.abort();
    await this.#guarding;
  }

  statistics(): { readonly checkedBytes: number; readonly mismatchedBytes: number } {
    const { checkedBytes, mismatchedBytes } = this.#gpu.statistics();
    return { checkedBytes, mismatchedBytes };
  }

  /** Before the engine is closed. */
  async close(): Promise<void> {
    this.#stop.abort();
    await this.#running;
    this.#gpu.close();
  }
}
