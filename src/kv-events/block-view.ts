import { ReportedBlocks } from '../router/index.js';
import type { KvEvent } from './wire.js';

/** How ids become keys: as `PromptKeys` makes those of prompts. */
export interface KeyChain {
  beginning(model: string): string;
  next(state: string, parts: readonly Uint32Array[]): string;
}

export interface BlockViewOptions {
  readonly chain: KeyChain;
  readonly model: string;
  /** Of the router's blocks. */
  readonly blockTokens: number;
  /** Blocks of the engine that are remembered at most. */
  readonly blocksMax: number;
}

/** A block of the engine. */
interface Block {
  readonly parent: string | null;
  readonly ids: Uint32Array;
  /** Its place in its block of the router. */
  readonly place: number;
  /** Of the chain behind it, where it is the last of a block of the router; else, or if that is not known, empty. */
  readonly state: string;
  /** An engine may compute a block twice, and then holds it until both copies are gone. */
  copies: number;
}

/** Kinds of cache whose blocks stand for all that is before them. */
const wholeKinds = new Set([
  null,
  'full_attention',
  'mla_attention',
  'sink_full_attention',
  'full_attention_mla',
]);

/**
 * What one model's prefix cache holds, from the engine's events, in the router's keys: the router's chain is computed over
 * the ids of the blocks, each of which names its parent. A state machine: no clock, no I/O.
 */
export class BlockView {
  readonly held = new ReportedBlocks();
  readonly #options: BlockViewOptions;
  readonly #beginning: string;
  readonly #blocks = new Map<string, Block>();
  /** The only group of the engine's caches that is looked at; undefined: not known yet. */
  #group: number | null | undefined;

  constructor(options: BlockViewOptions) {
    this.#options = options;
    this.#beginning = options.chain.beginning(options.model);
  }

  /** Blocks of the engine that are remembered. */
  get size(): number {
    return this.#blocks.size;
  }

  /** Everything is forgotten; `isWhole` if nothing is cached. */
  reset(isWhole: boolean): void {
    this.#blocks.clear();
    this.held.clear();
    this.setWhole(isWhole);
  }

  /** All events since the cache was empty have been applied. */
  setWhole(isWhole: boolean): void {
    this.held.isWhole = isWhole;
  }

  apply(event: KvEvent): void {
    if (event.type === 'cleared') this.reset(true);
    else if (event.type === 'stored') this.#stored(event);
    else if (event.group === null || event.group === this.#group) {
      event.hashes.forEach((hash, i) => this.#remove(hash, event.remaining?.[i]));
    }
  }

  #stored(event: KvEvent & { type: 'stored' }): void {
    if (!wholeKinds.has(event.kind)) return;
    if (this.#group === undefined) this.#group = event.group;
    if (event.group !== this.#group) return;
    const { blockTokens } = event;
    if (this.#options.blockTokens % blockTokens !== 0) {
      this.reset(false);
      return;
    }
    let parent = event.parent;
    for (let i = 0; i < event.plainBlocks; i++) {
      const ids = event.ids.subarray(i * blockTokens, (i + 1) * blockTokens);
      const hash = event.hashes[i]!;
      if (!this.#add(hash, parent, ids)) return;
      parent = hash;
    }
  }

  /** False where nothing is known of what comes before it. */
  #add(hash: string, parent: string | null, ids: Uint32Array): boolean {
    const known = this.#blocks.get(hash);
    if (known !== undefined) {
      known.copies++;
      return true;
    }
    const before = parent === null ? null : this.#blocks.get(parent);
    if (before === undefined) return false;
    if (this.#blocks.size >= this.#options.blocksMax) {
      this.reset(false);
      return false;
    }
    const perBlock = this.#options.blockTokens / ids.length;
    const place = before === null ? 0 : (before.place + 1) % perBlock;
    const state = place === perBlock - 1 ? this.#stateBehind(parent, ids, perBlock) : '';
    this.#blocks.set(hash, { parent, ids, place, state, copies: 1 });
    if (state !== '') this.held.add(...keyOf(state));
    return true;
  }

  /** The chain's state behind a block of the router that ends with `ids`; empty if part of what is before is gone. */
  #stateBehind(parent: string | null, ids: Uint32Array, perBlock: number): string {
    const parts = [ids];
    let at = parent;
    for (let i = 1; i < perBlock; i++) {
      const block = at === null ? undefined : this.#blocks.get(at);
      if (block === undefined) return '';
      parts.unshift(block.ids);
      at = block.parent;
    }
    const state = at === null ? this.#beginning : (this.#blocks.get(at)?.state ?? '');
    return state === '' ? '' : this.#options.chain.next(state, parts);
  }

  #remove(hash: string, remaining: number | undefined): void {
    const block = this.#blocks.get(hash);
    if (block === undefined) return;
    block.copies = remaining ?? block.copies - 1;
    if (block.copies > 0) return;
    this.#blocks.delete(hash);
    if (block.state !== '') this.held.remove(...keyOf(block.state));
  }
}

/** The first two words, as in the keys of prompts. */
function keyOf(state: string): [low: number, high: number] {
  const word = (at: number): number =>
    (state.charCodeAt(at) |
      (state.charCodeAt(at + 1) << 8) |
      (state.charCodeAt(at + 2) << 16) |
      (state.charCodeAt(at + 3) << 24)) >>>
    0;
  return [word(0), word(4)];
}
