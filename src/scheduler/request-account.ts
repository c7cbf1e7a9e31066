import type { EngineEntry, Holding, Ledger } from './ledger.js';
import { freeBufferBlocks, freeHbmBlocks, prefillHbmBlocks } from './needs.js';
import { decodeTokensOf, type RequestEntry } from './request-entry.js';
import { stageBits, stageNames } from './stages.js';
import type { Stage } from './types.js';

/** What a request holds at each step of its life, put on the ledger and taken off it. */
export class RequestAccount {
  readonly #ledger: Ledger;
  readonly #decodeSpareBlocks: number;
  readonly #changed: (engine: EngineEntry) => void;

  /** @param changed hears of every engine whose account changes */
  constructor(ledger: Ledger, decodeSpareBlocks: number, changed: (engine: EngineEntry) => void) {
    this.#ledger = ledger;
    this.#decodeSpareBlocks = decodeSpareBlocks;
    this.#changed = changed;
  }

  /** The request has a PE. */
  placed(entry: RequestEntry): void {
    const prefill = entry.prefill!;
    prefill.placedRequests++;
    prefill.placedTokens += entry.prefillTokens;
    this.#take(prefill, placedHolding(entry));
  }

  /** It has lost its PE, or ended, before it was assigned. */
  notPlaced(entry: RequestEntry): void {
    leavePlaced(entry);
    this.#give(entry.prefill!, placedHolding(entry));
  }

  /** It has all its engines and its read side. */
  assigned(entry: RequestEntry): void {
    leavePlaced(entry);
    const { prefillReadBlocks, decodeReadBlocks } = entry.assignment!;
    const needs = entry.needs!;
    const bufferBlocks = entry.readsAll ? 0 : prefillReadBlocks; // held already if it reads all
    this.#take(entry.prefill!, { bufferBlocks, readBlocks: prefillReadBlocks });
    this.#take(entry.decode!, {
      bufferBlocks: needs.promptBlocks + this.#decodeSpareBlocks,
      hbmBlocks: needs.decodeHbmBlocks,
      readBlocks: decodeReadBlocks,
      requests: 1,
      tokens: decodeTokensOf(entry),
    });
  }

  /** The request runs already. */
  adopted(entry: RequestEntry): void {
    this.placed(entry);
    this.assigned(entry);
  }

  /** Whether its engines have room for all that it will hold there. */
  fits(entry: RequestEntry): boolean {
    const [prefill, decode, assignment] = [entry.prefill!, entry.decode!, entry.assignment!];
    return (
      assignment.prefillReadBlocks <= freeBufferBlocks(prefill) &&
      assignment.prefillHbmBlocks <= freeHbmBlocks(prefill) &&
      assignment.promptBlocks + this.#decodeSpareBlocks <= freeBufferBlocks(decode) &&
      assignment.decodeHbmBlocks <= freeHbmBlocks(decode)
    );
  }

  /** A stage is done: what it held is free. */
  done(entry: RequestEntry, stage: Stage): void {
    const assignment = entry.assignment!;
    const prefill = entry.prefill!;
    const decode = entry.decode!;
    entry.done |= stageBits[stage];
    switch (stage) {
      case 'prefill-read':
        return this.#give(prefill, { readBlocks: assignment.prefillReadBlocks });
      case 'decode-read':
        return this.#give(decode, { readBlocks: assignment.decodeReadBlocks });
      case 'prefill':
        return this.#give(prefill, {
          bufferBlocks: assignment.prefillReadBlocks,
          hbmBlocks: assignment.prefillHbmBlocks,
          requests: 1,
          tokens: entry.prefillTokens,
        });
      case 'decode-buffer':
        return this.#give(decode, { bufferBlocks: assignment.promptBlocks });
      case 'request':
        return this.#give(decode, {
          bufferBlocks: this.#decodeSpareBlocks,
          hbmBlocks: assignment.decodeHbmBlocks,
          requests: 1,
          tokens: decodeTokensOf(entry),
        });
    }
  }

  /** An assigned request is over: whatever it still holds is free. */
  over(entry: RequestEntry): void {
    for (const stage of stageNames) {
      if ((entry.done & stageBits[stage]) === 0) this.done(entry, stage);
    }
  }

  #take(engine: EngineEntry, holding: Partial<Holding>): void {
    this.#ledger.take(engine, holding);
    this.#changed(engine);
  }

  #give(engine: EngineEntry, holding: Partial<Holding>): void {
    this.#ledger.give(engine, holding);
    this.#changed(engine);
  }
}

function leavePlaced(entry: RequestEntry): void {
  const prefill = entry.prefill!;
  prefill.placedRequests--;
  prefill.placedTokens -= entry.prefillTokens;
}

function placedHolding(entry: RequestEntry): Partial<Holding> {
  const needs = entry.needs!;
  return {
    bufferBlocks: entry.readsAll ? needs.hitBlocks : 0,
    hbmBlocks: prefillHbmBlocks(entry.prefill!, needs),
    requests: 1,
    tokens: entry.prefillTokens,
  };
}
