/** Who gives a replay's requests to engine processes: the replay's own process, or one of `dualpath serve`. */
import { DualPathError, type ErrorCode } from '../errors/index.js';
import type { ClusterEvents } from '../replay/index.js';
import { RequestClient, type EndpointOptions, type RequestProgress } from '../scheduler-client/index.js';
import {
  LocalScheduler,
  type AdmissionOptions,
  type Assignment,
  type EngineLoad,
  type RequestDescription,
  type RequestFailure,
  type Stage,
} from '../scheduler/index.js';

export interface RunScheduler {
  /** Of this process. */
  readonly local: LocalScheduler | undefined;
  submit(request: RequestDescription): Promise<void>;
  /** What the scheduler and the engines call a request of the replay. */
  idOf(request: string): string;
  /** The replay's name of what engines speak of. */
  nameOf(request: string): string;
  /** An engine says that its sequence is over. */
  ended(request: string, persistError: DualPathError | undefined): void;
  /** An engine says that the prompt's KV is at the decode engine. */
  prefilled(request: string, finishedUs: number): void;
  engineLost(engine: string): void;
  close(): Promise<void>;
}

/** What an engine says to the scheduler and then to the replay: it may die in between. */
interface Said {
  prefillEngine?: string;
  /** Who told the scheduler that the sequence is over: perhaps before the prefill engine's word came. */
  endedBy?: string;
  /** The prefill engine gave the request up or died: it will not say when the prompt's KV was there. */
  prefillLost: boolean;
  /** The replay knows. */
  prefilled: boolean;
  ended: boolean;
}

export class OwnScheduler implements RunScheduler {
  readonly local: LocalScheduler;
  readonly #events: ClusterEvents;
  readonly #said = new Map<string, Said>();

  /** @param cancel ends a request at both its engines */
  constructor(options: AdmissionOptions, events: ClusterEvents, cancel: (failure: RequestFailure) => void) {
    this.#events = events;
    this.local = new LocalScheduler(
      options,
      (failure) => {
        this.#said.delete(failure.request);
        cancel(failure);
        events.failed(failure);
      },
      (failure) => {
        this.#said.set(failure.request, nothingSaid());
        cancel(failure);
        events.retried(failure);
      },
    );
  }

  async submit(request: RequestDescription): Promise<void> {
    this.#said.set(request.request, nothingSaid());
    try {
      await this.local.submit(request);
    } catch (error) {
      this.#said.delete(request.request);
      throw error;
    }
  }

  idOf(request: string): string {
    return request;
  }

  nameOf(request: string): string {
    return request;
  }

  async fetch(group: string, loads: readonly EngineLoad[], signal: AbortSignal): Promise<Assignment[]> {
    const assignments = await this.local.fetch(group, loads, signal);
    for (const { request, prefillEngine } of assignments) {
      const said = this.#said.get(request);
      if (said !== undefined) said.prefillEngine = prefillEngine;
    }
    return assignments;
  }

  complete(engine: string, request: string, stage: Stage, admission: number | undefined): void {
    if (!this.local.complete(request, stage, admission)) return;
    const said = this.#said.get(request);
    if (said !== undefined && stage === 'request') said.endedBy = engine;
  }

  /** @param prefill an engine of that role says so */
  fail(request: string, error: DualPathError, admission: number | undefined, prefill: boolean): void {
    const said = this.#said.get(request);
    this.local.fail(request, error, admission);
    // Another one: it is tried again.
    if (!prefill || said === undefined || said !== this.#said.get(request)) return;
    said.prefillLost = true;
    this.#settle(request, said);
  }

  ended(request: string, persistError: DualPathError | undefined): void {
    this.#events.ended(request, persistError);
    const said = this.#said.get(request);
    if (said === undefined) return;
    said.ended = true;
    this.#settle(request, said);
  }

  prefilled(request: string, finishedUs: number): void {
    this.#events.prefilled(request, finishedUs);
    const said = this.#said.get(request);
    if (said === undefined) return;
    said.prefilled = true;
    this.#settle(request, said);
  }

  engineLost(engine: string): void {
    this.local.engineLost(engine);
    for (const [request, said] of this.#said) {
      said.prefillLost ||= said.prefillEngine === engine;
      if (said.endedBy === engine && !said.ended) this.ended(request, undefined);
      else this.#settle(request, said);
    }
  }

  #settle(request: string, said: Said): void {
    if (!said.ended || !(said.prefilled || said.prefillLost)) return;
    this.#said.delete(request);
    if (!said.prefilled) this.#events.prefillFailed(request);
  }

  close(): Promise<void> {
    this.local.close();
    return Promise.resolve();
  }
}

function nothingSaid(): Said {
  return { prefillLost: false, prefilled: false, ended: false };
}

interface Running {
  prefillEngine: string;
  attempts: number;
  /** Its prefill engine has died. */
  prefillLost: boolean;
  prefilled: boolean;
  ended: boolean;
}

const clientName = 'replay';

/** The scheduler's word counts: a request has ended when it says so, whatever engines have said, or could not say any more. */
export class ServedScheduler implements RunScheduler {
  readonly local = undefined;
  readonly #client: RequestClient;
  readonly #events: ClusterEvents;
  readonly #running = new Map<string, Running>();

  constructor(options: EndpointOptions & { readonly model: string }, events: ClusterEvents) {
    this.#client = new RequestClient({ ...options, client: clientName });
    this.#events = events;
  }

  async submit({ request, promptTokens, hitTokens, maxNewTokens }: RequestDescription): Promise<void> {
    const running: Running = {
      ...{ prefillEngine: '', attempts: 0 },
      ...{ prefillLost: false, prefilled: false, ended: false },
    };
    this.#running.set(request, running);
    const { accepted, ended } = this.#client.submit({
      ...{ key: request, promptTokens, hitTokens, maxNewTokens },
      progress: true,
      onProgress: (progress) => this.#progress(request, running, progress),
    });
    try {
      await accepted;
    } catch (error) {
      this.#running.delete(request);
      throw error;
    }
    ended.then(
      () => {
        running.ended = true;
        this.#events.ended(request, undefined);
        this.#settle(request, running);
      },
      (error: Error) => {
        this.#running.delete(request);
        this.#events.failed({ request, assignment: undefined, error });
      },
    );
  }

  #progress(request: string, running: Running, { prefillEngine, decodeEngine }: RequestProgress): void {
    if (prefillEngine === undefined) return;
    running.prefillEngine = prefillEngine;
    running.prefillLost = false;
    if (++running.attempts === 1) return;
    const message = `given to ${prefillEngine} and ${decodeEngine} after the engines before could not go on`;
    const code: ErrorCode = 'PEER_LOST';
    this.#events.retried({ request, assignment: undefined, error: new DualPathError(code, message) });
  }

  /** A prefill engine that died with its work done cannot say when that was. */
  #settle(request: string, running: Running): void {
    if (!running.ended) return;
    if (running.prefilled) this.#running.delete(request);
    else if (running.prefillLost) {
      this.#running.delete(request);
      this.#events.prefillFailed(request);
    }
  }

  idOf(request: string): string {
    return `${clientName}/${request}`;
  }

  nameOf(request: string): string {
    return request.slice(request.indexOf('/') + 1);
  }

  ended(request: string, persistError: DualPathError | undefined): void {
    if (persistError !== undefined) this.#events.ended(request, persistError);
  }

  prefilled(request: string, finishedUs: number): void {
    const running = this.#running.get(request);
    if (running === undefined) return;
    running.prefilled = true;
    this.#events.prefilled(request, finishedUs);
    this.#settle(request, running);
  }

  engineLost(engine: string): void {
    for (const [request, running] of this.#running) {
      running.prefillLost ||= running.prefillEngine === engine;
      this.#settle(request, running);
    }
  }

  async close(): Promise<void> {
    await this.#client.close();
  }
}
