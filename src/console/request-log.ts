/** What happened to each of the latest requests, for the page that shows one. */
import type { Assignment } from '../scheduler/index.js';

/** An event of the lease ledger, as far as a page shows it; every event of it fits. */
export interface WatchedEvent {
  readonly atS: number;
  readonly kind: string;
  readonly request?: string;
  readonly assignment?: Assignment;
  readonly stage?: string;
  readonly first?: number;
  readonly count?: number;
  readonly attempt?: number;
  readonly attempts?: number;
  readonly waitedS?: number;
  readonly ranS?: number;
  readonly error?: Error | undefined;
}

export interface TimelineEntry {
  readonly atS: number;
  readonly kind: string;
  readonly detail: string;
}

export interface RequestPath {
  readonly prefillEngine: string;
  readonly decodeEngine: string;
  readonly side: string;
  readonly prefillReadBlocks: number;
  readonly decodeReadBlocks: number;
  readonly promptBlocks: number;
}

export interface RequestHistory {
  readonly request: string;
  readonly path: RequestPath | null;
  readonly timeline: readonly TimelineEntry[];
  /** Entries left out of a very long timeline. */
  readonly omitted: number;
}

interface Entry {
  path: RequestPath | null;
  readonly timeline: TimelineEntry[];
  omitted: number;
}

const maxEntries = 64;

/** Keeps the requests that were heard of last; one event costs one entry. */
export class RequestLog {
  readonly #maxRequests: number;
  readonly #requests = new Map<string, Entry>();

  constructor({ maxRequests = 4096 }: { readonly maxRequests?: number } = {}) {
    this.#maxRequests = maxRequests;
  }

  observe(event: WatchedEvent): void {
    if (event.request === undefined) return;
    const entry = this.#entry(event.request);
    if (event.assignment !== undefined) entry.path = pathOf(event.assignment);
    const last = entry.timeline.at(-1);
    // Tokens come one by one: a run of them is one entry, at the time of its first.
    if (event.kind === 'tokens' && last?.kind === 'tokens') return;
    if (entry.timeline.length >= maxEntries) entry.omitted++;
    else entry.timeline.push({ atS: event.atS, kind: event.kind, detail: detailOf(event) });
  }

  #entry(request: string): Entry {
    const known = this.#requests.get(request);
    if (known !== undefined) return known;
    const entry: Entry = { path: null, timeline: [], omitted: 0 };
    this.#requests.set(request, entry);
    if (this.#requests.size > this.#maxRequests) {
      for (const oldest of this.#requests.keys()) {
        this.#requests.delete(oldest);
        break;
      }
    }
    return entry;
  }

  find(request: string): RequestHistory | undefined {
    const entry = this.#requests.get(request);
    return entry && { request, path: entry.path, timeline: entry.timeline, omitted: entry.omitted };
  }

  /** Names, the latest first. */
  latest(count: number): string[] {
    return [...this.#requests.keys()].slice(-count).reverse();
  }
}

function pathOf(assignment: Assignment): RequestPath {
  const { prefillEngine, decodeEngine, side, prefillReadBlocks, decodeReadBlocks, promptBlocks } = assignment;
  return { prefillEngine, decodeEngine, side, prefillReadBlocks, decodeReadBlocks, promptBlocks };
}

function detailOf(event: WatchedEvent): string {
  const { assignment, stage, waitedS, ranS, attempt, first, error } = event;
  const parts = [
    assignment && `${assignment.prefillEngine} -> ${assignment.decodeEngine}, reads: ${assignment.side}`,
    stage,
    first === undefined ? undefined : `from token ${first}`,
    attempt === undefined ? undefined : `try ${attempt}`,
    waitedS === undefined ? undefined : `waited ${(waitedS * 1000).toFixed(1)} ms`,
    ranS === undefined ? undefined : `ran ${ranS.toFixed(3)} s`,
    error?.message,
  ];
  return parts.filter((part) => part !== undefined).join('; ');
}
