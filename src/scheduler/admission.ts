import { DualPathError } from '../errors/index.js';
import { decodeWaitCause } from './decode-placement.js';
import { Explainer } from './explainer.js';
import { Ledger, type EngineEntry, type EngineState, type GroupEntry } from './ledger.js';
import { LinkRates } from './link-rates.js';
import { LoadReports } from './load-reports.js';
import { checkRequest, needsOf, whyNever } from './needs.js';
import { checkOptions, type AdmissionOptions } from './options.js';
import { Placements } from './placements.js';
import { SeededRandom } from './random.js';
import { ReadChoice } from './read-choice.js';
import { RequestAccount } from './request-account.js';
import { assignmentOf, nameInUse, newEntry, unplaced, viewOf, type RequestEntry } from './request-entry.js';
import { checkStage, stageBits } from './stages.js';
import type {
  Assignment,
  EngineCapacity,
  EngineLoad,
  EngineRole,
  RequestDescription,
  RequestFailure,
  Stage,
} from './types.js';
import { noCounts, noWaits, type AdmissionStatistics, type RequestView } from './views.js';
import { WaitingQueue } from './waiting-queue.js';

/**
 * The central request scheduler as a state machine: events go in (`submit`, `complete`, `end`, `engineLost`,
 * `fetch`), assignments come out. It has no clock, no I/O and no timers; where time counts it is passed in.
 * Equal seeds and events give equal assignments.
 *
 * A request passes three decisions, DualPath's inter-engine scheduling: a PE (`PrefillPlacement`, Algorithm 1),
 * when a PE group fetches; a DE group, then a DE in it (`DecodePlacement`), when a DE group fetches; then the
 * side that reads its hits (`ReadChoice`). It is then assigned, and holds every block it will ever hold, so an
 * assigned request never waits for memory. Memory is taken in one order (PE, then DE), so requests cannot
 * deadlock. Nothing overtakes the head of a queue.
 *
 * Load is the central ledger (assigned minus ended), and what engines report beyond it (`LoadReports`).
 */
export class Admission {
  readonly #options: Required<AdmissionOptions>;
  readonly #ledger: Ledger;
  readonly #queue: WaitingQueue;
  readonly #requests = new Map<string, RequestEntry>();
  readonly #placements: Placements;
  readonly #reads: ReadChoice;
  readonly #account: RequestAccount;
  readonly #reports: LoadReports;
  readonly #explain: Explainer | undefined;
  readonly #headWaits = noWaits();
  readonly #counts = noCounts();
  #epoch = 1;
  #placedCount = 0;
  /** No PE has given anything back since the head was found to fit none. */
  #headBlocked = false;

  /** @throws INVALID_ARGUMENT */
  constructor(options: AdmissionOptions) {
    this.#options = checkOptions(options);
    const { seed, maxWaiting, tenants, adaptLinkRates } = this.#options;
    this.#ledger = new Ledger(options.engines);
    this.#queue = new WaitingQueue(maxWaiting, tenants, seed);
    this.#placements = new Placements(this.#options, this.#ledger, new SeededRandom(seed));
    this.#reads = new ReadChoice(options.policy, options.blockBytes);
    this.#explain = Explainer.of(this.#options, this.#placements);
    const changed = this.#changed.bind(this);
    this.#account = new RequestAccount(this.#ledger, this.#options.decodeSpareBlocks, changed);
    this.#reports = new LoadReports(this.#ledger, new LinkRates(adaptLinkRates), changed);
  }

  epoch(): number {
    return this.#epoch;
  }

  /** Requests that wait, for a PE or for a DE. */
  get waiting(): number {
    return this.#queue.size + this.#placedCount;
  }

  statistics(): AdmissionStatistics {
    const { waiting } = this;
    const counts = { ...this.#counts, ...this.#reads.counts(), headWaits: { ...this.#headWaits } };
    return { ...counts, waiting, running: this.#requests.size - waiting };
  }

  /** Every engine with what is reserved of it now, in the order given at the start, lost ones included. */
  engines(): IterableIterator<EngineState> {
    return this.#ledger.engines();
  }

  /** @throws INVALID_ARGUMENT if there is no such engine */
  engine(name: string): EngineState {
    return this.#ledger.engine(name);
  }

  /** Where a request is that has not ended; undefined for any other. */
  request(request: string): RequestView | undefined {
    const entry = this.#requests.get(request);
    return entry && viewOf(entry);
  }

  /**
   * Puts a request into the waiting queue.
   *
   * @param nowS its arrival, on the caller's clock; matters with priorities or the order 'slack' only
   * @throws INVALID_ARGUMENT, REQUEST_TOO_LARGE, CAPACITY_EXHAUSTED, PEER_LOST; nothing has changed then
   */
  submit(description: RequestDescription, nowS = 0): void {
    this.#checkNew(description);
    const { request, tenant } = description;
    const never = this.#whyNever(description);
    if (never) throw never;
    this.#queue.check(request, tenant, this.#placedCount);
    const entry = newEntry(description, this.#counts.submitted, nowS, this.#options);
    this.#counts.submitted++;
    this.#explain?.submitted(entry, this.#queue.size);
    this.#requests.set(request, entry);
    this.#queue.push(entry);
    if (this.#queue.head() === entry) this.#headBlocked = false;
  }

  /** Assigns all that can be, as if every group had fetched: PEs first, then DEs. */
  admit(): Assignment[] {
    this.#headBlocked ||= !this.#placeOnPrefill(0, this.#ledger.leaves('prefill').length);
    this.#placements.drain();
    const assignments: Assignment[] = [];
    for (const group of this.#placements.decode.ready()) this.#placeOnDecode(group, assignments);
    return assignments;
  }

  /**
   * A group fetches: a PE group takes requests from the waiting queue (Algorithm 1); a DE group has all that
   * have a PE handed to DE groups (phase 1), then takes from its private queue (phase 2). Returns what is
   * assigned with it, each for the PE's group and for the DE's; a PE group's requests are assigned when their
   * DE's group fetches.
   *
   * @throws INVALID_ARGUMENT for an unknown group or engine, and for impossible counts
   */
  fetch(group: string, loads: readonly EngineLoad[]): Assignment[] {
    const entry = this.#ledger.group(group);
    this.report(loads);
    if (entry.role === 'prefill') {
      this.#placeOnPrefill(entry.first, entry.end);
      return [];
    }
    this.#placements.drain();
    const assignments: Assignment[] = [];
    this.#placeOnDecode(entry, assignments);
    return assignments;
  }

  /**
   * Takes note of a finished stage and gives back what it held. False, and counted, if the report is for no
   * running request, for another admission than the assignment's, or was made before.
   */
  complete(request: string, stage: Stage, admission?: number): boolean {
    checkStage(request, stage);
    const entry = this.#find(request, admission);
    if (entry?.state !== 'running' || (entry.done & stageBits[stage]) !== 0) {
      this.#counts.ignoredReports++;
      return false;
    }
    if (stage === 'request') {
      this.#over(entry, null);
      this.#counts.completed++;
    } else {
      this.#account.done(entry, stage);
    }
    return true;
  }

  /**
   * Ends a waiting or running request with an error and gives back all it holds. Undefined, and counted, if
   * it has ended already or runs under another admission.
   *
   * The account is settled at once, though engines may still have operations in flight on the request's
   * slots: their pools hand a slot out again only when those have ended, so a successor may have to wait a
   * little for slots that are its own on the account.
   */
  end(request: string, error: Error, admission?: number): RequestFailure | undefined {
    const entry = this.#find(request, admission);
    if (entry) {
      this.#over(entry, error);
      this.#counts.failed++;
      return { request, assignment: entry.assignment, error };
    }
    this.#counts.ignoredReports++;
    return undefined;
  }

  /** Ends every request, running ones first. */
  endAll(error: Error): RequestFailure[] {
    const runs = ({ state }: RequestEntry): number => Number(state === 'running');
    const all = [...this.#requests.values()].sort((a, b) => runs(b) - runs(a));
    return all.flatMap(({ description }) => this.end(description.request, error) ?? []);
  }

  /**
   * More engines, or lost ones anew: all of one group at once where that can be, since each call costs O(engines).
   *
   * @throws INVALID_ARGUMENT for impossible or contradictory capacities; nothing has changed then
   */
  join(engines: readonly EngineCapacity[]): void {
    this.#ledger.join(engines);
    this.#placements.rebuild();
    this.#headBlocked = false;
  }

  /**
   * Whether an engine is given requests: closed, it keeps those that it has. What was not assigned yet is placed anew.
   *
   * @throws INVALID_ARGUMENT if there is no such engine
   */
  setOpen(engine: string, open: boolean): void {
    const entry = this.#ledger.engine(engine);
    if (entry.lost || entry.closed !== open) return;
    entry.closed = !open;
    this.#headBlocked = false;
    this.#placements.switched(entry);
    if (open || entry.placedRequests === 0) return;
    for (const other of [...this.#requests.values()]) {
      if (other.state === 'placed' && other.prefill === entry) this.#placeAnew(other);
    }
  }

  /**
   * A request that runs already, by an assignment that another scheduler made and its engines still have.
   *
   * @param done stages that need not be reported any more
   * @returns false, and nothing has changed, if an engine is lost, unknown or lacks the room
   * @throws INVALID_ARGUMENT for a request that contradicts itself or has a name in use
   */
  adopt(description: RequestDescription, assignment: Assignment, done: readonly Stage[]): boolean {
    this.#checkNew(description);
    const [prefill, decode] = [assignment.prefillEngine, assignment.decodeEngine].map((name) =>
      this.#ledger.find(name),
    );
    if (prefill?.capacity.role !== 'prefill' || decode?.capacity.role !== 'decode') return false;
    const entry = newEntry(description, this.#counts.submitted, 0, this.#options);
    const needs = needsOf(description, this.#options);
    Object.assign(entry, { state: 'running', needs, prefill, decode } satisfies Partial<RequestEntry>);
    const { epoch, admission } = assignment;
    entry.assignment = assignmentOf(entry, assignment, { epoch, admission });
    if (prefill.lost || decode.lost || !this.#account.fits(entry)) return false;
    this.#counts.submitted++;
    this.#requests.set(description.request, entry);
    this.#account.adopted(entry);
    for (const stage of done) this.#account.done(entry, stage);
    return true;
  }

  /**
   * Takes an engine out for good, raises the epoch and ends the requests that still need it, with PEER_LOST:
   * a PE's requests up to stage 'prefill', a DE's until they end. What was not assigned yet is placed anew.
   * Waiting requests that only a lost engine could have held end too. An engine lost before is nothing new.
   *
   * @throws INVALID_ARGUMENT if there is no such engine
   */
  engineLost(engine: string): RequestFailure[] {
    const lost = this.#ledger.engine(engine);
    if (lost.lost) return [];
    this.#ledger.lose(lost);
    this.#epoch++;
    this.#headBlocked = false;
    this.#placements.switched(lost);
    const failures: RequestFailure[] = [];
    const lose = (request: string, why: string): void => {
      const message = `engine ${engine} was lost, ${why}`;
      const failure = this.end(request, new DualPathError('PEER_LOST', message, { request, engine }));
      if (failure) failures.push(failure);
    };
    for (const entry of [...this.#requests.values()]) {
      const { request } = entry.description;
      if (entry.state === 'running') {
        const prefilled = (entry.done & stageBits.prefill) !== 0;
        if (entry.decode !== lost && (entry.prefill !== lost || prefilled)) continue;
        lose(request, `and request ${request} was running there: submit it again`);
        continue;
      }
      const never = this.#whyNever(entry.description);
      if (never) lose(request, `so ${never.message}`);
      else if (entry.prefill === lost) this.#placeAnew(entry);
    }
    return failures;
  }

  /** Engines' own loads; a report not newer than the engine's last is counted. */
  report(loads: readonly EngineLoad[]): void {
    for (const load of loads) {
      if (!this.#reports.report(load, () => this.#running())) this.#counts.staleLoads++;
    }
  }

  *#running(): Iterable<RequestEntry> {
    for (const entry of this.#requests.values()) if (entry.state === 'running') yield entry;
  }

  #checkNew(description: RequestDescription): void {
    checkRequest(description, this.#options.blockTokens);
    if (this.#requests.has(description.request)) throw nameInUse(description.request);
  }

  #whyNever(description: RequestDescription): DualPathError | undefined {
    const { policy } = this.#options;
    const live = (role: EngineRole): readonly EngineState[] => this.#ledger.live(role);
    return whyNever(description.request, needsOf(description, this.#options), policy, live);
  }

  #find(request: string, admission: number | undefined): RequestEntry | undefined {
    const entry = this.#requests.get(request);
    return admission === undefined || entry?.assignment?.admission === admission ? entry : undefined;
  }

  /** From the head of the waiting queue on; false once none of the PEs [from, to) may take the head. */
  #placeOnPrefill(from: number, to: number): boolean {
    for (;;) {
      const head = this.#queue.head();
      if (!head) return true;
      const needs = needsOf(head.description, this.#options);
      const readsAll = this.#reads.prefillMustReadAll(needs, this.#ledger.live('prefill'));
      const bufferBlocks = readsAll ? needs.hitBlocks : 0;
      const room = { bufferBlocks, hbmBlocks: needs.promptBlocks };
      const engine = this.#placements.prefill.choose(room, from, to);
      this.#explain?.prefill(head, room, engine, from, to);
      if (!engine) {
        this.#headWaits['prefill-room']++;
        return false;
      }
      this.#queue.take();
      this.#reads.placed(needs);
      Object.assign(head, {
        state: 'placed',
        needs,
        prefill: engine,
        readsAll,
      } satisfies Partial<RequestEntry>);
      this.#account.placed(head);
      this.#placements.placed(head);
      this.#placedCount++;
    }
  }

  #placeOnDecode(group: GroupEntry, assignments: Assignment[]): void {
    const head = this.#placements.decode.place(group, (entry, engine) =>
      assignments.push(this.#assign(entry, engine)),
    );
    if (head) this.#headWaits[decodeWaitCause(head, group)]++;
  }

  #assign(entry: RequestEntry, decode: EngineEntry): Assignment {
    const plan = this.#reads.plan(entry.needs!, entry.readsAll, entry.prefill!, decode);
    this.#explain?.read(entry, decode, plan);
    entry.state = 'running';
    entry.decode = decode;
    this.#counts.admitted++;
    const admission = this.#options.admissionBase + this.#counts.admitted;
    const assignment = assignmentOf(entry, plan, { epoch: this.#epoch, admission });
    entry.assignment = assignment;
    this.#placedCount--;
    this.#account.assigned(entry);
    this.#reports.assigned(entry);
    this.#counts.prefillReadBlocks += plan.prefillReadBlocks;
    this.#counts.decodeReadBlocks += plan.decodeReadBlocks;
    this.#explain?.assigned(assignment);
    return assignment;
  }

  /** Its PE was lost before anybody heard of it: back to its place in the waiting queue. */
  #placeAnew(entry: RequestEntry): void {
    this.#explain?.placedAnew(entry);
    this.#leavePlaced(entry);
    entry.state = 'ended'; // for whoever still holds it; a copy goes on
    const again = { ...entry, ...unplaced };
    this.#requests.set(entry.description.request, again);
    this.#queue.push(again);
  }

  #leavePlaced(entry: RequestEntry): void {
    this.#placements.decode.ended(entry);
    this.#account.notPlaced(entry);
    this.#placedCount--;
  }

  #over(entry: RequestEntry, error: Error | null): void {
    this.#explain?.ended(entry, error);
    const { state } = entry;
    if (state === 'running') this.#account.over(entry);
    else if (state === 'placed') this.#leavePlaced(entry);
    entry.state = 'ended';
    if (state === 'waiting') this.#queue.removed(entry);
    this.#headBlocked = false;
    this.#requests.delete(entry.description.request);
  }

  #changed(engine: EngineEntry): void {
    if (engine.capacity.role === 'prefill') this.#headBlocked = false;
    this.#placements.changed(engine);
  }
}
