import { DualPathError } from '../errors/index.js';
import { SeededRandom } from './random.js';
import type { RequestEntry } from './request-entry.js';
import { TournamentTree } from './tournament-tree.js';

const COMPACT_MIN_ENTRIES = 64;

/** A tenant and its share of prefill work while others wait, in proportion to the weights. */
export interface TenantShare {
  readonly tenant: string;
  readonly weight: number;
}

interface Tenant {
  readonly index: number;
  readonly weight: number;
  /** A binary heap by key and sequence. Entries that wait no more stay until they come up or are swept. */
  heap: RequestEntry[];
  waiting: number;
  /** Work given, over the weight; start-time fair queueing (Goyal, Vin, Cheng, SIGCOMM 1996). */
  virtual: number;
}

/**
 * The bounded queue of requests without engines. Each tenant's are ordered by their keys, equals by submission;
 * without tenants there is one order. Among tenants that wait, the one that has been given least for its weight
 * comes first; who was idle does not save up. Push and take cost O(log n).
 */
export class WaitingQueue {
  readonly #limit: number;
  readonly #tenants = new Map<string, Tenant>();
  readonly #list: Tenant[] = [];
  /** Tenants that wait, by virtual time. */
  readonly #order: TournamentTree;
  readonly #shared: boolean;
  #size = 0;
  #virtual = 0;

  constructor(limit: number, shares: readonly TenantShare[] = [], seed = 0) {
    this.#limit = limit;
    this.#shared = shares.length > 0;
    const all = this.#shared ? shares : [{ tenant: '', weight: 1 }];
    for (const { tenant, weight } of all) {
      const entry: Tenant = { index: this.#list.length, weight, heap: [], waiting: 0, virtual: 0 };
      this.#tenants.set(tenant, entry);
      this.#list.push(entry);
    }
    this.#order = new TournamentTree(all.length, 1, 0, new SeededRandom(seed));
  }

  get size(): number {
    return this.#size;
  }

  /**
   * @param others requests that count towards the limit and are not in the queue
   * @throws CAPACITY_EXHAUSTED when the queue is full, INVALID_ARGUMENT for a tenant without a share
   */
  check(request: string, tenant: string | undefined, others = 0): void {
    const waiting = this.#size + others;
    if (waiting >= this.#limit) {
      throw new DualPathError(
        'CAPACITY_EXHAUSTED',
        `request ${request} cannot wait: ${waiting} requests already do, the limit is ` +
          `${this.#limit}; submit it again later, or raise maxWaiting`,
        { request, waiting, limit: this.#limit },
      );
    }
    if (!this.#shared || this.#tenants.has(tenant ?? '')) return;
    throw new DualPathError(
      'INVALID_ARGUMENT',
      `tenant ${tenant ?? '(none)'} of request ${request} has no share: name one of ` +
        `${[...this.#tenants.keys()].slice(0, 8).join(', ')}, or give it a share in tenants`,
      { request, tenant: tenant ?? null },
    );
  }

  /** Also takes back a request whose engine was lost before it was assigned, over the limit if need be. */
  push(entry: RequestEntry): void {
    const tenant = this.#tenantOf(entry);
    if (tenant.waiting === 0) tenant.virtual = Math.max(tenant.virtual, this.#virtual);
    siftUp(tenant.heap, entry);
    this.#count(tenant, 1);
  }

  /** The request that comes next. */
  head(): RequestEntry | undefined {
    const index = this.#order.least(0);
    return index < 0 ? undefined : this.#headOf(this.#list[index]!);
  }

  /** Takes the head out: it has been given its engine. */
  take(): RequestEntry | undefined {
    const index = this.#order.least(0);
    if (index < 0) return undefined;
    const tenant = this.#list[index]!;
    const entry = this.#headOf(tenant)!;
    removeTop(tenant.heap);
    this.#virtual = tenant.virtual;
    tenant.virtual += Math.max(1, entry.prefillTokens) / tenant.weight;
    this.#count(tenant, -1);
    return entry;
  }

  /** Takes note that a request that waited has ended: its state is no longer 'waiting'. */
  removed(entry: RequestEntry): void {
    const tenant = this.#tenantOf(entry);
    this.#count(tenant, -1);
    if (tenant.heap.length < COMPACT_MIN_ENTRIES || tenant.heap.length < 2 * tenant.waiting) return;
    const waiting = tenant.heap.filter(({ state }) => state === 'waiting').sort(compare);
    tenant.heap = waiting; // a sorted array is a heap
  }

  /** Waiting requests, tenant by tenant, next first. */
  *[Symbol.iterator](): IterableIterator<RequestEntry> {
    for (const { heap } of this.#list) {
      yield* heap.filter(({ state }) => state === 'waiting').sort(compare);
    }
  }

  #tenantOf({ description }: RequestEntry): Tenant {
    return this.#tenants.get(this.#shared ? (description.tenant ?? '') : '')!;
  }

  #headOf({ heap }: Tenant): RequestEntry | undefined {
    while (heap.length > 0 && heap[0]!.state !== 'waiting') removeTop(heap);
    return heap[0];
  }

  #count(tenant: Tenant, change: 1 | -1): void {
    tenant.waiting += change;
    this.#size += change;
    this.#order.setValue(tenant.index, 0, tenant.waiting === 0 ? Infinity : tenant.virtual);
    this.#order.update(tenant.index);
  }
}

function compare(a: RequestEntry, b: RequestEntry): number {
  return a.key - b.key || a.sequence - b.sequence;
}

function siftUp(heap: RequestEntry[], entry: RequestEntry): void {
  let place = heap.length;
  heap.push(entry);
  while (place > 0) {
    const parent = (place - 1) >> 1;
    if (compare(heap[parent]!, entry) <= 0) break;
    heap[place] = heap[parent]!;
    place = parent;
  }
  heap[place] = entry;
}

function removeTop(heap: RequestEntry[]): void {
  const last = heap.pop();
  if (last === undefined || heap.length === 0) return;
  let place = 0;
  for (;;) {
    let child = 2 * place + 1;
    if (child >= heap.length) break;
    if (child + 1 < heap.length && compare(heap[child + 1]!, heap[child]!) < 0) child++;
    if (compare(last, heap[child]!) <= 0) break;
    heap[place] = heap[child]!;
    place = child;
  }
  heap[place] = last;
}
