import type { Instance, LoadView } from '../router/index.js';

/** What was reported of one instance, and what the router sent there. */
interface Log {
  readonly timesS: number[];
  readonly queuesS: number[];
  readonly busy: boolean[];
  first: number;
  readonly sentAtS: number[];
  readonly sentS: number[];
  sentFirst: number;
  sentTotalS: number;
}

export interface StaleViewOptions {
  /** What is told is always so old. */
  readonly ageS: number;
  /** Adds what the router itself sent since. What has been served since, nobody tells. */
  readonly countsOwn: boolean;
}

/** Loads as they were some time ago, as a router sees them that learns of them from reports. */
export class StaleView implements LoadView {
  readonly #options: StaleViewOptions;
  readonly #logs: Log[] = [];

  constructor(options: StaleViewOptions) {
    this.#options = options;
  }

  /** T_q of an instance has changed to this; between changes a busy instance works it off. */
  changed(instance: Instance, queueS: number, nowS: number): void {
    const log = this.#logOf(instance);
    log.timesS.push(nowS);
    log.queuesS.push(queueS);
    log.busy.push(instance.dispatched.size > 0);
  }

  /** The router has sent so many seconds of prefill there, or, negative, taken them away. */
  sent(instance: Instance, prefillS: number, nowS: number): void {
    if (!this.#options.countsOwn) return;
    const log = this.#logOf(instance);
    log.sentAtS.push(nowS);
    log.sentS.push(prefillS);
    log.sentTotalS += prefillS;
  }

  queueS(instance: Instance, nowS: number): number {
    const log = this.#logOf(instance);
    const thenS = nowS - this.#options.ageS;
    while (log.first + 1 < log.timesS.length && log.timesS[log.first + 1]! <= thenS) log.first++;
    while (log.sentFirst < log.sentAtS.length && log.sentAtS[log.sentFirst]! <= thenS) {
      log.sentTotalS -= log.sentS[log.sentFirst++]!;
    }
    if (log.first > 4096) compact(log);
    const sinceS = thenS - (log.timesS[log.first] ?? Infinity);
    // Nothing has been reported yet.
    const reportedS =
      sinceS < 0 ? 0 : Math.max(0, log.queuesS[log.first]! - (log.busy[log.first] === true ? sinceS : 0));
    return Math.max(0, reportedS + log.sentTotalS);
  }

  #logOf(instance: Instance): Log {
    return (this.#logs[instance.index] ??= {
      timesS: [],
      queuesS: [],
      busy: [],
      first: 0,
      sentAtS: [],
      sentS: [],
      sentFirst: 0,
      sentTotalS: 0,
    });
  }
}

function compact(log: Log): void {
  for (const list of [log.timesS, log.queuesS, log.busy]) list.splice(0, log.first);
  log.first = 0;
  log.sentAtS.splice(0, log.sentFirst);
  log.sentS.splice(0, log.sentFirst);
  log.sentFirst = 0;
}
