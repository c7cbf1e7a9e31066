/**
 * A cluster in virtual time, as small as the balance and tail figures allow: storage links that serve in order,
 * prefill groups that compute in lock-step under the compute quota, decode engines whose step time grows with
 * their sequences. It drives a scheduler through the calls that engines make, and nothing else knows of it, so
 * a full simulator can take its place. Not modelled: the compute network, writes, transfers within a node.
 */
import {
  packBatch,
  type Assignment,
  type EngineCapacity,
  type EngineLoad,
  type RequestDescription,
  type Stage,
  type TimeModel,
} from '../../scheduler/index.js';
import { EventQueue } from './events.js';
import { StorageLink } from './link.js';

/** What the model asks of a scheduler; `Admission` is one. */
export interface ModelScheduler {
  submit(description: RequestDescription, nowS: number): void;
  fetch(group: string, loads: readonly EngineLoad[]): readonly Assignment[];
  complete(request: string, stage: Stage, admission: number): unknown;
}

export interface ClusterOptions {
  readonly engines: readonly EngineCapacity[];
  readonly blockTokens: number;
  readonly blockBytes: number;
  readonly timeModel: TimeModel;
  readonly quotaS: number;
  /** Each group fetches so often. */
  readonly fetchS: number;
  /** Seconds of a decode step with no sequence, and more with each. */
  readonly decodeStepS: number;
  readonly decodeStepPerSequenceS: number;
  /** What a node's link really reads a second; default what its engines say. */
  readonly linkBytesPerS?: (engine: EngineCapacity) => number;
  /** Prefill order within an engine; default by the time its reads are complete. */
  readonly shorterFirst?: (a: PrefillState, b: PrefillState) => number;
}

/** One request in the model. */
export interface ModelRequest extends RequestDescription {
  readonly submittedS: number;
}

export interface PrefillState {
  readonly request: ModelRequest;
  readonly assignment: Assignment;
  readonly readyS: number;
  cachedTokens: number;
  remainingTokens: number;
}

export interface ClusterHooks {
  /** The prompt is computed. */
  readonly prefilled?: (request: ModelRequest, ttftS: number) => void;
  /** The last token is out. */
  readonly ended: (request: ModelRequest) => void;
  /** One forward of a prefill group: attention seconds of each engine. */
  readonly forward?: (attentionS: readonly number[]) => void;
}

interface PrefillGroup {
  readonly name: string;
  readonly queues: Map<string, PrefillState[]>;
  computing: boolean;
}

const maxBatchRequests = 64;

export class ClusterModel {
  readonly events = new EventQueue();
  /** By node, in the order of the engines. */
  readonly links = new Map<string, StorageLink>();
  readonly #options: ClusterOptions;
  readonly #scheduler: ModelScheduler;
  readonly #hooks: ClusterHooks;
  readonly #engines = new Map<string, EngineCapacity>();
  readonly #prefillGroups = new Map<string, PrefillGroup>();
  readonly #decoding = new Map<string, number>();
  /** By group, an engine of each of its nodes. */
  readonly #reporters = new Map<string, EngineCapacity[]>();
  #reports = 0;
  readonly #requests = new Map<string, ModelRequest>();

  constructor(options: ClusterOptions, scheduler: ModelScheduler, hooks: ClusterHooks) {
    this.#options = options;
    this.#scheduler = scheduler;
    this.#hooks = hooks;
    const groups = new Set<string>();
    for (const engine of options.engines) {
      this.#engines.set(engine.engine, engine);
      groups.add(engine.group);
      if (!this.links.has(engine.node)) {
        const rate = options.linkBytesPerS?.(engine) ?? engine.readRateBytesPerS;
        this.links.set(engine.node, new StorageLink(this.events, rate));
        this.#reporters.set(engine.group, [...(this.#reporters.get(engine.group) ?? []), engine]);
      }
      if (engine.role === 'decode') {
        this.#decoding.set(engine.engine, 0);
        continue;
      }
      const group = this.#prefillGroups.get(engine.group) ?? newPrefillGroup(engine.group);
      group.queues.set(engine.engine, []);
      this.#prefillGroups.set(engine.group, group);
    }
    // Spread over the period, as leaders that do not know of each other.
    let place = 0;
    for (const group of groups)
      this.events.after((place++ / groups.size) * options.fetchS, () => this.#fetch(group));
  }

  submit(description: RequestDescription): void {
    const request = { ...description, submittedS: this.events.nowS };
    this.#requests.set(description.request, request);
    this.#scheduler.submit(description, this.events.nowS);
  }

  #fetch(group: string): void {
    const loads = (this.#reporters.get(group) ?? []).map(({ engine, node }) => ({
      engine,
      sequence: ++this.#reports,
      unfinishedRequests: 0,
      unfinishedTokens: 0,
      nodeReadQueueBlocks: 0,
      nodeRead: this.links.get(node)!.report(),
    }));
    for (const assignment of this.#scheduler.fetch(group, loads)) this.#start(assignment);
    this.events.after(this.#options.fetchS, () => this.#fetch(group));
  }

  #start(assignment: Assignment): void {
    const { prefillReadBlocks, decodeReadBlocks, prefillEngine, decodeEngine } = assignment;
    let reads = 1;
    const done = (stage?: Stage): void => {
      if (stage) this.#complete(assignment, stage);
      if (--reads === 0) this.#ready(assignment);
    };
    const read = (engine: string, blocks: number, stage: Stage): void => {
      if (blocks === 0) return;
      reads++;
      const link = this.links.get(this.#engines.get(engine)!.node)!;
      link.read(blocks * this.#options.blockBytes, () => done(stage));
    };
    read(prefillEngine, prefillReadBlocks, 'prefill-read');
    read(decodeEngine, decodeReadBlocks, 'decode-read');
    done();
  }

  #ready(assignment: Assignment): void {
    const request = this.#requests.get(assignment.request)!;
    const group = this.#prefillGroups.get(this.#engines.get(assignment.prefillEngine)!.group)!;
    const state = {
      request,
      assignment,
      readyS: this.events.nowS,
      cachedTokens: request.hitTokens,
      // The last token is always computed: its output is the first new token.
      remainingTokens: Math.max(1, request.promptTokens - request.hitTokens),
    };
    const queue = group.queues.get(assignment.prefillEngine)!;
    queue.push(state);
    if (this.#options.shorterFirst) queue.sort(this.#options.shorterFirst);
    if (!group.computing) this.#forward(group);
  }

  /** The engines of a group meet in collectives: a forward takes as long as its slowest engine. */
  #forward(group: PrefillGroup): void {
    const { timeModel, quotaS, blockTokens } = this.#options;
    const limits = { quotaS, blockTokens, maxBatchBlocks: 1 << 20, maxRequests: maxBatchRequests };
    const parts: {
      readonly state: PrefillState;
      readonly newTokens: number;
      readonly queue: PrefillState[];
    }[] = [];
    const attentionS: number[] = [];
    let totalS = 0;
    for (const queue of group.queues.values()) {
      const works = queue.slice(0, maxBatchRequests).map(({ request, cachedTokens, remainingTokens }) => ({
        request: request.request,
        cachedTokens,
        remainingTokens,
      }));
      const batch = packBatch(works, timeModel, limits);
      attentionS.push(batch.attentionS);
      totalS = Math.max(totalS, batch.totalS);
      for (const { index, newTokens } of batch.entries)
        parts.push({ state: queue[index]!, newTokens, queue });
    }
    group.computing = parts.length > 0;
    if (!group.computing) return;
    this.#hooks.forward?.(attentionS);
    this.events.after(totalS, () => {
      for (const { state, newTokens, queue } of parts) {
        state.cachedTokens += newTokens;
        state.remainingTokens -= newTokens;
        if (state.remainingTokens > 0) continue;
        queue.splice(queue.indexOf(state), 1);
        this.#prefilled(state);
      }
      this.#forward(group);
    });
  }

  #prefilled({ request, assignment }: PrefillState): void {
    this.#complete(assignment, 'prefill');
    this.#complete(assignment, 'decode-buffer');
    this.#hooks.prefilled?.(request, this.events.nowS - request.submittedS);
    const { decodeEngine } = assignment;
    const sequences = this.#decoding.get(decodeEngine)! + 1;
    this.#decoding.set(decodeEngine, sequences);
    const { decodeStepS, decodeStepPerSequenceS } = this.#options;
    const stepS = decodeStepS + decodeStepPerSequenceS * sequences;
    this.events.after(request.maxNewTokens * stepS, () => {
      this.#decoding.set(decodeEngine, this.#decoding.get(decodeEngine)! - 1);
      this.#complete(assignment, 'request');
      this.#requests.delete(request.request);
      this.#hooks.ended(request);
    });
  }

  #complete({ request, admission }: Assignment, stage: Stage): void {
    this.#scheduler.complete(request, stage, admission);
  }
}

function newPrefillGroup(name: string): PrefillGroup {
  return { name, queues: new Map(), computing: false };
}
