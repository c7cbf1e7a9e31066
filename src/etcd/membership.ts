/** Several schedulers, one of which leads: whoever put its address into etcd, as long as its lease there lives. */
import { setTimeout as sleep } from 'node:timers/promises';
import { DualPathError } from '../errors/index.js';
import { nextEpoch, type Leadership, type Membership } from '../serve/index.js';
import { EtcdClient, type KeyValue } from './client.js';
import type { EtcdLocation } from './url.js';

export interface EtcdMembershipOptions extends EtcdLocation {
  /** Where clients and engines reach this scheduler when it leads. */
  readonly advertise: string;
  /** A leader that etcd has not heard for so long leads no more; whole seconds, etcd's least is 2; default 5. */
  readonly ttlS?: number;
  /** Of what goes wrong and is tried again. */
  readonly onNotice?: (error: Error) => void;
}

/** Share of the lease after which a leader that could not renew it stops: the rest is for clocks and the stop itself. */
const ownShare = 0.7;
/** How often those that wait look. */
const pollMs = 400;

export class EtcdMembership implements Membership {
  readonly #options: EtcdMembershipOptions;
  readonly #etcd: EtcdClient;
  readonly #ttlS: number;
  readonly #leaderKey: Buffer;
  readonly #epochKey: Buffer;
  #leader: string | undefined;

  constructor(options: EtcdMembershipOptions) {
    const { endpoints, name, ttlS = 5 } = options;
    this.#options = options;
    this.#ttlS = ttlS;
    this.#etcd = new EtcdClient(endpoints, (ttlS * 1000) / 5);
    this.#leaderKey = Buffer.from(`/dualpath/${name}/leader`);
    this.#epochKey = Buffer.from(`/dualpath/${name}/epoch`);
  }

  leader(): string | undefined {
    return this.#leader;
  }

  async lead(signal: AbortSignal): Promise<Leadership> {
    for (;;) {
      signal.throwIfAborted();
      try {
        const [leader] = await this.#read(this.#leaderKey);
        this.#leader = leader && textOf(leader);
        const leadership = leader === undefined ? await this.#campaign() : undefined;
        if (leadership !== undefined) return leadership;
      } catch (error) {
        this.#leader = undefined;
        this.#options.onNotice?.(error as Error);
      }
      await sleep(pollMs * (0.5 + Math.random()), undefined, { signal });
    }
  }

  async #read(...keys: Buffer[]): Promise<(KeyValue | undefined)[]> {
    const { kvs } = await this.#etcd.txn({ success: keys.map((key) => ({ requestRange: { key } })) });
    return kvs;
  }

  /** Undefined when another was quicker. */
  async #campaign(): Promise<Leadership | undefined> {
    const grantedMs = performance.now();
    const lease = await this.#etcd.grant(this.#ttlS);
    try {
      const value = Buffer.from(this.#options.advertise);
      await this.#etcd.txn({
        compare: [{ target: 'CREATE', key: this.#leaderKey, createRevision: '0' }],
        success: [{ requestPut: { key: this.#leaderKey, value, lease } }],
      });
      const epoch = await this.#nextEpoch(lease);
      if (epoch !== undefined) return this.#hold(lease, epoch, grantedMs);
    } catch (error) {
      await this.#revoke(lease);
      throw error;
    }
    await this.#revoke(lease);
    return undefined;
  }

  /** Written down before it is used, while the key is this scheduler's; undefined when it is not. */
  async #nextEpoch(lease: string): Promise<number | undefined> {
    for (;;) {
      // Who holds the key is read, not concluded from the answer: an answer may have been lost.
      const [leader, epochKv] = await this.#read(this.#leaderKey, this.#epochKey);
      if (leader?.lease !== lease) return undefined;
      const epoch = nextEpoch(epochKv === undefined ? 0 : Number(textOf(epochKv)));
      if (!Number.isSafeInteger(epoch)) {
        throw new DualPathError('INTERNAL', `etcd has '${textOf(epochKv!)}' for an epoch; remove the key`);
      }
      const { succeeded } = await this.#etcd.txn({
        compare: [
          { target: 'CREATE', key: this.#leaderKey, createRevision: leader.createRevision! },
          { target: 'MOD', key: this.#epochKey, modRevision: epochKv?.modRevision ?? '0' },
        ],
        success: [{ requestPut: { key: this.#epochKey, value: Buffer.from(String(epoch)) } }],
      });
      if (succeeded) return epoch;
    }
  }

  #hold(lease: string, epoch: number, grantedMs: number): Leadership {
    const lost = new AbortController();
    const released = new AbortController();
    this.#leader = this.#options.advertise;
    void this.#renew(lease, grantedMs, lost, released.signal);
    return {
      epoch,
      lost: lost.signal,
      release: async () => {
        released.abort();
        lost.abort();
        this.#leader = undefined;
        await this.#revoke(lease);
      },
    };
  }

  /** Counted from when a renewal was sent: etcd's own count begins later. */
  async #renew(
    lease: string,
    grantedMs: number,
    lost: AbortController,
    released: AbortSignal,
  ): Promise<void> {
    const ownMs = this.#ttlS * 1000 * ownShare;
    let renewedMs = grantedMs;
    let limit: NodeJS.Timeout | undefined;
    const watch = (): void => {
      clearTimeout(limit);
      limit = setTimeout(() => lost.abort(), renewedMs + ownMs - performance.now());
    };
    watch();
    while (!lost.signal.aborted) {
      await sleep((this.#ttlS * 1000) / 5, undefined, { signal: released }).catch(() => undefined);
      if (released.aborted || lost.signal.aborted) break;
      try {
        const sentMs = performance.now();
        const lives = await this.#etcd.keepAlive(lease);
        const [leader] = await this.#read(this.#leaderKey);
        if (!lives || leader?.lease !== lease) lost.abort();
        renewedMs = sentMs;
        watch();
      } catch (error) {
        this.#options.onNotice?.(error as Error);
      }
    }
    clearTimeout(limit);
  }

  /** It ends by itself, too. */
  async #revoke(lease: string): Promise<void> {
    await this.#etcd.revoke(lease).catch(() => undefined);
  }

  close(): Promise<void> {
    this.#etcd.close();
    return Promise.resolve();
  }
}

function textOf({ value = new Uint8Array() }: KeyValue): string {
  return Buffer.from(value).toString('utf8');
}
