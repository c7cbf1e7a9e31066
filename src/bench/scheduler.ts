/** What the request scheduler costs: assignments through group fetches, at several sizes of the cluster. */
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import {
  Admission,
  type Assignment,
  type EngineCapacity,
  type EngineLoad,
  type EngineRole,
  type RequestDescription,
} from '../scheduler/index.js';

export interface SchedulerBenchOptions {
  /** Engines of each run, a third of them PEs; default 8, 144, 1,152 and 10,000. */
  readonly engines?: readonly number[];
  /** Engines of a group; default 8, a node. */
  readonly groupEngines?: number;
  /** Seconds of each sample; default 1. Each size has five. */
  readonly sampleS?: number;
  /** Requests for the memory measurement; default 100,000. */
  readonly waitingRequests?: number;
  readonly signal?: AbortSignal;
  readonly onProgress?: (step: string) => void;
}

export interface SchedulerSizeResult {
  readonly engines: number;
  readonly groups: number;
  readonly assignments: number;
  /**
   * A second of one core's time, all threads counted: submission, reports, both fetches, all five stages of every
   * request. Median of samples.
   */
  readonly assignmentsPerS: number;
  readonly assignmentSamplesPerS: readonly number[];
  readonly usPerAssignment: number;
  readonly fetchP50Us: number;
  readonly fetchP99Us: number;
  /** Share of a core that 2,000 assignments a second take. */
  readonly coreShareAt2000PerS: number;
}

export interface SchedulerBenchResult {
  readonly sizes: readonly SchedulerSizeResult[];
  /** The least of the sizes. */
  readonly assignmentsPerS: number;
  /** The most of the sizes. */
  readonly fetchP99Us: number;
  readonly bytesPerWaitingRequest: number;
  readonly waitingRequests: number;
}

const blockTokens = 64;
/** Waiting requests that every fetch finds. */
const backlog = 512;
const prefillInFlight = 4;
const decodeInFlight = 12;
const samples = 5;

export function benchScheduler(options: SchedulerBenchOptions = {}): SchedulerBenchResult {
  const {
    engines = [8, 144, 1152, 10_000],
    groupEngines = 8,
    sampleS = 1,
    waitingRequests = 100_000,
  } = options;
  const sizes = engines.map((count) => {
    options.signal?.throwIfAborted();
    options.onProgress?.(`${count} engines`);
    return new Load(count, groupEngines).measure(sampleS);
  });
  options.onProgress?.('memory of waiting requests');
  return {
    sizes,
    assignmentsPerS: Math.min(...sizes.map(({ assignmentsPerS }) => assignmentsPerS)),
    fetchP99Us: Math.max(...sizes.map(({ fetchP99Us }) => fetchP99Us)),
    bytesPerWaitingRequest: waitingBytes(waitingRequests),
    waitingRequests,
  };
}

/** A cluster that never lacks work: a backlog to fetch from, requests that end in order. */
class Load {
  readonly #admission: Admission;
  readonly #groups: Record<EngineRole, { readonly name: string; readonly loads: Report[] }[]>;
  readonly #engines: readonly EngineCapacity[];
  readonly #turn: Record<EngineRole, number> = { prefill: 0, decode: 0 };
  readonly #prefilling = new Fifo<Assignment>();
  readonly #decoding = new Fifo<Assignment>();
  readonly #fetchUs: number[] = [];
  #requests = 0;
  #lastAdmission = 0;
  #assignments = 0;

  constructor(engines: number, groupEngines: number) {
    const prefill = Math.max(1, Math.round(engines / 3));
    this.#engines = [
      ...capacities('prefill', prefill, groupEngines),
      ...capacities('decode', Math.max(1, engines - prefill), groupEngines),
    ];
    this.#admission = new Admission(optionsOf(this.#engines, backlog));
    const groupsOf = (role: EngineRole): { name: string; loads: Report[] }[] => {
      const names = new Set(this.#engines.filter((engine) => engine.role === role).map(({ group }) => group));
      const members = new Map([...names].map((name) => [name, [] as Report[]]));
      for (const { engine, group } of this.#engines) members.get(group)?.push(newReport(engine));
      return [...members].map(([name, loads]) => ({ name, loads }));
    };
    this.#groups = { prefill: groupsOf('prefill'), decode: groupsOf('decode') };
  }

  measure(sampleS: number): SchedulerSizeResult {
    this.#run(sampleS / 2); // until the cluster is full and the code compiled
    this.#fetchUs.length = 0;
    this.#assignments = 0;
    const assignmentSamplesPerS = Array.from({ length: samples }, () => this.#run(sampleS));
    const assignmentsPerS = quantile(assignmentSamplesPerS, 0.5);
    return {
      engines: this.#engines.length,
      groups: this.#groups.prefill.length + this.#groups.decode.length,
      assignments: this.#assignments,
      assignmentsPerS,
      assignmentSamplesPerS,
      usPerAssignment: 1e6 / assignmentsPerS,
      fetchP50Us: quantile(this.#fetchUs, 0.5),
      fetchP99Us: quantile(this.#fetchUs, 0.99),
      coreShareAt2000PerS: 2000 / assignmentsPerS,
    };
  }

  /** Assignments a second of processor time, so that other work on the machine does not count. */
  #run(seconds: number): number {
    const started = performance.now();
    const cpuBefore = process.cpuUsage();
    const before = this.#assignments;
    while (performance.now() - started < seconds * 1000) {
      for (let i = 0; i < 64; i++) this.#round();
    }
    const cpu = process.cpuUsage(cpuBefore);
    return (this.#assignments - before) / ((cpu.user + cpu.system) / 1e6);
  }

  #round(): void {
    const admission = this.#admission;
    while (admission.waiting < backlog) admission.submit(agentRequest(this.#requests++));
    this.#fetch('prefill');
    // Twice as many DE groups as PE groups fetch equally often.
    for (let i = 0; i < 2; i++) {
      for (const assignment of this.#fetch('decode')) {
        this.#prefilling.push(assignment);
        this.#lastAdmission = assignment.admission;
        this.#assignments++;
      }
    }
    const { prefill, decode } = this.#groups;
    const engines = (groups: typeof prefill): number => groups.length * groups[0]!.loads.length;
    while (this.#prefilling.size > prefillInFlight * engines(prefill)) {
      const { request, admission: number } = this.#prefilling.shift();
      admission.complete(request, 'prefill-read', number);
      admission.complete(request, 'decode-read', number);
      admission.complete(request, 'prefill', number);
      admission.complete(request, 'decode-buffer', number);
      this.#decoding.push({ request, admission: number } as Assignment);
    }
    while (this.#decoding.size > decodeInFlight * engines(decode)) {
      const { request, admission: number } = this.#decoding.shift();
      admission.complete(request, 'request', number);
    }
  }

  #fetch(role: EngineRole): readonly Assignment[] {
    const groups = this.#groups[role];
    const { name, loads } = groups[this.#turn[role]++ % groups.length]!;
    for (const load of loads) {
      load.sequence++;
      load.lastAdmission = this.#lastAdmission;
    }
    const started = performance.now();
    const assignments = this.#admission.fetch(name, loads);
    this.#fetchUs.push((performance.now() - started) * 1000);
    return assignments;
  }
}

type Report = { -readonly [K in keyof EngineLoad]: EngineLoad[K] };

function newReport(engine: string): Report {
  return {
    engine,
    sequence: 0,
    unfinishedRequests: 0,
    unfinishedTokens: 0,
    nodeReadQueueBlocks: 0,
    lastAdmission: 0,
  };
}

/** An array that is read at its head without being moved each time. */
class Fifo<T> {
  #items: T[] = [];
  #head = 0;

  get size(): number {
    return this.#items.length - this.#head;
  }

  push(item: T): void {
    this.#items.push(item);
  }

  shift(): T {
    const item = this.#items[this.#head++]!;
    if (this.#head > 1024 && 2 * this.#head > this.#items.length) {
      this.#items = this.#items.slice(this.#head);
      this.#head = 0;
    }
    return item;
  }
}

function capacities(role: EngineRole, count: number, groupEngines: number): EngineCapacity[] {
  return Array.from({ length: count }, (_, i) => ({
    engine: `${role}-${i}`,
    node: `${role}-node-${Math.floor(i / 8)}`,
    group: `${role}-group-${Math.floor(i / groupEngines)}`,
    role,
    bufferBlocks: 20_000,
    hbmBlocks: role === 'prefill' ? 0 : 20_000,
    readRateBytesPerS: 50e9,
  }));
}

function optionsOf(
  engines: readonly EngineCapacity[],
  maxWaiting: number,
): ConstructorParameters<typeof Admission>[0] {
  return {
    engines,
    policy: 'shorter-queue',
    blockTokens,
    blockBytes: blockTokens * 48_068,
    decodeSpareBlocks: 2,
    // Beyond the backlog, those that have a PE and wait for the fetch of their DE's group.
    maxWaiting: maxWaiting + 2 * prefillInFlight * engines.length,
    seed: 1,
    betaTokens: 3 * prefillInFlight * 34_000,
  };
}

/** Turns as in the 64K data set: 4 K to 64 K tokens of context, all but the last few hundred stored. */
function agentRequest(index: number): RequestDescription {
  const promptTokens = 4096 + ((index * 7919) % 60_000);
  const hitTokens = Math.floor((promptTokens - 429) / blockTokens) * blockTokens;
  return { request: `agent-${index % 4096}/turn-${index}`, promptTokens, hitTokens, maxNewTokens: 176 };
}

function waitingBytes(count: number): number {
  setFlagsFromString('--expose-gc');
  const collect = runInNewContext('gc') as () => void;
  const engines = [...capacities('prefill', 8, 8), ...capacities('decode', 16, 8)];
  const admission = new Admission(optionsOf(engines, count));
  collect();
  const before = process.memoryUsage();
  for (let i = 0; i < count; i++) admission.submit(agentRequest(i));
  collect();
  const after = process.memoryUsage();
  const bytes = after.heapUsed - before.heapUsed + after.arrayBuffers - before.arrayBuffers;
  return admission.waiting === count ? bytes / count : Number.NaN;
}

function quantile(values: readonly number[], q: number): number {
  const sorted = [...values].sort((a, b) => a - b);
  return sorted[Math.min(sorted.length - 1, Math.floor(q * sorted.length))]!;
}
