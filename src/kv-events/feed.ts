import type { BlockView } from './block-view.js';
import { Sequence } from './sequence.js';
import { loadZmq, Subscription, type Endpoints } from './subscriber.js';
import { decodeBatch, type KvEvent } from './wire.js';

/** Who counts what comes. */
export interface FeedObserver {
  event(type: KvEvent['type']): void;
  gap(isFilled: boolean): void;
  malformed(): void;
  /** Nothing is cached there any more: cleared, or another process. */
  cacheLost(): void;
}

/** The events of one engine, for the views of its models. */
export class KvFeed {
  readonly #views = new Map<string, BlockView>();
  readonly #observer: FeedObserver;
  readonly #sequence: Sequence;
  readonly #subscription: Subscription;
  readonly #ended: Promise<void>;

  /** @throws INVALID_ARGUMENT without the package zeromq */
  static async open(endpoints: Endpoints, observer: FeedObserver): Promise<KvFeed> {
    return new KvFeed(await loadZmq(), endpoints, observer);
  }

  private constructor(
    zmq: Awaited<ReturnType<typeof loadZmq>>,
    endpoints: Endpoints,
    observer: FeedObserver,
  ) {
    this.#observer = observer;
    this.#subscription = new Subscription(zmq, endpoints, () => this.#sequence.forget());
    this.#sequence = new Sequence(
      {
        apply: (payload) => this.#apply(payload),
        reset: (isWhole) => this.#each((view) => view.reset(isWhole)),
        setWhole: (isWhole) => this.#each((view) => view.setWhole(isWhole)),
        restarted: () => observer.cacheLost(),
        gap: (isFilled) => observer.gap(isFilled),
      },
      endpoints.replay === undefined ? null : (from) => this.#subscription.replay(from),
    );
    this.#ended = this.#run();
  }

  /** What was before is asked for, for this view as for the others. */
  addView(model: string, view: BlockView): void {
    this.#views.set(model, view);
    this.#sequence.forget();
  }

  removeView(model: string): void {
    this.#views.delete(model);
  }

  get views(): ReadonlyMap<string, BlockView> {
    return this.#views;
  }

  async close(): Promise<void> {
    this.#subscription.close();
    await this.#ended;
  }

  async #run(): Promise<void> {
    try {
      for await (const batch of this.#subscription.batches()) {
        if (batch === null) this.#observer.malformed();
        else await this.#sequence.take(batch);
      }
    } catch {
      // The socket was closed while it was read.
    }
    this.#each((view) => view.reset(false));
  }

  #apply(payload: Uint8Array): boolean {
    let events: KvEvent[];
    try {
      events = decodeBatch(payload);
    } catch {
      this.#observer.malformed();
      return false;
    }
    for (const event of events) {
      this.#observer.event(event.type);
      this.#each((view) => view.apply(event));
      if (event.type === 'cleared') this.#observer.cacheLost();
    }
    return true;
  }

  #each(body: (view: BlockView) => void): void {
    for (const view of this.#views.values()) body(view);
  }
}
