/** One mode of a replay: every session's turns, one after the other, sessions side by side. */
import { rmSync } from 'node:fs';
import { monitorEventLoopDelay, performance } from 'node:perf_hooks';
import { DualPathError, isDualPathError } from '../errors/index.js';
import { errorFields } from '../log/index.js';
import { SessionTokens, type Session, type Workload } from '../trace/index.js';
import type { RequestFailure } from '../scheduler/index.js';
import { Cluster } from './cluster.js';
import type { OpenCluster, ReplayCluster } from './cluster-interface.js';
import type { ClusterOptions, ReplayMode } from './options.js';
import type { ModeResult, TurnRecord } from './result.js';
import { verifyStore } from './verify.js';

interface Running {
  readonly prompt: Uint32Array;
  readonly reply: Uint32Array;
  /** Whether it is submitted again, should its engine be lost. */
  readonly again: boolean;
  /** The prefill engine may say so after the decode engine has finished: a batch is settled as a whole. */
  prefilled(finishedUs: number): void;
  prefillFailed(): void;
  resolve(): void;
  reject(error: unknown): void;
}

export interface ReplayHooks {
  readonly signal?: AbortSignal;
  /** After each turn. */
  readonly onTurn?: (turnsDone: number, turn: TurnRecord) => void;
  /** Called with the open cluster; tests inject faults here. */
  readonly onCluster?: (cluster: Cluster) => void;
  /** The cluster is open, whatever engines it has; it is closed when the replay returns. */
  readonly onOpen?: (cluster: ReplayCluster) => void;
  /** A request ended with an error, or is tried once more after one. */
  readonly onError?: (error: Error, retried: boolean) => void;
  /** Left out: engines of this process. */
  readonly openCluster?: OpenCluster;
}

/** Sequences that may decode at once on an engine. */
const maxLanes = 256;

/** Times that a turn is submitted while engines are lost under it; each time, the scheduler tries it on two pairs of engines. */
const maxSubmits = 4;

/** Runs a workload through a cluster in one mode and checks every byte. The store is made and removed. */
export async function replayMode(
  workload: Workload,
  options: ClusterOptions,
  mode: ReplayMode,
  hooks: ReplayHooks = {},
): Promise<ModeResult> {
  const run = new ReplayRun(workload, options, mode, hooks);
  try {
    await run.open();
    return await run.run();
  } finally {
    await run.close();
    rmSync(options.storePath, { recursive: true, force: true });
  }
}

class ReplayRun {
  readonly #workload: Workload;
  readonly #mode: ReplayMode;
  readonly #hooks: ReplayHooks;
  readonly #running = new Map<string, Running>();
  readonly #turns: TurnRecord[] = [];
  readonly #options: ClusterOptions;
  readonly #retries: { request: string; side: string; cause: string }[] = [];
  #cluster!: ReplayCluster;
  #persistError: DualPathError | undefined;
  #failed: Error | undefined;

  constructor(workload: Workload, options: ClusterOptions, mode: ReplayMode, hooks: ReplayHooks) {
    this.#workload = workload;
    this.#mode = mode;
    this.#options = options;
    this.#hooks = hooks;
  }

  async open(): Promise<void> {
    const lanes = Math.min(this.#workload.sessions.length, maxLanes);
    const open: OpenCluster = this.#hooks.openCluster ?? ((...args) => Cluster.open(...args));
    this.#cluster = await open(this.#options, this.#mode, lanes, {
      prompts: {
        prompt: (request) => this.#of(request).prompt,
        maxNewTokens: (request) => this.#of(request).reply.length,
      },
      reply: (request) => this.#of(request).reply,
      prefilled: (request, finishedUs) => this.#running.get(request)?.prefilled(finishedUs),
      prefillFailed: (request) => this.#running.get(request)?.prefillFailed(),
      ended: (request, persistError) => {
        this.#persistError ??= persistError;
        this.#running.get(request)?.resolve();
      },
      failed: (failure) => {
        const { request, error } = failure;
        const running = this.#running.get(request);
        if (running?.again === true && isDualPathError(error, 'PEER_LOST')) this.#retried(failure);
        else {
          this.#hooks.onError?.(error, false);
          this.#options.log?.warn(
            { request_id: this.#cluster.idOf(request), ...errorFields(error) },
            'request failed',
          );
        }
        running?.reject(error);
      },
      retried: (failure) => this.#retried(failure),
      stopped: (error) => this.#stop(error),
    });
    this.#hooks.onOpen?.(this.#cluster);
    if (this.#cluster instanceof Cluster) this.#hooks.onCluster?.(this.#cluster);
  }

  #retried({ request, assignment, error }: RequestFailure): void {
    this.#hooks.onError?.(error, true);
    this.#options.log?.warn(
      { request_id: this.#cluster.idOf(request), ...errorFields(error) },
      'request tried again',
    );
    this.#retries.push({ request, side: assignment?.side ?? 'none', cause: error.message });
  }

  #of(request: string): Running {
    const running = this.#running.get(request);
    if (running === undefined) throw new DualPathError('CANCELLED', `request '${request}' is over`);
    return running;
  }

  async run(): Promise<ModeResult> {
    const delay = monitorEventLoopDelay({ resolution: 1 });
    delay.enable();
    const cpuBefore = process.cpuUsage();
    const startedMs = performance.now();
    await this.#allSessions();
    const elapsedS = (performance.now() - startedMs) / 1000;
    const cpu = process.cpuUsage(cpuBefore);
    delay.disable();
    const statistics = await this.#cluster.totals();
    const store = await verifyStore(this.#cluster.store, this.#conversations(), this.#hooks.signal);
    return {
      mode: this.#mode,
      elapsedS,
      cpuS: (cpu.user + cpu.system) / 1e6,
      eventLoopDelayP99Ms: delay.percentile(99) / 1e6,
      turns: this.#turns,
      store,
      persistError: this.#persistError,
      retries: this.#retries,
      ...statistics,
    };
  }

  /** The first failure ends the run: what came of the other sessions could no longer be compared. */
  #stop(error: unknown): void {
    this.#failed ??= error instanceof Error ? error : new DualPathError('INTERNAL', String(error));
    for (const running of this.#running.values()) running.reject(this.#failed);
  }

  async #allSessions(): Promise<void> {
    const { signal } = this.#hooks;
    const onAbort = (): void => this.#stop(new DualPathError('CANCELLED', 'the replay was interrupted'));
    signal?.addEventListener('abort', onAbort, { once: true });
    if (signal?.aborted === true) onAbort();
    const waiting = this.#workload.sessions.values();
    const lane = async (): Promise<void> => {
      for (const session of waiting) {
        await this.#session(session).catch((error: unknown) => this.#stop(error));
      }
    };
    const lanes = Math.min(this.#options.concurrency, this.#workload.sessions.length);
    await Promise.all(Array.from({ length: lanes }, lane));
    signal?.removeEventListener('abort', onAbort);
    if (this.#failed !== undefined) throw this.#failed;
  }

  async #session(session: Session): Promise<void> {
    const tokens = new SessionTokens(session, this.#workload.seed);
    for (let turn = 0; turn < session.turns.length && this.#failed === undefined; turn++) {
      await this.#turn(
        `${session.id}#${turn}`,
        tokens.promptOf(turn),
        tokens.replyOf(turn),
        session.turns[turn]!.traceHitTokens,
      );
    }
  }

  async #turn(
    request: string,
    prompt: Uint32Array,
    reply: Uint32Array,
    traceHitTokens: number | null,
  ): Promise<void> {
    const submittedUs = hrtimeUs();
    let attempt = 1;
    let once = await this.#submit(request, prompt, reply, attempt);
    // An engine was lost under it: as its agent would, and with what is stored by now.
    while (once.lost) once = await this.#submit(request, prompt, reply, ++attempt);
    const { hitTokens, prefilledUs } = once;
    const ttftMs = (prefilledUs - submittedUs) / 1000;
    const turn = {
      ...{ request, submittedUs },
      promptTokens: prompt.length,
      hitTokens,
      traceHitTokens,
      outputTokens: reply.length,
      ttftMs,
    };
    this.#turns.push(turn);
    const facts = { prompt_tokens: prompt.length, hit_tokens: hitTokens, max_new_tokens: reply.length };
    this.#options.log?.info(
      { request_id: this.#cluster.idOf(request), ttft_ms: ttftMs, ...facts },
      'request ended',
    );
    this.#hooks.onTurn?.(this.#turns.length, turn);
  }

  /** @throws what ended it, unless it is to be submitted again */
  async #submit(
    request: string,
    prompt: Uint32Array,
    reply: Uint32Array,
    attempt: number,
  ): Promise<{ hitTokens: number; lost: false; prefilledUs: number } | { lost: true }> {
    const chain = await this.#cluster.front.lookup(prompt);
    const { hitTokens } = chain;
    chain.release();
    const facts = { prompt_tokens: prompt.length, hit_tokens: hitTokens, max_new_tokens: reply.length };
    this.#options.log?.debug({ request_id: this.#cluster.idOf(request), ...facts }, 'request submitted');
    const again = attempt < maxSubmits;
    const over = new Promise<number>((resolve, reject) => {
      this.#running.set(request, { prompt, reply, again, reject, ...untilBoth(resolve) });
    });
    over.catch(() => undefined);
    try {
      await this.#cluster.submit({
        ...{ request, promptTokens: prompt.length, hitTokens, maxNewTokens: reply.length },
      });
      return { hitTokens, lost: false, prefilledUs: await over };
    } catch (error) {
      if (!isDualPathError(error)) throw error;
      if (again && error.code === 'PEER_LOST' && this.#failed === undefined) return { lost: true };
      throw new DualPathError(error.code, `request '${request}': ${error.message}`, error.details, {
        cause: error,
      });
    } finally {
      this.#running.delete(request);
    }
  }

  *#conversations(): Generator<Uint32Array> {
    for (const session of this.#workload.sessions) {
      yield new SessionTokens(session, this.#workload.seed).conversationOf(session.turns.length - 1);
    }
  }

  async close(): Promise<void> {
    await (this.#cluster as ReplayCluster | undefined)?.close();
  }
}

/** Resolves with the time of the prefill's end when that and the end of all are known, in whatever order. */
function untilBoth(
  resolve: (prefilledUs: number) => void,
): Pick<Running, 'prefilled' | 'prefillFailed' | 'resolve'> {
  let prefilledUs: number | undefined;
  let ended = false;
  const settle = (): void => {
    if (ended && prefilledUs !== undefined) resolve(prefilledUs);
  };
  const prefilled = (finishedUs: number): void => {
    prefilledUs = finishedUs;
    settle();
  };
  return {
    prefilled,
    // Its last bytes arrived, the word that they had did not come back.
    prefillFailed: () => {
      if (ended) prefilled(hrtimeUs());
    },
    resolve: () => {
      ended = true;
      settle();
    },
  };
}

/** CLOCK_MONOTONIC, as native timestamps are. */
function hrtimeUs(): number {
  return Number(process.hrtime.bigint() / 1000n);
}
