import type { EngineState, Ledger } from './ledger.js';
import {
  decodeFits,
  freeBlocks,
  freeBufferBlocks,
  freeHbmBlocks,
  prefillFits,
  totalBlocks,
  type Needs,
} from './needs.js';
import { pickLeast, SeededRandom } from './random.js';
import { planReads, readTimeS, splitBlocks, type ReadPlan } from './read-side.js';
import type { EngineRole, ReadPolicy } from './types.js';

/** What kept the head of the waiting queue from being admitted. */
export type WaitCause = 'prefill-room' | 'decode-hbm' | 'decode-buffer';

export interface Choice {
  readonly prefill: EngineState;
  readonly decode: EngineState;
  readonly plan: ReadPlan;
}

export interface PlacementRules {
  readonly policy: ReadPolicy;
  readonly blockBytes: number;
  readonly seed: number;
}

/**
 * Chooses where a request runs and which side reads its hits. It only decides: the ledger is read here and
 * changed by the caller. `Admission` says how this simplifies the paper's Algorithm 1.
 */
export class Placement {
  readonly #rules: PlacementRules;
  readonly #ledger: Ledger;
  readonly #random: SeededRandom;
  #turn: EngineRole = 'prefill';

  constructor(rules: PlacementRules, ledger: Ledger) {
    this.#rules = rules;
    this.#ledger = ledger;
    this.#random = new SeededRandom(rules.seed);
  }

  /** PE, then DE, then read side; or what is missing. The caller carries a choice out. */
  choose(needs: Needs): Choice | WaitCause {
    const readsAll = this.#prefillMustReadAll(needs);
    const prefill = pickLeast(
      this.#ledger.live('prefill'),
      (engine) => prefillFits(engine, needs, readsAll, freeBlocks),
      (a, b) => this.#queueTimeS(a) - this.#queueTimeS(b) || a.unfinishedTokens - b.unfinishedTokens,
      this.#random,
    );
    if (!prefill) return 'prefill-room';
    const decodeEngines = this.#ledger.live('decode');
    const decode = pickLeast(
      decodeEngines,
      (engine) => decodeFits(engine, needs, freeBlocks),
      (a, b) => a.unfinishedTokens - b.unfinishedTokens,
      this.#random,
    );
    if (!decode) {
      const hbmFits = decodeEngines.some((engine) => freeHbmBlocks(engine) >= needs.decodeHbmBlocks);
      return hbmFits ? 'decode-buffer' : 'decode-hbm';
    }
    const prefillReads = readsAll
      ? needs.hitBlocks
      : this.#prefillReadBlocks(needs.hitBlocks, prefill, decode);
    if (this.#rules.policy === 'round-robin' && needs.hitBlocks > 0) this.#takeTurn();
    return { prefill, decode, plan: planReads(needs.hitBlocks, prefillReads) };
  }

  /** Whether the policy leaves no choice but to read the request on the prefill side. */
  #prefillMustReadAll(needs: Needs): boolean {
    const { policy } = this.#rules;
    if (policy !== 'round-robin') return policy === 'prefill';
    // A request that no PE buffer could ever hold would wait for its turn's side for ever.
    const possible = this.#ledger.live('prefill').some((pe) => prefillFits(pe, needs, true, totalBlocks));
    return this.#turn === 'prefill' && possible;
  }

  /** How many of the hit blocks the prefill side reads; the rest always fits the DE buffer. */
  #prefillReadBlocks(blocks: number, prefill: EngineState, decode: EngineState): number {
    const { policy, blockBytes } = this.#rules;
    if (policy === 'split') return splitBlocks(blocks, prefill.link, decode.link, freeBufferBlocks(prefill));
    if (policy !== 'shorter-queue' || blocks === 0 || freeBufferBlocks(prefill) < blocks) return 0;
    const difference =
      readTimeS(prefill.link, blocks, blockBytes) - readTimeS(decode.link, blocks, blockBytes);
    if (difference !== 0) return difference < 0 ? blocks : 0;
    return this.#takeTurn() === 'prefill' ? blocks : 0;
  }

  #queueTimeS(engine: EngineState): number {
    return readTimeS(engine.link, 0, this.#rules.blockBytes);
  }

  #takeTurn(): EngineRole {
    const turn = this.#turn;
    this.#turn = turn === 'prefill' ? 'decode' : 'prefill';
    return turn;
  }
}
