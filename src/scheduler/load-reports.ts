import type { EngineEntry, GroupEntry, Ledger, LinkEntry } from './ledger.js';
import type { LinkRates } from './link-rates.js';
import { decodeTokensOf, type RequestEntry } from './request-entry.js';
import { stageBits } from './stages.js';
import type { EngineLoad } from './types.js';

/**
 * What engines say of their load, put beside the account. An engine that reports names the newest admission it
 * had received (`lastAdmission`), so what the account holds splits into what the engine knew of and what it did
 * not; what it reports beyond the former is foreign: work that others gave it. Load is then the account and the
 * foreign part, which is the same as: reported, and assigned since, less what has ended since. However old a
 * report is, what was assigned after it counts, so that no engine looks idle to two decisions in turn.
 */
export class LoadReports {
  readonly #ledger: Ledger;
  readonly #rates: LinkRates;
  readonly #changed: (entry: EngineEntry) => void;
  /** By group that reports admissions: what it may not have received yet, oldest first. */
  readonly #sent = new WeakMap<GroupEntry, RequestEntry[]>();

  constructor(ledger: Ledger, rates: LinkRates, changed: (entry: EngineEntry) => void) {
    this.#ledger = ledger;
    this.#rates = rates;
    this.#changed = changed;
  }

  /** Takes note of an assignment. */
  assigned(entry: RequestEntry): void {
    this.#sent.get(entry.prefill!.group)?.push(entry);
    this.#sent.get(entry.decode!.group)?.push(entry);
  }

  /**
   * False if the report is not newer than the engine's last.
   *
   * @param running all assigned requests
   * @throws INVALID_ARGUMENT for an unknown engine or impossible counts
   */
  report(load: EngineLoad, running: () => Iterable<RequestEntry>): boolean {
    if (!this.#ledger.report(load)) return false;
    const entry = this.#ledger.engine(load.engine);
    if (load.nodeRead) this.#rates.measured(entry.link, load.nodeRead);
    if (load.lastAdmission !== undefined) {
      this.#compare(entry, load, this.#unseen(entry.group, load.lastAdmission, running));
    }
    this.#changed(entry);
    return true;
  }

  #unseen(
    group: GroupEntry,
    lastAdmission: number,
    running: () => Iterable<RequestEntry>,
  ): readonly RequestEntry[] {
    const sent =
      this.#sent.get(group) ??
      [...running()].filter(({ prefill, decode }) => prefill!.group === group || decode!.group === group);
    const unseen = sent.filter(
      ({ state, assignment }) => state === 'running' && assignment!.admission > lastAdmission,
    );
    this.#sent.set(group, unseen);
    return unseen;
  }

  #compare(entry: EngineEntry, load: EngineLoad, unseen: readonly RequestEntry[]): void {
    const known = {
      requests: entry.unfinishedRequests - entry.placedRequests,
      tokens: entry.unfinishedTokens - entry.placedTokens,
      blocks: entry.link.readQueueBlocks - entry.link.foreignBlocks,
    };
    for (const request of unseen) {
      if (request.decode === entry) {
        known.requests--;
        known.tokens -= decodeTokensOf(request);
      } else if (request.prefill === entry && (request.done & stageBits.prefill) === 0) {
        known.requests--;
        known.tokens -= request.prefillTokens;
      }
      known.blocks -= queuedOn(entry.link, request);
    }
    entry.foreignRequests = Math.max(0, load.unfinishedRequests - known.requests);
    entry.foreignTokens = Math.max(0, load.unfinishedTokens - known.tokens);
    const foreignBlocks = Math.max(0, load.nodeReadQueueBlocks - known.blocks);
    entry.link.readQueueBlocks += foreignBlocks - entry.link.foreignBlocks;
    entry.link.foreignBlocks = foreignBlocks;
  }
}

function queuedOn(link: LinkEntry, { prefill, decode, assignment, done }: RequestEntry): number {
  const { prefillReadBlocks, decodeReadBlocks } = assignment!;
  const onPrefill = prefill!.link === link && (done & stageBits['prefill-read']) === 0;
  const onDecode = decode!.link === link && (done & stageBits['decode-read']) === 0;
  return (onPrefill ? prefillReadBlocks : 0) + (onDecode ? decodeReadBlocks : 0);
}
