import type { ClassCounts } from './decisions.js';
import { takesWork, tokensOf, type EngineEntry, type Ledger, type LinkEntry } from './ledger.js';
import { freeBufferBlocks, freeHbmBlocks } from './needs.js';
import type { SeededRandom } from './random.js';
import { readTimeS } from './read-side.js';
import { TournamentTree } from './tournament-tree.js';

export interface PrefillRules {
  /** alpha: seconds of queued reads up to which a node's storage link counts as free. */
  readonly alphaS: number;
  /** beta: unfinished tokens beyond which an engine gets nothing. */
  readonly betaTokens: number;
  readonly blockBytes: number;
}

/** What a PE must have free for a request. */
export interface PrefillNeeds {
  readonly bufferBlocks: number;
  /** Only where the PE's HBM is accounted. */
  readonly hbmBlocks: number;
}

const freeLink = 0; // C2
const busyLink = 1; // C3

/**
 * PE scheduling (DualPath, Algorithm 1). A PE is of class C1 if tok_e > beta: it gets nothing; else of C2 if its
 * node's read queue is at most alpha, else of C3. A request goes to the PE of C2 with the least tok_e, else to
 * that of C3. What is ours: a PE must also have the memory that the request will hold there.
 *
 * Kept in a tournament tree whose orders are the classes, so that an assignment costs O(log n).
 */
export class PrefillPlacement {
  readonly #rules: PrefillRules;
  readonly #engines: readonly EngineEntry[];
  readonly #tree: TournamentTree;
  /** By link: whether its queue was over alpha when last looked at. */
  readonly #busy = new Set<LinkEntry>();

  constructor(rules: PrefillRules, ledger: Ledger, random: SeededRandom) {
    this.#rules = rules;
    this.#engines = ledger.leaves('prefill');
    this.#tree = new TournamentTree(this.#engines.length, 2, 2, random);
    for (const entry of this.#engines) {
      this.#refresh(entry);
      this.linkChanged(entry.link);
    }
  }

  /** The account of an engine, or of its link, has changed. */
  changed(entry: EngineEntry): void {
    if (entry.capacity.role === 'prefill' && entry.leaf >= 0) this.#refresh(entry);
    this.linkChanged(entry.link);
  }

  /** Looks whether a link's engines change class. */
  linkChanged(link: LinkEntry): void {
    const busy = readTimeS(link, 0, this.#rules.blockBytes) > this.#rules.alphaS;
    if (busy === this.#busy.has(link)) return;
    if (busy) this.#busy.add(link);
    else this.#busy.delete(link);
    for (const entry of link.engines) {
      if (entry.capacity.role === 'prefill') this.#refresh(entry);
    }
  }

  /** The PE for a request, of the leaves [from, to); undefined if it has to wait. */
  choose(needs: PrefillNeeds, from: number, to: number): EngineEntry | undefined {
    for (const order of [freeLink, busyLink]) {
      this.#tree.need(0, needs.bufferBlocks);
      this.#tree.need(1, needs.hbmBlocks);
      const leaf = this.#tree.least(order, from, to);
      if (leaf >= 0) return this.#engines[leaf];
    }
    return undefined;
  }

  /** For explanations: how many of the PEs [from, to) are of each class, and the first of C2, then of C3. */
  survey(
    count: number,
    from: number,
    to: number,
  ): { readonly classes: ClassCounts; readonly first: { entry: EngineEntry; busy: boolean }[] } {
    const classes = { c1: 0, c2: 0, c3: 0, lost: 0 };
    for (let leaf = from; leaf < to; leaf++) {
      if (this.#tree.valueOf(leaf, freeLink) < Infinity) classes.c2++;
      else if (this.#tree.valueOf(leaf, busyLink) < Infinity) classes.c3++;
      else classes[this.#engines[leaf]!.lost ? 'lost' : 'c1']++;
    }
    const first = [freeLink, busyLink].flatMap((order) =>
      this.#tree
        .first(order, count, from, to)
        .map((leaf) => ({ entry: this.#engines[leaf]!, busy: order === busyLink })),
    );
    return { classes, first: first.slice(0, count) };
  }

  #refresh(entry: EngineEntry): void {
    const { leaf, link, capacity } = entry;
    const tokens = tokensOf(entry);
    const out = !takesWork(entry) || tokens > this.#rules.betaTokens;
    const busy = this.#busy.has(link);
    this.#tree.setValue(leaf, freeLink, out || busy ? Infinity : tokens);
    this.#tree.setValue(leaf, busyLink, out || !busy ? Infinity : tokens);
    this.#tree.setRoom(leaf, 0, freeBufferBlocks(entry));
    this.#tree.setRoom(leaf, 1, capacity.hbmBlocks === 0 ? Infinity : freeHbmBlocks(entry));
    this.#tree.update(leaf);
  }
}
