import { request as fetchFrom, type Dispatcher } from 'undici';
import type { ProxyTimes } from './options.js';
import type { Replica } from './replica.js';
import { metricsOfRank, parseServerMetrics, type ServerMetrics } from './server-metrics.js';
import type { EjectReason, Ejection, Target } from './target.js';

export interface MonitorDesk {
  readonly times: ProxyTimes;
  replicas(): Iterable<Replica>;
  /** Mean uncached tokens of a request. */
  readonly meanTokens: number;
  readonly prefillSPerToken: number;
  setModels(replica: Replica, models: readonly string[]): void;
  setHealth(target: Target, healthy: boolean): void;
  ejected(target: Target, ejection: Ejection): void;
  admitted(target: Target): void;
  /** Without bytes and progress for so long. */
  hangs(target: Target, silentMs: number): void;
}

/** Slower than the middle of its fellows by this factor. */
const slowFactor = 5;
const failedProbesMax = 3;
/** Patience with a server that is alive and busy, as it answers probes, but not for its counters. */
const unansweredFactor = 10;
const bodyBytesMax = 16 * 1024 * 1024;

/** Who is well: active probes, what requests met, counters that stand still, prefills that take too long. */
export class Monitor {
  readonly #desk: MonitorDesk;

  constructor(desk: MonitorDesk) {
    this.#desk = desk;
  }

  /** Ejects: new requests pass it over. It comes back when its time is over and a probe has found it well. */
  eject(target: Target, reason: EjectReason): void {
    if (target.isEjected) return;
    const { ejectMs, ejectMaxMs } = this.#desk.times;
    const nowMs = performance.now();
    const { lastEjection } = target;
    const isSoon = lastEjection !== null && nowMs < lastEjection.untilMs + 5 * lastEjection.nextMs;
    const lengthMs = isSoon ? Math.min(lastEjection.nextMs, ejectMaxMs) : ejectMs;
    const ejection = { reason, untilMs: nowMs + lengthMs, nextMs: 2 * lengthMs };
    target.ejection = target.lastEjection = ejection;
    target.replica.probeSuccesses = 0;
    this.#desk.setHealth(target, false);
    this.#desk.ejected(target, ejection);
  }

  /** Looks for targets that hang or are slow, and for those whose time is over. Often, and cheap. */
  watch(nowMs: number): void {
    const targets: Target[] = [];
    for (const replica of this.#desk.replicas()) targets.push(...replica.targets);
    const pace = paceOf(targets);
    for (const target of targets) {
      // Also one that was passed over before, for being slow or not answering probes: what it has must not wait on.
      if (this.#isHung(target, nowMs, pace)) {
        this.eject(target, 'hung');
        this.#desk.hangs(target, nowMs - Math.max(target.aliveMs, target.progressMs));
      } else if (target.ejection !== null) this.#maybeAdmit(target, nowMs);
    }
    this.#ejectSlow(targets, nowMs);
  }

  /** Probes and polls one replica; a round that is still under way is not doubled. */
  poll(replica: Replica): Promise<void> {
    replica.polling ??= this.#poll(replica).finally(() => (replica.polling = null));
    return replica.polling;
  }

  async #poll(replica: Replica): Promise<void> {
    const [healthy] = await Promise.all([this.#probe(replica), this.#pollMetrics(replica)]);
    if (healthy && performance.now() - replica.modelsMs > this.#desk.times.modelsMs)
      await this.#pollModels(replica);
  }

  #maybeAdmit(target: Target, nowMs: number): void {
    if (nowMs < target.ejection!.untilMs || target.replica.probeSuccesses < 1) return;
    // One that was slow starts anew; one that seemed to hang has shown how slow it is.
    if (target.ejection!.reason === 'slow') target.forgetSpeed();
    target.ejection = null;
    target.failures = 0;
    target.aliveMs = target.progressMs = nowMs;
    this.#desk.setHealth(target, true);
    this.#desk.admitted(target);
  }

  /**
   * Only counters can say that an engine stands still: without them nothing is known, and the deadline decides. Not every
   * server counts within a prefill, so a long one is given twice the time that it should take at the pace that prefills have.
   * Some answer for their counters between two steps of the engine only: no answer is no standstill.
   */
  #isHung(target: Target, nowMs: number, pace: number): boolean {
    if (target.attempts.size === 0 || target.progress === null) return false;
    let silentMs = this.#desk.times.hungMs;
    for (const { instance } of target.accounts.values()) {
      const tokens = instance.dispatched.first?.uncachedTokens ?? 0;
      silentMs = Math.max(silentMs, 2000 * pace * tokens * this.#desk.prefillSPerToken);
    }
    const isKnown = target.replica.probeFailures > 0 || nowMs - target.countersMs < silentMs / 2;
    if (!isKnown) silentMs *= unansweredFactor;
    if (nowMs - target.aliveMs < silentMs || nowMs - target.progressMs < silentMs) return false;
    for (const attempt of target.attempts) {
      if (attempt.pausedMs === 0 && nowMs - attempt.startedMs >= silentMs) return true;
    }
    return false;
  }

  #ejectSlow(targets: readonly Target[], nowMs: number): void {
    if (targets.length < 3) return;
    const seen: { target: Target; slowness: number }[] = [];
    for (const target of targets) {
      if (target.ejection !== null) continue;
      let runningS = 0;
      let expectedS = 0;
      for (const { instance } of target.accounts.values()) {
        const running = instance.dispatched.first;
        if (running === null) continue;
        runningS += Math.max(0, nowMs / 1000 - instance.startedS);
        expectedS += running.uncachedTokens * this.#desk.prefillSPerToken;
      }
      const slowness = target.slowness(runningS, expectedS);
      if (slowness !== null) seen.push({ target, slowness });
    }
    if (seen.length < 3) return;
    seen.sort((a, b) => a.slowness - b.slowness);
    const middle = Math.max(1, seen[seen.length >> 1]!.slowness);
    for (const { target, slowness } of seen) if (slowness > slowFactor * middle) this.eject(target, 'slow');
  }

  /** Any answer below 500 is one of a server that lives: not every server has /health. */
  async #probe(replica: Replica): Promise<boolean> {
    const answer = await this.#get(replica, '/health');
    const healthy = answer !== null && answer.status < 500;
    if (healthy) {
      replica.probeFailures = 0;
      replica.probeSuccesses++;
    } else {
      replica.probeSuccesses = 0;
      if (++replica.probeFailures >= failedProbesMax)
        for (const target of replica.targets) this.#down(target);
    }
    return healthy;
  }

  /** Who fails first and then answers no probe is down: that is what an operator must know. */
  #down(target: Target): void {
    this.eject(target, 'down');
    if (target.ejection !== null) target.ejection = { ...target.ejection, reason: 'down' };
  }

  async #pollModels(replica: Replica): Promise<void> {
    const answer = await this.#get(replica, '/v1/models');
    const listed = answer?.status === 200 ? modelsOf(answer.text) : null;
    if (listed === null) return;
    replica.modelsMs = performance.now();
    replica.models = listed.map(({ id }) => id);
    replica.adapters = new Set(listed.filter(({ isAdapter }) => isAdapter).map(({ id }) => id));
    this.#desk.setModels(replica, replica.models);
  }

  async #pollMetrics(replica: Replica): Promise<void> {
    const own = replica.targets.map((target) => dispatchedTo(target));
    const answer = await this.#get(replica, '/metrics');
    if (answer?.status !== 200) return;
    const parsed = parseServerMetrics(answer.text);
    for (const [i, target] of replica.targets.entries()) {
      const metrics = metricsOfRank(parsed, target.rank ?? 0, replica.targets.length);
      if (metrics !== undefined) this.#take(target, metrics, Math.max(own[i]!, dispatchedTo(target)));
    }
  }

  #take(target: Target, { waitingRequests, progress }: ServerMetrics, ownRequests: number): void {
    if (progress !== null) {
      target.countersMs = performance.now();
      if (target.progress === null || progress !== target.progress) target.progressMs = performance.now();
      target.progress = progress;
    }
    const foreign = waitingRequests === null ? 0 : Math.max(0, waitingRequests - ownRequests);
    target.reportedTokens = foreign * this.#desk.meanTokens;
  }

  async #get(replica: Replica, path: string): Promise<{ status: number; text: string } | null> {
    try {
      const { statusCode, body } = await get(
        replica.probes,
        replica.config.url + path,
        this.#desk.times.probeMs,
      );
      const parts: Buffer[] = [];
      let bytes = 0;
      for await (const part of body as AsyncIterable<Buffer>) {
        bytes += part.length;
        if (bytes > bodyBytesMax) return null;
        parts.push(part);
      }
      return { status: statusCode, text: Buffer.concat(parts).toString('utf8') };
    } catch {
      // Whatever went wrong, there was no answer.
      return null;
    }
  }
}

function get(dispatcher: Dispatcher, url: string, timeoutMs: number): ReturnType<typeof fetchFrom> {
  return fetchFrom(url, { dispatcher, signal: AbortSignal.timeout(timeoutMs) });
}

/** How many times longer than given prefills take, by the middle of those seen; 1 before any was. */
function paceOf(targets: readonly Target[]): number {
  const seen = targets.map((target) => target.slowness(0, 0)).filter((slowness) => slowness !== null);
  seen.sort((a, b) => a - b);
  return Math.max(1, seen[seen.length >> 1] ?? 1);
}

/** Requests that the replica may count among its waiting ones, and that the ledger has as such. */
function dispatchedTo(target: Target): number {
  let count = 0;
  for (const { instance } of target.accounts.values()) count += instance.dispatched.size;
  return count;
}

/** Ids in a list of models; null for anything else. */
function modelsOf(text: string): { id: string; isAdapter: boolean }[] | null {
  try {
    const { data } = JSON.parse(text) as { data?: unknown };
    if (!Array.isArray(data)) return null;
    return (data as { id?: unknown; parent?: unknown }[])
      .flatMap(({ id, parent }) =>
        typeof id === 'string' && id !== '' ? { id, isAdapter: typeof parent === 'string' } : [],
      )
      .slice(0, 256);
  } catch {
    return null;
  }
}
