import { request as fetchFrom } from 'undici';
import { z } from 'zod';
import type { Routing } from './routing.js';

const keysMax = 8192;

/** What a router tells the others: which prefixes it keys deeper, and what it has put where. */
export const peerMessage = z.object({
  router: z.string().min(1).max(128),
  /** By model: extended prefixes, two u32 each. */
  extended: z.record(z.string(), z.array(z.number().int().min(0).max(0xffffffff)).max(keysMax)),
  /** Uncached tokens by target. */
  pending: z.record(z.string(), z.number().min(0)),
});
export type PeerMessage = z.infer<typeof peerMessage>;

/** What was said longer ago counts no more. */
const staleMs = 5000;
const everyMs = 500;
const peersMax = 64;

/** Routers side by side: the same secret gives them the same keys and rings; the rest they tell each other. */
export class Peers {
  readonly #routing: Routing;
  readonly #urls: readonly string[];
  readonly #token: string | null;
  readonly #name: string;
  readonly #heard = new Map<string, { readonly message: PeerMessage; readonly atMs: number }>();
  readonly #timer: NodeJS.Timeout;

  constructor(routing: Routing, urls: readonly string[], token: string | null, name: string) {
    this.#routing = routing;
    this.#urls = urls;
    this.#token = token;
    this.#name = name;
    this.#timer = setInterval(() => this.#exchange(), everyMs);
  }

  get heard(): readonly string[] {
    return [...this.#heard.keys()];
  }

  take(message: PeerMessage): void {
    if (message.router === this.#name) return;
    if (!this.#heard.has(message.router) && this.#heard.size >= peersMax) return;
    this.#heard.set(message.router, { message, atMs: performance.now() });
    this.#apply();
  }

  close(): void {
    clearInterval(this.#timer);
  }

  #exchange(): void {
    const nowMs = performance.now();
    let changed = false;
    for (const [name, { atMs }] of this.#heard) {
      if (nowMs - atMs > staleMs) changed = this.#heard.delete(name) || changed;
    }
    if (changed) this.#apply();
    if (this.#urls.length === 0) return;
    const body = JSON.stringify(this.#own());
    for (const url of this.#urls) void this.#send(url, body);
  }

  #own(): PeerMessage {
    const extended: PeerMessage['extended'] = {};
    for (const [model, { router }] of this.#routing.groups) {
      const keys = router.policy.extendedKeys?.();
      if (keys !== undefined && keys.length > 0) extended[model] = [...keys];
    }
    const pending: PeerMessage['pending'] = {};
    for (const [name, target] of this.#routing.targets) pending[name] = this.#routing.pendingTokens(target);
    return { router: this.#name, extended, pending };
  }

  async #send(url: string, body: string): Promise<void> {
    try {
      const answer = await fetchFrom(`${url}/peers`, {
        method: 'POST',
        headers: {
          'content-type': 'application/json',
          ...(this.#token === null ? {} : { authorization: `Bearer ${this.#token}` }),
        },
        body,
        signal: AbortSignal.timeout(2 * everyMs),
      });
      await answer.body.dump();
    } catch {
      // A peer that is away is told again in half a second.
    }
  }

  #apply(): void {
    const messages = [...this.#heard.values()].map(({ message }) => message);
    for (const [model, { router }] of this.#routing.groups) {
      router.policy.adoptExtended?.(
        Uint32Array.from(messages.flatMap(({ extended }) => extended[model] ?? [])),
      );
    }
    for (const [name, target] of this.#routing.targets) {
      target.peerTokens = messages.reduce((sum, { pending }) => sum + (pending[name] ?? 0), 0);
    }
  }
}
