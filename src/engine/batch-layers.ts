/** The layers of a forward batch for an engine that computes them from JavaScript, one after the other. */
import type { BatchCounters } from '../flow/index.js';
import { DualPathError } from '../errors/index.js';
import type { Program, TransferEngine, Wait } from '../transfer/index.js';
import { Deferred } from './deferred.js';

/** One layer of a batch. */
export interface BatchLayer {
  readonly layer: number;
  /**
   * Resolves when the layer's hit KV is in the staging and the staging may take its miss KV. From then on the
   * layer's staging is the caller's until done(), whatever becomes of the batch. Rejects when the batch is
   * given up.
   */
  ready(): Promise<void>;
  /**
   * The layer's miss KV is in the staging: it may be sent. Layers in order, each once, each after ready().
   * @throws INVALID_ARGUMENT otherwise
   */
  done(): void;
}

export class LayerRun {
  /** Resolves when the caller uses nothing of the batch's staging and counters any more. */
  readonly over: Promise<void>;
  readonly #over = new Deferred<void>();
  readonly #engine: TransferEngine;
  readonly #counters: BatchCounters;
  readonly #program: Program;
  readonly #ready: readonly Deferred<void>[];
  /** Layers between ready() and done(). */
  readonly #inUse = new Set<number>();
  #programOver = false;
  /** Bumps of `computed` that native code has not done yet: the counter is the batch's until then. */
  #bumping = 0;
  #givenUp = false;
  #next = 0;

  /** @throws CAPACITY_EXHAUSTED, CLOSED */
  constructor(engine: TransferEngine, counters: BatchCounters, waits: readonly Wait[]) {
    this.over = this.#over.promise;
    this.#engine = engine;
    this.#counters = counters;
    this.#ready = Array.from({ length: counters.layers }, () => new Deferred<void>());
    this.#program = engine.submit([{ op: 'bump', steps: counters.layers, waits, event: true }], (layer) =>
      this.#ready[layer]!.resolve(),
    );
    const ended = (): void => {
      this.#programOver = true;
      this.#check();
    };
    this.#program.done.then(ended, (error: unknown) => {
      for (const { reject } of this.#ready) reject(error);
      ended();
    });
  }

  *layers(): Generator<BatchLayer, void, void> {
    for (let layer = 0; layer < this.#counters.layers; layer++) {
      yield { layer, ready: () => this.#whenReady(layer), done: () => this.#done(layer) };
    }
  }

  async #whenReady(layer: number): Promise<void> {
    await this.#ready[layer]!.promise;
    if (this.#givenUp) throw new DualPathError('CANCELLED', 'the forward batch has been given up');
    if (layer >= this.#next) this.#inUse.add(layer);
  }

  #done(layer: number): void {
    if (!this.#givenUp) {
      if (!this.#inUse.has(layer) || layer !== this.#next) {
        throw new DualPathError(
          'INVALID_ARGUMENT',
          `done() of layer ${layer}, the next is ${this.#next}; call it once a layer, in order, after ready()`,
          { layer, next_layer: this.#next },
        );
      }
      const computed = { counter: this.#counters.computed, value: 1 };
      // May throw when the ring is full: then nothing has happened, and done() can be called again.
      const bump = this.#engine.submit([{ op: 'bump', signals: [computed] }]);
      this.#next++;
      this.#bumping++;
      const bumped = (): void => {
        this.#bumping--;
        this.#check();
      };
      bump.done.then(bumped, bumped);
    }
    this.#inUse.delete(layer);
    this.#check();
  }

  /** No layer is begun any more. */
  giveUp(): void {
    this.#givenUp = true;
    this.#engine.cancel(this.#program);
    this.#check();
  }

  /** The caller has left its loop early: it uses no layer any more. */
  leave(): void {
    this.#inUse.clear();
    this.giveUp();
  }

  #check(): void {
    if (!this.#programOver || this.#bumping > 0) return;
    if (this.#next === this.#counters.layers || (this.#givenUp && this.#inUse.size === 0)) {
      this.#over.resolve();
    }
  }
}
