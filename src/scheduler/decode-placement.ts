import type { DecodeDecision } from './decisions.js';
import { requestsOf, takesWork, tokensOf, type EngineEntry, type GroupEntry, type Ledger } from './ledger.js';
import { decodeCanHold, freeBufferBlocks, freeHbmBlocks, type Needs } from './needs.js';
import type { SeededRandom } from './random.js';
import { decodeTokensOf, type RequestEntry } from './request-entry.js';
import { TournamentTree } from './tournament-tree.js';
import type { WaitCause } from './views.js';

interface Queue {
  readonly group: GroupEntry;
  /** The private queue: FIFO from `head` on; what is no longer in line is skipped. */
  entries: RequestEntry[];
  head: number;
  queuedTokens: number;
  /** Sums over engines that take work. */
  engineTokens: number;
  freeHbmBlocks: number;
  live: number;
}

/** Who explains decisions hears of them. */
export interface DecodeListener {
  /** A request has been put into the private queue of its group. */
  onHanded(entry: RequestEntry): void;
  /** A choice, before the account changes; without an engine: the head has to wait. */
  onChoice(
    entry: RequestEntry,
    group: GroupEntry,
    engine: EngineEntry | undefined,
    zTokens: number,
    rule: DecodeDecision['rule'],
  ): void;
}

const bySequences = 0; // seq_e
const byTokens = 1; // tok_e
const hbm = 0;
const buffer = 1;

/** Room above the mean that a DE may fill before the number of its requests no longer decides. */
const meanSlack = 1.05;

/**
 * DE scheduling (DualPath, two phases). Phase 1: a request goes to the group with the least tokens in all, into
 * that group's private queue. Phase 2, within a group: of the queue's head so many requests as fit the group's
 * free HBM together are the set R; Z = 1.05 x (tokens of R + tok_e of all engines) / engines. The head goes to
 * the DE with the fewest requests among those that have the HBM and stay within Z, else to that with the least
 * tok_e, else it waits.
 *
 * Where the paper is silent: a group's tokens include those in its private queue, else all requests that are
 * handed out at once go to one group; only groups with an engine that could ever hold the request count; DE
 * buffer must be free as HBM must. Both phases cost O(log n) a request.
 */
export class DecodePlacement {
  readonly #engines: readonly EngineEntry[];
  readonly #queues: readonly Queue[];
  readonly #tree: TournamentTree;
  readonly #groups: TournamentTree;
  /** Groups whose queue or engines have changed since they were last looked at. */
  readonly #changed = new Set<Queue>();
  /** tok_e and free HBM of each leaf as its group's sums have them; who takes no work has none. */
  readonly #counted: { readonly tokens: Float64Array; readonly hbm: Float64Array };

  /** For explanations. */
  explain: DecodeListener | undefined;

  constructor(ledger: Ledger, random: SeededRandom) {
    this.#engines = ledger.leaves('decode');
    const groups = [...ledger.groups()].filter(({ role }) => role === 'decode');
    this.#queues = groups.map((group) => newQueue(group));
    const leaves = this.#engines.length;
    this.#tree = new TournamentTree(leaves, 2, 2, random);
    this.#groups = new TournamentTree(groups.length, 1, 2, random);
    this.#counted = { tokens: new Float64Array(leaves), hbm: new Float64Array(leaves) };
    for (const queue of this.#queues) this.#groupEnginesChanged(queue);
    for (const entry of this.#engines) this.changed(entry);
  }

  /** The account of an engine has changed. */
  changed(entry: EngineEntry): void {
    if (entry.capacity.role !== 'decode' || entry.leaf < 0) return;
    const { leaf } = entry;
    const out = !takesWork(entry);
    const queue = this.#queueOf(entry.group);
    const tokens = out ? 0 : tokensOf(entry);
    const free = out ? 0 : freeHbmBlocks(entry);
    queue.engineTokens += tokens - this.#counted.tokens[leaf]!;
    queue.freeHbmBlocks += free - this.#counted.hbm[leaf]!;
    this.#counted.tokens[leaf] = tokens;
    this.#counted.hbm[leaf] = free;
    this.#tree.setValue(leaf, bySequences, out ? Infinity : requestsOf(entry));
    this.#tree.setValue(leaf, byTokens, out ? Infinity : tokens);
    this.#tree.setRoom(leaf, hbm, out ? -Infinity : free);
    this.#tree.setRoom(leaf, buffer, out ? -Infinity : freeBufferBlocks(entry));
    this.#tree.update(leaf);
    this.#queueChanged(queue);
  }

  /**
   * Whether an engine takes work has changed. Returns what waits for its group, in order, to be handed out again if
   * it takes none any more.
   */
  switched(entry: EngineEntry): RequestEntry[] {
    const queue = this.#queueOf(entry.group);
    queue.live = queue.group.engines.filter(takesWork).length;
    this.changed(entry);
    this.#groupEnginesChanged(queue);
    if (takesWork(entry)) return [];
    const entries = queue.entries.slice(queue.head).filter((other) => isInLine(other, queue));
    queue.entries = [];
    queue.head = 0;
    queue.queuedTokens = 0;
    this.#queueChanged(queue);
    for (const other of entries) other.decodeGroup = undefined;
    return entries;
  }

  /** All that is in line, in order of submission; in line no more. */
  inLine(): RequestEntry[] {
    const all = this.#queues.flatMap((queue) => queue.entries.filter((entry) => isInLine(entry, queue)));
    for (const entry of all) entry.decodeGroup = undefined;
    return all.sort((a, b) => a.sequence - b.sequence);
  }

  /** Phase 1. False if no group can ever hold the request. */
  hand(entry: RequestEntry): boolean {
    const needs = entry.needs!;
    this.#groups.need(hbm, needs.decodeHbmBlocks);
    this.#groups.need(buffer, needs.decodeBufferBlocks);
    let index = this.#groups.least(0);
    // A group's largest HBM and its largest buffer may be on different engines.
    if (index >= 0 && !groupCanHold(this.#queues[index]!.group, needs)) index = this.#leastThatCanHold(needs);
    if (index < 0) return false;
    const queue = this.#queues[index]!;
    entry.decodeGroup = queue.group;
    queue.entries.push(entry);
    queue.queuedTokens += decodeTokensOf(entry);
    this.#queueChanged(queue);
    this.explain?.onHanded(entry);
    return true;
  }

  /** A request in line for a group has ended. */
  ended(entry: RequestEntry): void {
    if (entry.decodeGroup) this.#left(this.#queueOf(entry.decodeGroup), entry);
  }

  /** Groups with somebody in line, whose queue or engines have changed since they were last taken from. */
  ready(): GroupEntry[] {
    const groups = [...this.#changed].filter((queue) => this.#head(queue)).map(({ group }) => group);
    this.#changed.clear();
    return groups.sort((a, b) => a.index - b.index);
  }

  /**
   * Phase 2 for one group: each request that gets a DE is passed to `assign`, which must put it on the account
   * before it returns. Returns the head that has to wait, if there is one.
   */
  place(
    group: GroupEntry,
    assign: (entry: RequestEntry, engine: EngineEntry) => void,
  ): RequestEntry | undefined {
    const queue = this.#queueOf(group);
    let most: number | undefined;
    let head = this.#head(queue);
    while (head) {
      const { needs } = head;
      most ??= this.#fits(group, needs!, byTokens, Infinity) < 0 ? 0 : this.#mostTokens(queue);
      let leaf = this.#fits(group, needs!, bySequences, most - decodeTokensOf(head));
      const within = leaf >= 0;
      if (!within) leaf = this.#fits(group, needs!, byTokens, Infinity);
      if (this.explain) {
        const rule = within ? 'fewest-requests-within-z' : leaf >= 0 ? 'least-tokens' : 'none-fits';
        this.explain.onChoice(head, group, this.#engines[leaf], most, rule);
      }
      if (leaf < 0) return head;
      this.#left(queue, head);
      assign(head, this.#engines[leaf]!);
      head = this.#head(queue);
    }
    return undefined;
  }

  /** For explanations: the groups with the least tokens, their private queues included. */
  firstGroups(count: number): { readonly name: string; readonly tokens: number }[] {
    return this.#groups.first(0, count).map((index) => {
      return { name: this.#queues[index]!.group.name, tokens: this.#groups.valueOf(index, 0) };
    });
  }

  /** For explanations: a group's engines with the fewest requests. */
  firstEngines({ first, end }: GroupEntry, count: number): EngineEntry[] {
    return this.#tree.first(bySequences, count, first, end).map((leaf) => this.#engines[leaf]!);
  }

  /** Z, a whole number as tokens are. */
  #mostTokens(queue: Queue): number {
    let free = queue.freeHbmBlocks;
    let tokens = queue.engineTokens;
    for (let place = queue.head; place < queue.entries.length; place++) {
      const entry = queue.entries[place]!;
      if (!isInLine(entry, queue)) continue;
      free -= entry.needs!.decodeHbmBlocks;
      if (free < 0) break;
      tokens += decodeTokensOf(entry);
    }
    return Math.floor((meanSlack * tokens) / queue.live);
  }

  #fits({ first, end }: GroupEntry, needs: Needs, order: number, mostTokens: number): number {
    this.#tree.need(hbm, needs.decodeHbmBlocks);
    this.#tree.need(buffer, needs.decodeBufferBlocks);
    this.#tree.limit(byTokens, mostTokens);
    return this.#tree.least(order, first, end);
  }

  #head(queue: Queue): RequestEntry | undefined {
    const { entries } = queue;
    while (queue.head < entries.length && !isInLine(entries[queue.head]!, queue)) queue.head++;
    if (queue.head > 64 && 2 * queue.head > entries.length) {
      queue.entries = entries.slice(queue.head);
      queue.head = 0;
    }
    return queue.entries[queue.head];
  }

  #left(queue: Queue, entry: RequestEntry): void {
    entry.decodeGroup = undefined;
    queue.queuedTokens -= decodeTokensOf(entry);
    this.#queueChanged(queue);
  }

  #leastThatCanHold(needs: Needs): number {
    let best = -1;
    for (const { group } of this.#queues) {
      if (!groupCanHold(group, needs)) continue;
      if (best < 0 || this.#groups.valueOf(group.index, 0) < this.#groups.valueOf(best, 0))
        best = group.index;
    }
    return best;
  }

  #queueOf(group: GroupEntry): Queue {
    return this.#queues[group.index]!;
  }

  #queueChanged(queue: Queue): void {
    const { index } = queue.group;
    this.#groups.setValue(index, 0, queue.live === 0 ? Infinity : queue.engineTokens + queue.queuedTokens);
    this.#groups.update(index);
    this.#changed.add(queue);
  }

  #groupEnginesChanged({ group }: Queue): void {
    const live = group.engines.filter(takesWork);
    const most = (what: 'hbmBlocks' | 'bufferBlocks'): number =>
      live.reduce((sum, { capacity }) => Math.max(sum, capacity[what]), -Infinity);
    this.#groups.setRoom(group.index, hbm, most('hbmBlocks'));
    this.#groups.setRoom(group.index, buffer, most('bufferBlocks'));
    this.#groups.update(group.index);
  }
}

function newQueue(group: GroupEntry): Queue {
  return {
    group,
    entries: [],
    head: 0,
    queuedTokens: 0,
    engineTokens: 0,
    freeHbmBlocks: 0,
    live: group.engines.filter(takesWork).length,
  };
}

function isInLine(entry: RequestEntry, { group }: Queue): boolean {
  return entry.state === 'placed' && entry.decodeGroup === group;
}

function groupCanHold(group: GroupEntry, needs: Needs): boolean {
  return group.engines.some((engine) => takesWork(engine) && decodeCanHold(engine, needs));
}

/** What keeps the head of a group's queue from going on. */
export function decodeWaitCause({ needs }: RequestEntry, { engines }: GroupEntry): WaitCause {
  const fits = (engine: EngineEntry): boolean =>
    takesWork(engine) && freeHbmBlocks(engine) >= needs!.decodeHbmBlocks;
  return engines.some(fits) ? 'decode-buffer' : 'decode-hbm';
}
