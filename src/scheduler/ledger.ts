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
  readonly unfinishedTokens: number;
  readonly lost: boolean;
  /** The engine's newest report; kept for observation, never used to choose. */
  readonly reported: EngineLoad | undefined;
}

type Mutable<T> = { -readonly [K in keyof T]: T[K] };

interface EngineEntry extends Mutable<Omit<EngineState, 'link'>> {
  readonly link: Mutable<ReadLink>;
}

/**
 * The exact central account of what is reserved on every engine and queued on every node's storage link:
 * reserved minus given back, no more than each engine's capacity and never negative. A mistake in the account
 * is an INTERNAL error, never a silent clamp.
 */
export class Ledger {
  readonly #engines = new Map<string, EngineEntry>();
  readonly #byRole: Record<EngineRole, EngineEntry[]> = { prefill: [], decode: [] };

  /** @throws INVALID_ARGUMENT for impossible or contradictory capacities */
  constructor(engines: readonly EngineCapacity[]) {
    const links = new Map<string, Mutable<ReadLink>>();
    const groups = new Map<string, EngineRole>();
    for (const capacity of engines) {
      checkCapacity(capacity);
      if (this.#engines.has(capacity.engine)) {
        refuse(capacity, 'its name is taken by an earlier engine: give every engine its own name');
      }
      if ((groups.get(capacity.group) ?? capacity.role) !== capacity.role) {
        refuse(capacity, `group ${capacity.group} has engines of the other role: make one group a role`);
      }
      groups.set(capacity.group, capacity.role);
      const rate = capacity.readRateBytesPerS;
      const link = links.get(capacity.node) ?? { readQueueBlocks: 0, readRateBytesPerS: rate };
      if (link.readRateBytesPerS !== rate) {
        refuse(
          capacity,
          `readRateBytesPerS is ${rate} but ${link.readRateBytesPerS} for an earlier engine of node ` +
            `${capacity.node}: a node has one storage link, give its engines the same rate`,
        );
      }
      links.set(capacity.node, link);
      const entry = newEntry(capacity, link);
      this.#engines.set(capacity.engine, entry);
      this.#byRole[capacity.role].push(entry);
    }
    for (const role of ['prefill', 'decode'] as const) {
      if (this.#byRole[role].length > 0) continue;
      throw new DualPathError('INVALID_ARGUMENT', `there is no ${role} engine: give at least one`, { role });
    }
  }

  /** Every engine, in the order given at the start, lost ones included. */
  engines(): IterableIterator<EngineState> {
    return this.#engines.values();
  }

  /** Engines of a role that are not lost. */
  live(role: EngineRole): readonly EngineState[] {
    return this.#byRole[role];
  }

  /** @throws INVALID_ARGUMENT if there is no such engine */
  engine(name: string): EngineState {
    return this.#entry(name);
  }

  /** The account of one more holding on an engine. */
  take(engine: string, holding: Partial<Holding>): void {
    this.#change(engine, holding, 1);
  }

  /** The account of a holding given back. */
  give(engine: string, holding: Partial<Holding>): void {
    this.#change(engine, holding, -1);
  }

  /** Takes an engine out of `live`; what is held there stays on the account until it is given back. */
  lose(engine: string): void {
    const entry = this.#entry(engine);
    entry.lost = true;
    const { role } = entry.capacity;
    this.#byRole[role] = this.#byRole[role].filter((other) => other !== entry);
  }

  /** Keeps a report if it is newer than the last; false if it is not. Throws INVALID_ARGUMENT for bad counts. */
  report(load: EngineLoad): boolean {
    const entry = this.#entry(load.engine);
    const { engine, ...numbers } = load;
    for (const [name, value] of Object.entries(numbers)) {
      requireInteger(`${name} of engine ${engine}'s load`, value, 0, 'report what the engine counts');
    }
    if (entry.reported && load.sequence <= entry.reported.sequence) return false;
    entry.reported = { ...load };
    return true;
  }

  #entry(name: string): EngineEntry {
    const entry = this.#engines.get(name);
    if (entry) return entry;
    throw new DualPathError(
      'INVALID_ARGUMENT',
      `there is no engine ${name}: name one of ${[...this.#engines.keys()].slice(0, 8).join(', ')}`,
      { engine: name },
    );
  }

  #change(engine: string, holding: Partial<Holding>, sign: 1 | -1): void {
    const entry = this.#entry(engine);
    const { bufferBlocks = 0, hbmBlocks = 0, readBlocks = 0, requests = 0, tokens = 0 } = holding;
    const next = {
      bufferBlocks: entry.bufferBlocks + sign * bufferBlocks,
      hbmBlocks: entry.hbmBlocks + sign * hbmBlocks,
      unfinishedRequests: entry.unfinishedRequests + sign * requests,
      unfinishedTokens: entry.unfinishedTokens + sign * tokens,
    };
    const readQueueBlocks = entry.link.readQueueBlocks + sign * readBlocks;
    if (
      next.bufferBlocks > entry.capacity.bufferBlocks ||
      next.hbmBlocks > entry.capacity.hbmBlocks ||
      Math.min(readQueueBlocks, ...Object.values(next)) < 0
    ) {
      throw new DualPathError(
        'INTERNAL',
        `the account of engine ${engine} would leave its bounds: please report this`,
        { engine, ...next, readQueueBlocks },
      );
    }
    Object.assign(entry, next);
    entry.link.readQueueBlocks = readQueueBlocks;
  }
}

function newEntry(capacity: EngineCapacity, link: Mutable<ReadLink>): EngineEntry {
  return {
    capacity: { ...capacity },
    link,
    bufferBlocks: 0,
    hbmBlocks: 0,
    unfinishedRequests: 0,
    unfinishedTokens: 0,
    lost: false,
    reported: undefined,
  };
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
