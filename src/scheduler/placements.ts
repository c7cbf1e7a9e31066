import { DecodePlacement, type DecodeListener } from './decode-placement.js';
import type { EngineEntry, Ledger } from './ledger.js';
import { PrefillPlacement, type PrefillRules } from './prefill-placement.js';
import type { SeededRandom } from './random.js';
import type { RequestEntry } from './request-entry.js';

/** Both placements over the engines that there are; made anew when engines join. */
export class Placements {
  prefill: PrefillPlacement;
  decode: DecodePlacement;
  /** Requests with a PE that no DE group has been found for yet: DE groups drain it when they fetch. */
  #placed: RequestEntry[] = [];
  readonly #rules: PrefillRules;
  readonly #ledger: Ledger;
  readonly #random: SeededRandom;

  constructor(rules: PrefillRules, ledger: Ledger, random: SeededRandom) {
    this.#rules = rules;
    this.#ledger = ledger;
    this.#random = random;
    this.prefill = new PrefillPlacement(rules, ledger, random);
    this.decode = new DecodePlacement(ledger, random);
  }

  explainBy(listener: DecodeListener): void {
    this.decode.explain = listener;
  }

  /** The account of an engine has changed. */
  changed(engine: EngineEntry): void {
    this.prefill.changed(engine);
    this.decode.changed(engine);
  }

  /** A request has a PE. */
  placed(entry: RequestEntry): void {
    this.#placed.push(entry);
  }

  /** Phase 1 for all that have a PE. */
  drain(): void {
    const placed = this.#placed.filter(({ state }) => state === 'placed');
    // What finds no group waits for one to open or to join, or ends with the report of a loss.
    this.#placed = placed.filter((entry) => !this.decode.hand(entry));
  }

  /** Whether an engine takes work has changed. */
  switched(engine: EngineEntry): void {
    if (engine.capacity.role === 'decode') this.#placed = [...this.decode.switched(engine), ...this.#placed];
    this.changed(engine);
  }

  /** Engines have joined. */
  rebuild(): void {
    this.#placed = [...this.decode.inLine(), ...this.#placed];
    this.prefill = new PrefillPlacement(this.#rules, this.#ledger, this.#random);
    const { explain } = this.decode;
    this.decode = new DecodePlacement(this.#ledger, this.#random);
    this.decode.explain = explain;
  }
}
