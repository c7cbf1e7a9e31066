/**
 * A load as a program. What the buffer holds at once is one part: read, then copied layer by layer as all of it has
 * arrived. More than that comes in parts through two halves of the buffer, one being filled while the other is
 * emptied; then every part but the last is in the engine's memory with all of its layers before the last one's first
 * layer is, so that "layer l has arrived" means the same.
 */
import { readBlocks } from '../flow/index.js';
import type { BlockList } from '../memory/index.js';
import type { Descriptor, LayersDescriptor, ProgramError } from '../transfer/index.js';
import type { LoadOptions, LoadRange } from './load.js';
import type { TrafficManager } from './traffic-manager.js';

export interface LoadPlaces {
  /** Slots of the buffer, for the length of the load. */
  readonly buffer: BlockList;
  /** Entries of the blocks in the engine's memory, in the slot table. */
  readonly target: number;
  /** Counters, at zero: blocks read, layers of parts copied. */
  readonly arrived: number;
  readonly copied: number;
}

/** Blocks [first, first + blocks) of the load, in the buffer from slot `slot` of its list on. */
interface Part {
  readonly first: number;
  readonly blocks: number;
  readonly slot: number;
}

export class LoadPlan {
  readonly #manager: TrafficManager;
  readonly #options: LoadOptions;
  readonly #range: LoadRange;
  readonly #places: LoadPlaces;
  readonly #parts: readonly Part[];
  /** Parts that the buffer holds at once. */
  readonly #held: number;

  constructor(manager: TrafficManager, options: LoadOptions, range: LoadRange, places: LoadPlaces) {
    this.#manager = manager;
    this.#options = options;
    this.#range = range;
    this.#places = places;
    const slots = places.buffer.count;
    this.#held = range.blocks <= slots || slots === 1 ? 1 : 2;
    const size = range.blocks <= slots ? range.blocks : Math.floor(slots / this.#held);
    this.#parts = Array.from({ length: Math.ceil(range.blocks / size) }, (_, i) => ({
      first: i * size,
      blocks: Math.min(size, range.blocks - i * size),
      slot: (i % this.#held) * size,
    }));
  }

  descriptors(): Descriptor[] {
    const { arrived, copied } = this.#places;
    const { layers } = this.#manager.layout;
    const { layerCounter } = this.#options;
    return this.#parts.flatMap((part, i): Descriptor[] => {
      const last = i === this.#parts.length - 1;
      // One part after the other, so that all before a block that cannot be read have arrived.
      const turn = i === 0 ? [] : [{ counter: arrived, value: part.first }];
      const room = i < this.#held ? [] : [{ counter: copied, value: (i - this.#held + 1) * layers }];
      const order = i === 0 ? [] : [{ counter: copied, value: i * layers }];
      const inOrder =
        last && layerCounter !== undefined ? [{ counter: layerCounter, ordered: true, value: 0 }] : [];
      return [
        {
          ...readBlocks({
            geometry: this.#manager.buffer.geometry,
            keys: this.#options.chain.offset + this.#range.firstBlock + part.first,
            slots: this.#places.buffer.offset + part.slot,
            blocks: part.blocks,
          }),
          waits: [...turn, ...room],
          signals: [{ counter: arrived, value: 1 }],
        },
        {
          ...this.#copy(part, part.blocks),
          waits: [{ counter: arrived, value: part.first + part.blocks }, ...order],
          signals: [{ counter: copied, value: 1 }, ...inOrder],
          event: last,
        },
      ];
    });
  }

  #copy({ first, slot }: Part, blocks: number): LayersDescriptor {
    const { layout, buffer } = this.#manager;
    const { firstBlock, tokenBegin, tokenEnd, blockTokens } = this.#range;
    const { geometry, windowEnd = 0 } = this.#options;
    return {
      op: 'copy',
      from: buffer.geometry,
      to: geometry,
      fromSlots: this.#places.buffer.offset + slot,
      toSlots: this.#places.target + first * this.#manager.tableShape(geometry).entriesPerBlock,
      blocks,
      firstBlock: firstBlock + first,
      tokenBegin: Math.max(tokenBegin, (firstBlock + first) * blockTokens),
      tokenEnd: Math.min(tokenEnd, (firstBlock + first + blocks) * blockTokens),
      layers: layout.layers,
      windowEnd,
    };
  }

  #partsCopied(): number {
    return Math.floor(this.#manager.engine.counter(this.#places.copied) / this.#manager.layout.layers);
  }

  /** Leading blocks that are in the engine's memory with every layer. */
  blocksCopied(): number {
    const part = this.#parts[this.#partsCopied()];
    return part === undefined ? this.#range.blocks : part.first;
  }

  /** When the program failed at a block: copies of those before it that lie in the buffer, and how many it makes. */
  rest(error: ProgramError): { readonly descriptors: LayersDescriptor[]; readonly blocks: number } {
    const { descriptor } = error.details;
    const { failedBlock } = error;
    // Reads are the even ones.
    const isRead = typeof descriptor === 'number' && descriptor % 2 === 0 && failedBlock !== undefined;
    if (!isRead) return { descriptors: [], blocks: this.blocksCopied() };
    const failed = this.#parts[descriptor / 2]!;
    const descriptors = this.#parts
      .slice(this.#partsCopied(), descriptor / 2)
      .map((part) => this.#copy(part, part.blocks));
    if (failedBlock > 0) descriptors.push(this.#copy(failed, failedBlock));
    return { descriptors, blocks: failed.first + failedBlock };
  }
}
