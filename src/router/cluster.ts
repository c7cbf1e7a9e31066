import type { Instance } from './instance.js';
import type { RoutedRequest } from './request.js';

/** How long a request would wait at an instance, as somebody knows it. */
export interface LoadView {
  /** Seconds of prefill before a request that is sent now, the rest of the running one included. */
  queueS(instance: Instance, nowS: number): number;
}

export interface ClusterOptions {
  /** Tokens of a block. */
  readonly blockTokens: number;
  /** Prefill time of an uncached token: 0.00016 s for a 7B model, 0.000127 for 14B in the published figures. */
  readonly prefillSPerToken: number;
  /** Time to first token that counts as good. */
  readonly sloS: number;
  /** What policies are told of loads; default the router's own ledger. */
  readonly loadView?: LoadView | undefined;
}

/** What policies see: instances, loads, hits and times. The time is that of the event being handled. */
export class Cluster {
  readonly blockTokens: number;
  readonly prefillSPerToken: number;
  readonly sloS: number;
  nowS = 0;
  /** All but removed ones. */
  readonly instances: Instance[] = [];
  /** Those that may be given new requests: healthy and not draining, or sick ones, too, when most are sick. */
  routable: readonly Instance[] = [];
  readonly #loadView: LoadView | undefined;

  constructor(options: ClusterOptions) {
    this.blockTokens = options.blockTokens;
    this.prefillSPerToken = options.prefillSPerToken;
    this.sloS = options.sloS;
    this.#loadView = options.loadView;
  }

  /** Leading blocks of the prompt that the instance holds and that can hit. */
  hits(request: RoutedRequest, instance: Instance): number {
    const { keys, firstBlock, hitBlocksMax } = request;
    const { reported } = instance;
    if (reported === null || !request.reportable) return instance.cache.match(keys, firstBlock, hitBlocksMax);
    const held = reported.match(keys, firstBlock, hitBlocksMax);
    return reported.isWhole ? held : Math.max(held, instance.cache.match(keys, firstBlock, hitBlocksMax));
  }

  uncachedTokens(request: RoutedRequest, hitBlocks: number): number {
    return request.promptTokens - hitBlocks * this.blockTokens;
  }

  /** T_c: prefill time of what is not cached. */
  computeS(request: RoutedRequest, hitBlocks: number): number {
    return this.uncachedTokens(request, hitBlocks) * this.prefillSPerToken;
  }

  /** T_q: prefill time before a new request, as policies are told. */
  queueS(instance: Instance): number {
    return this.#loadView === undefined
      ? this.ledgerQueueS(instance)
      : this.#loadView.queueS(instance, this.nowS);
  }

  /** T_q by the router's ledger: what is left of the running prefill, what is dispatched behind it, what waits. */
  ledgerQueueS(instance: Instance): number {
    return (
      this.dispatchedS(instance) + (instance.waitingTokens + instance.foreignTokens) * this.prefillSPerToken
    );
  }

  /** The part of T_q that is with the engine. */
  dispatchedS(instance: Instance): number {
    const running = instance.dispatched.first;
    if (running === null) return 0;
    const runS = running.uncachedTokens * this.prefillSPerToken;
    // A prefill that takes longer than expected has nothing left, and no less.
    const doneS = Math.min(runS, this.nowS - instance.startedS);
    return instance.dispatchedTokens * this.prefillSPerToken - doneS;
  }

  isRoutable(instance: Instance): boolean {
    return instance.routable;
  }

  /** Ejecting stops when more than half are sick: the sick are then more likely well than the rest able to bear all. */
  updateRoutable(): void {
    const staying = this.instances.filter((instance) => !instance.draining);
    const healthy = staying.filter((instance) => instance.healthy);
    this.routable = 2 * healthy.length < staying.length ? staying : healthy;
    for (const instance of this.instances) instance.routable = false;
    for (const instance of this.routable) instance.routable = true;
  }
}
