import { DualPathError } from '../errors/index.js';
import { requireFinite, requireInteger, requireName } from './check.js';
import type { ReadLink } from './read-side.js';
import type { EngineCapacity, EngineLoad, EngineRole } from './types.js';

/** What a request holds on one engine. */
export interface Holding {
  readonly bufferBlocks: number;
  readonly hbmBlocks: number;
  /** Queued on the storage link of the engine's node. */
  readonly readBlocks: number;
  readonly requests: number;
  readonly tokens: number;
}

/** One engine's capacity and what is reserved of it. */
export interface EngineState {
  readonly capacity: EngineCapacity;
  readonly link: Readonly<ReadLink>;
  readonly bufferBlocks: number;
  readonly hbmBlocks: number;
  readonly unfinishedRequests: number;
  /** As `hitTokenWeight` counts them on a prefill engine. */
  readonly unfinishedTokens: number;
  readonly lost: boolean;
  /** Takes no new requests for now: it drains, or its leader is not there. */
  readonly closed: boolean;
  /** The engine's newest report. */
  readonly reported: EngineLoad | undefined;
}

type Mutable<T> = { -readonly [K in keyof T]: T[K] };

/** A node's storage link. `readQueueBlocks` is what is queued by the account and by the node's report. */
export interface LinkEntry extends Mutable<ReadLink> {
  readonly node: string;
  readonly engines: EngineEntry[];
  /** Reported beyond what the account knows of. */
  foreignBlocks: number;
}

/** Engines that fetch together: leaves [first, end) of their role. */
export interface GroupEntry {
  readonly name: string;
  readonly role: EngineRole;
  /** Position among the groups of its role. */
  index: number;
  engines: EngineEntry[];
  first: number;
  end: number;
}

export interface EngineEntry extends Mutable<Omit<EngineState, 'link'>> {
  readonly link: LinkEntry;
  /** Position among the engines of its role, by group; -1 once it is forgotten. */
  leaf: number;
  readonly group: GroupEntry;
  /** Reported beyond what the account knows of. */
  foreignRequests: number;
  foreignTokens: number;
  /** On the account of a PE, but not assigned yet, so that the engine cannot know of them. */
  placedRequests: number;
  placedTokens: number;
}

/** seq_e: requests unfinished on an engine, those of others included if it reports them. */
export function requestsOf(entry: EngineEntry): number {
  return entry.unfinishedRequests + entry.foreignRequests;
}

/** tok_e: their tokens. */
export function tokensOf(entry: EngineEntry): number {
  return entry.unfinishedTokens + entry.foreignTokens;
}

/** Whether an engine may be given requests. */
export function takesWork(entry: EngineEntry): boolean {
  return !entry.lost && !entry.closed;
}

/**
 * The exact central account of what is reserved on every engine and queued on every node's storage link:
 * reserved minus given back, no more than each engine's capacity and never negative. A mistake in the account
 * is an INTERNAL error, never a silent clamp.
 */
export class Ledger {
  readonly #engines = new Map<string, EngineEntry>();
  readonly #groups = new Map<string, GroupEntry>();
  readonly #byRole: Record<EngineRole, EngineEntry[]> = { prefill: [], decode: [] };
  readonly #live: Record<EngineRole, EngineEntry[]> = { prefill: [], decode: [] };
  readonly #links = new Map<string, LinkEntry>();

  /**
   * @param engines none, if they are to join later
   * @throws INVALID_ARGUMENT for impossible or contradictory capacities
   */
  constructor(engines: readonly EngineCapacity[]) {
    this.join(engines);
    for (const role of ['prefill', 'decode'] as const) {
      if (engines.length === 0 || this.#byRole[role].length > 0) continue;
      throw new DualPathError('INVALID_ARGUMENT', `there is no ${role} engine: give at least one`, { role });
    }
  }

  /**
   * More engines, or lost ones anew; what was lost and not replaced is forgotten. Every engine's leaf and every
   * group's range change.
   *
   * @throws INVALID_ARGUMENT for impossible or contradictory capacities; nothing has changed then
   */
  join(engines: readonly EngineCapacity[]): void {
    this.#check(engines);
    for (const entry of [...this.#engines.values()]) if (entry.lost) this.#forget(entry);
    for (const capacity of engines) {
      const { node, readRateBytesPerS, engine, group: name, role } = capacity;
      const link = this.#links.get(node) ?? newLink(node, readRateBytesPerS);
      this.#links.set(node, link);
      const group = this.#groups.get(name) ?? { ...noGroup, name, role, engines: [] };
      this.#groups.set(name, group);
      const entry = newEntry(capacity, link, group);
      link.engines.push(entry);
      group.engines.push(entry);
      this.#engines.set(engine, entry);
    }
    this.#order();
  }

  /** Every engine, in the order given at the start, lost ones included. */
  engines(): IterableIterator<EngineEntry> {
    return this.#engines.values();
  }

  /** Engines of a role by leaf, lost ones included. */
  leaves(role: EngineRole): readonly EngineEntry[] {
    return this.#byRole[role];
  }

  /** Engines of a role that are not lost. */
  live(role: EngineRole): readonly EngineEntry[] {
    return this.#live[role];
  }

  groups(): IterableIterator<GroupEntry> {
    return this.#groups.values();
  }

  /** @throws INVALID_ARGUMENT if there is no such group */
  group(name: string): GroupEntry {
    const group = this.#groups.get(name);
    if (group) return group;
    throw new DualPathError(
      'INVALID_ARGUMENT',
      `there is no group ${name}: name one of ${[...this.#groups.keys()].slice(0, 8).join(', ')}`,
      { group: name },
    );
  }

  /** @throws INVALID_ARGUMENT if there is no such engine */
  engine(name: string): EngineEntry {
    const entry = this.#engines.get(name);
    if (entry) return entry;
    throw new DualPathError(
      'INVALID_ARGUMENT',
      `there is no engine ${name}: name one of ${[...this.#engines.keys()].slice(0, 8).join(', ')}`,
      { engine: name },
    );
  }

  find(name: string): EngineEntry | undefined {
    return this.#engines.get(name);
  }

  /** The account of one more holding on an engine. */
  take(entry: EngineEntry, holding: Partial<Holding>): void {
    this.#change(entry, holding, 1);
  }

  /** The account of a holding given back. */
  give(entry: EngineEntry, holding: Partial<Holding>): void {
    this.#change(entry, holding, -1);
  }

  /** Takes an engine out of `live`; what is held there stays on the account until it is given back. */
  lose(entry: EngineEntry): void {
    entry.lost = true;
    const { role } = entry.capacity;
    this.#live[role] = this.#live[role].filter((other) => other !== entry);
  }

  /** Keeps a report if it is newer than the last; false if it is not. Throws INVALID_ARGUMENT for bad counts. */
  report(load: EngineLoad): boolean {
    const entry = this.engine(load.engine);
    checkLoad(load);
    if (entry.reported && load.sequence <= entry.reported.sequence) return false;
    entry.reported = { ...load };
    return true;
  }

  #check(engines: readonly EngineCapacity[]): void {
    const names = new Set<string>();
    const roles = new Map<string, EngineRole>();
    const rates = new Map<string, number>();
    for (const { capacity, lost } of this.#engines.values()) {
      if (lost) continue;
      names.add(capacity.engine);
      roles.set(capacity.group, capacity.role);
      rates.set(capacity.node, capacity.readRateBytesPerS);
    }
    for (const capacity of engines) {
      checkCapacity(capacity);
      const { engine, group, role, node, readRateBytesPerS: rate } = capacity;
      if (names.has(engine)) {
        refuse(capacity, 'its name is taken by an earlier engine: give every engine its own name');
      }
      if ((roles.get(group) ?? role) !== role) {
        refuse(capacity, `group ${group} has engines of the other role: make one group a role`);
      }
      if ((rates.get(node) ?? rate) !== rate) {
        refuse(
          capacity,
          `readRateBytesPerS is ${rate} but ${rates.get(node)} for an earlier engine of node ` +
            `${node}: a node has one storage link, give its engines the same rate`,
        );
      }
      names.add(engine);
      roles.set(group, role);
      rates.set(node, rate);
    }
  }

  #forget(entry: EngineEntry): void {
    const { link, group, capacity } = entry;
    entry.leaf = -1;
    this.#engines.delete(capacity.engine);
    link.engines.splice(link.engines.indexOf(entry), 1);
    if (link.engines.length === 0) this.#links.delete(link.node);
    group.engines.splice(group.engines.indexOf(entry), 1);
    if (group.engines.length === 0) this.#groups.delete(group.name);
  }

  /** Engines of a group lie side by side. */
  #order(): void {
    const indexes: Record<EngineRole, number> = { prefill: 0, decode: 0 };
    this.#byRole.prefill = [];
    this.#byRole.decode = [];
    for (const group of this.#groups.values()) {
      const leaves = this.#byRole[group.role];
      group.index = indexes[group.role]++;
      group.first = leaves.length;
      group.end = leaves.length + group.engines.length;
      for (const entry of group.engines) {
        entry.leaf = leaves.length;
        leaves.push(entry);
      }
    }
    for (const role of ['prefill', 'decode'] as const) {
      this.#live[role] = this.#byRole[role].filter(({ lost }) => !lost);
    }
  }

  #change(entry: EngineEntry, holding: Partial<Holding>, sign: 1 | -1): void {
    const { bufferBlocks = 0, hbmBlocks = 0, readBlocks = 0, requests = 0, tokens = 0 } = holding;
    const { link, capacity } = entry;
    const buffer = entry.bufferBlocks + sign * bufferBlocks;
    const hbm = entry.hbmBlocks + sign * hbmBlocks;
    const unfinishedRequests = entry.unfinishedRequests + sign * requests;
    const unfinishedTokens = entry.unfinishedTokens + sign * tokens;
    const readQueueBlocks = link.readQueueBlocks + sign * readBlocks;
    if (
      buffer > capacity.bufferBlocks ||
      hbm > capacity.hbmBlocks ||
      Math.min(buffer, hbm, unfinishedRequests, unfinishedTokens, readQueueBlocks - link.foreignBlocks) < 0
    ) {
      throw new DualPathError(
        'INTERNAL',
        `the account of engine ${capacity.engine} would leave its bounds: please report this`,
        { engine: capacity.engine, buffer, hbm, unfinishedRequests, unfinishedTokens, readQueueBlocks },
      );
    }
    entry.bufferBlocks = buffer;
    entry.hbmBlocks = hbm;
    entry.unfinishedRequests = unfinishedRequests;
    entry.unfinishedTokens = unfinishedTokens;
    link.readQueueBlocks = readQueueBlocks;
  }
}

function newLink(node: string, readRateBytesPerS: number): LinkEntry {
  return { node, engines: [], readQueueBlocks: 0, readRateBytesPerS, foreignBlocks: 0 };
}

function newEntry(capacity: EngineCapacity, link: LinkEntry, group: GroupEntry): EngineEntry {
  return {
    capacity: { ...capacity },
    link,
    leaf: -1,
    group,
    bufferBlocks: 0,
    hbmBlocks: 0,
    unfinishedRequests: 0,
    unfinishedTokens: 0,
    foreignRequests: 0,
    foreignTokens: 0,
    placedRequests: 0,
    placedTokens: 0,
    lost: false,
    closed: false,
    reported: undefined,
  };
}

const noGroup: GroupEntry = { name: '', role: 'prefill', index: -1, engines: [], first: 0, end: 0 };

function checkLoad({ engine, nodeRead, lastAdmission, ...counts }: EngineLoad): void {
  const of = `of engine ${engine}'s load`;
  for (const [name, value] of Object.entries(counts)) {
    requireInteger(`${name} ${of}`, value, 0, 'report what the engine counts');
  }
  if (lastAdmission !== undefined) {
    requireInteger(
      `lastAdmission ${of}`,
      lastAdmission,
      0,
      'report the newest admission received, 0 for none',
    );
  }
  if (nodeRead === undefined) return;
  requireFinite(`nodeRead.bytes ${of}`, nodeRead.bytes, 'not negative', 'report the bytes read');
  requireFinite(`nodeRead.busyS ${of}`, nodeRead.busyS, 'not negative', 'report how long the link was busy');
}

function checkCapacity(capacity: EngineCapacity): void {
  requireName('engine', capacity.engine);
  const of = `of engine ${capacity.engine}`;
  requireName(`node ${of}`, capacity.node);
  requireName(`group ${of}`, capacity.group);
  if (capacity.role !== 'prefill' && capacity.role !== 'decode') {
    refuse(capacity, `role is ${String(capacity.role)}: use 'prefill' or 'decode'`);
  }
  requireInteger(`bufferBlocks ${of}`, capacity.bufferBlocks, 0, 'give the size of its buffer in blocks');
  requireInteger(`hbmBlocks ${of}`, capacity.hbmBlocks, 0, 'give the HBM for KV-Cache in blocks');
  requireFinite(
    `readRateBytesPerS ${of}`,
    capacity.readRateBytesPerS,
    'positive',
    "give the rate of the node's storage link",
  );
}

function refuse(capacity: EngineCapacity, why: string): never {
  throw new DualPathError('INVALID_ARGUMENT', `engine ${capacity.engine}: ${why}`, {
    engine: capacity.engine,
  });
}
