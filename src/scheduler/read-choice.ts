import type { EngineEntry } from './ledger.js';
import { freeBufferBlocks, prefillCanHold, type Needs } from './needs.js';
import { planReads, readTimeS, splitBlocks, type ReadPlan } from './read-side.js';
import type { EngineRole, ReadPolicy, ReadSide } from './types.js';

/** Which side reads a request's hits, once its PE and DE are known. */
export class ReadChoice {
  readonly #policy: ReadPolicy;
  readonly #blockBytes: number;
  #turn: EngineRole = 'prefill';
  readonly #planned: Record<ReadSide, number> = { prefill: 0, decode: 0, split: 0 };

  constructor(policy: ReadPolicy, blockBytes: number) {
    this.#policy = policy;
    this.#blockBytes = blockBytes;
  }

  /**
   * Whether the policy leaves no choice but to read the request on the prefill side, so that it must find its
   * buffer there. `chosen` is told once the request has its PE.
   */
  prefillMustReadAll(needs: Needs, prefillEngines: readonly EngineEntry[]): boolean {
    if (needs.avoidSide === 'prefill') return false;
    if (needs.avoidSide === undefined && this.#policy !== 'round-robin') return this.#policy === 'prefill';
    if (needs.avoidSide === undefined && this.#turn !== 'prefill') return false;
    // A request that no PE buffer could ever hold would wait for that side for ever.
    return prefillEngines.some((engine) => prefillCanHold(engine, needs, true));
  }

  placed(needs: Needs): void {
    if (this.#policy === 'round-robin' && needs.hitBlocks > 0) this.#takeTurn();
  }

  plan(needs: Needs, readsAll: boolean, prefill: EngineEntry, decode: EngineEntry): ReadPlan {
    const { hitBlocks, avoidSide } = needs;
    const prefillReadBlocks =
      avoidSide === 'prefill'
        ? 0
        : readsAll
          ? hitBlocks
          : this.#prefillReadBlocks(hitBlocks, prefill, decode);
    const plan = planReads(hitBlocks, prefillReadBlocks);
    this.#planned[plan.side]++;
    return plan;
  }

  /** Requests that were planned to be read on each side. */
  counts(): { readonly assignedBySide: Readonly<Record<ReadSide, number>> } {
    return { assignedBySide: { ...this.#planned } };
  }

  /** How many of the hit blocks the prefill side reads; the rest always fits the DE buffer. */
  #prefillReadBlocks(blocks: number, prefill: EngineEntry, decode: EngineEntry): number {
    const room = freeBufferBlocks(prefill);
    if (this.#policy === 'split') return splitBlocks(blocks, prefill.link, decode.link, room);
    if (this.#policy !== 'shorter-queue' || blocks === 0 || room < blocks) return 0;
    const difference =
      readTimeS(prefill.link, blocks, this.#blockBytes) - readTimeS(decode.link, blocks, this.#blockBytes);
    if (difference !== 0) return difference < 0 ? blocks : 0;
    return this.#takeTurn() === 'prefill' ? blocks : 0;
  }

  #takeTurn(): EngineRole {
    const turn = this.#turn;
    this.#turn = turn === 'prefill' ? 'decode' : 'prefill';
    return turn;
  }
}
