import { DualPathError } from '../errors/index.js';
import type { BlockView, Endpoints, FeedObserver, KeyChain, KvFeed } from '../kv-events/index.js';
import { PromptKeys } from '../openai/index.js';
import type { ProxyMetrics } from './metrics.js';
import type { KvEventsConfig, ProxyOptions, ReplicaConfig } from './options.js';
import type { Target } from './target.js';

/** Blocks of an engine that are remembered for one model: about 0.3 KB each. */
const blocksMax = 1 << 18;

interface Entry {
  feed: KvFeed | null;
  closed: boolean;
}

/** Follows the KV events of the replicas that publish them, and tells the routers what is cached where. */
export class KvEvents {
  readonly #options: ProxyOptions;
  readonly #metrics: ProxyMetrics;
  readonly #note: (message: string) => void;
  readonly #chain: KeyChain;
  readonly #entries = new Map<Target, Entry>();

  constructor(options: ProxyOptions, metrics: ProxyMetrics, note: (message: string) => void) {
    this.#options = options;
    this.#metrics = metrics;
    this.#note = note;
    this.#chain = new PromptKeys(options);
    metrics.gauge('kv_event_blocks', 'Blocks by KV events', ['target', 'model'], (set) => {
      this.#eachView((view, labels) => set(labels, view.size));
    });
    metrics.gauge('kv_event_whole', '1: all that is cached is known', ['target', 'model'], (set) => {
      this.#eachView((view, labels) => set(labels, view.held.isWhole ? 1 : 0));
    });
  }

  /**
   * An engine shares its cache among all who ask it, and its events do not say whose a block is: told of them, the router
   * would let one tenant's prompts be routed by what another has sent.
   * @throws INVALID_ARGUMENT
   */
  check(config: ReplicaConfig): void {
    if (config.kvEvents === undefined || this.#options.tenants === null) return;
    throw new DualPathError(
      'INVALID_ARGUMENT',
      `${config.url} has KV events, which do not say whose a block is: leave kv_events out, or run without tenants`,
      { replica: config.url },
    );
  }

  /** The models of a target have become known, or have changed. */
  async follow(target: Target): Promise<void> {
    const { kvEvents } = target.replica.config;
    if (kvEvents === undefined) return;
    let entry = this.#entries.get(target);
    if (entry === undefined) {
      entry = { feed: null, closed: false };
      this.#entries.set(target, entry);
      try {
        await this.#open(target, entry, endpointsOf(kvEvents, target.rank ?? 0));
      } catch (error) {
        this.#note(
          `no KV events of ${target.name}: ${error instanceof Error ? error.message : String(error)}`,
        );
      }
    }
    if (entry.feed !== null && !entry.closed) await this.#addViews(target, entry.feed);
  }

  async leave(target: Target): Promise<void> {
    const entry = this.#entries.get(target);
    if (entry === undefined) return;
    this.#entries.delete(target);
    entry.closed = true;
    await entry.feed?.close();
  }

  async close(): Promise<void> {
    await Promise.all([...this.#entries.keys()].map((target) => this.leave(target)));
  }

  async #open(target: Target, entry: Entry, endpoints: Endpoints): Promise<void> {
    const { KvFeed } = await import('../kv-events/index.js');
    const feed = await KvFeed.open(endpoints, this.#observer(target));
    if (entry.closed) await feed.close();
    else entry.feed = feed;
  }

  async #addViews(target: Target, feed: KvFeed): Promise<void> {
    const { BlockView } = await import('../kv-events/index.js');
    const { accounts, replica } = target;
    for (const model of [...feed.views.keys()]) if (!accounts.has(model)) feed.removeView(model);
    for (const [model, { router }] of accounts) {
      // What an adapter has cached is told by its name in the events, and is left out there.
      if (feed.views.has(model) || replica.adapters.has(model)) continue;
      const { blockTokens } = this.#options;
      const view = new BlockView({ chain: this.#chain, model, blockTokens, blocksMax });
      feed.addView(model, view);
      router.reportBlocks(target.name, view.held);
    }
  }

  #observer(target: Target): FeedObserver {
    const { kvEvents, kvEventGaps, kvEventsMalformed } = this.#metrics;
    return {
      event: (type) => kvEvents.inc({ type }),
      gap: (isFilled) => kvEventGaps.inc({ outcome: isFilled ? 'replayed' : 'lost' }),
      malformed: () => kvEventsMalformed.inc(),
      cacheLost: () => {
        for (const { router } of target.accounts.values()) router.cacheLost(target.name);
      },
    };
  }

  #eachView(body: (view: BlockView, labels: { target: string; model: string }) => void): void {
    for (const [target, { feed }] of this.#entries) {
      for (const [model, view] of feed?.views ?? []) body(view, { target: target.name, model });
    }
  }
}

/** Of a data-parallel rank: as vLLM does it, each has the port behind that of the rank before it. */
function endpointsOf({ endpoint, replay, topic }: KvEventsConfig, rank: number): Endpoints {
  const ofRank = (address: string): string =>
    address.replace(/:(\d+)$/, (_, port: string) => `:${Number(port) + rank}`);
  return { endpoint: ofRank(endpoint), replay: replay === undefined ? undefined : ofRank(replay), topic };
}
