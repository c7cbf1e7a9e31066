import type { EngineLoad } from '../scheduler/index.js';
import { AgentPool, setHits, type Agent } from './agents.js';
import { DecodeEngine } from './decode-engine.js';
import { EventHeap } from './event-heap.js';
import { Persistence } from './persistence.js';
import { PrefillGroups } from './prefill-groups.js';
import { Recorder } from './recorder.js';
import type { SimulatedScheduler } from './round-robin.js';
import { capacities, schedulerOf } from './schedulers.js';
import type { Arrivals, ClusterSettings, StopRules } from './settings.js';
import { StorageLink } from './storage-link.js';
import type { SimulatedWorkload } from './workload.js';

const arrives = 0;
const submits = 1;
const admits = 2;
const prefillHasRead = 3;
const decodeHasRead = 4;
const forwardEnds = 5;
const joinsDecode = 6;
const decodeEnds = 7;
const checks = 8;
const writeEnds = 9;

export type Ending = 'complete' | 'steady' | 'overloaded' | 'out of time' | 'interrupted';

/** Sequences that may decode at once on an engine. */
const maxSequences = 4096;
const checkS = 50;
/** The paper's rule for online runs: steady is within 5 % of half an hour before. */
const steadyShare = 0.05;

/**
 * A cluster in virtual time. It drives a scheduler of src/scheduler through the calls that engines make and knows
 * nothing of how it decides.
 */
export class Simulation {
  readonly events = new EventHeap();
  readonly recorder: Recorder;
  readonly prefillLinks: readonly StorageLink[];
  readonly decodeLinks: readonly StorageLink[];
  readonly prefill: PrefillGroups;
  readonly decode: readonly DecodeEngine[];
  readonly agents: AgentPool;
  nowS = 0;
  ending: Ending = 'complete';
  handled = 0;
  readonly #persistence: Persistence;
  readonly #settings: ClusterSettings;
  readonly #stop: StopRules;
  readonly #scheduler: SimulatedScheduler;
  readonly #engines = new Map<string, number>();
  readonly #byRequest = new Map<string, Agent>();
  readonly #decodeDueS: Float64Array;
  #admitAtS = Infinity;

  constructor(settings: ClusterSettings, workload: SimulatedWorkload, arrivals: Arrivals, stop: StopRules) {
    this.#settings = settings;
    this.#stop = stop;
    this.recorder = new Recorder(stop.warmupS ?? 0);
    this.agents = new AgentPool(workload, arrivals, settings.seed);
    const engines = capacities(settings);
    for (const [index, { engine }] of engines.entries()) this.#engines.set(engine, index);
    this.#scheduler = schedulerOf(settings, engines, {
      nowS: () => this.nowS,
      agent: (request) => this.#byRequest.get(request)!,
    });
    const link = (): StorageLink => new StorageLink(settings.snicBytesPerS);
    this.prefillLinks = Array.from({ length: settings.prefillNodes }, link);
    this.decodeLinks = Array.from({ length: settings.decodeNodes }, (_, node) =>
      node === 0 ? new StorageLink(settings.snicBytesPerS * settings.firstDecodeLinkShare) : link(),
    );
    // The other direction of the same NICs.
    this.#persistence = new Persistence(settings, {
      due: (timeS, node) => this.events.add(timeS, writeEnds, node),
      agent: (slot) => this.agents.agents[slot]!,
      promptStored: (agent) => {
        if (agent.inHbm) this.#freeDecodeBuffer(agent);
      },
      stored: (agent) => {
        if (agent.isDecoded) this.#replied(agent);
      },
    });
    this.prefill = new PrefillGroups(settings);
    const { decodeBaseS, decodePerSequenceS, decodePerContextTokenS } = settings;
    const stepS = (sequences: number, tokens: number): number =>
      decodeBaseS + decodePerSequenceS * sequences + decodePerContextTokenS * tokens;
    const decodeEngines = settings.decodeNodes * settings.enginesPerNode;
    this.decode = Array.from({ length: decodeEngines }, () => new DecodeEngine(stepS, maxSequences));
    this.#decodeDueS = new Float64Array(decodeEngines).fill(Infinity);
    this.#nextArrival();
    this.events.add(checkS, checks, 0);
  }

  /** Handles up to `count` events; false when the run is over. */
  advance(count: number): boolean {
    const { events } = this;
    for (let left = count; left > 0; left--) {
      if (!events.take()) return false;
      if (events.timeS > this.#stop.maxVirtualS) return this.#end('out of time');
      this.nowS = events.timeS;
      this.handled++;
      if (events.kind === checks ? !this.#check() : !this.#handle(events.kind, events.index)) return false;
    }
    return true;
  }

  get writtenBytes(): number {
    return this.#persistence.writtenBytes;
  }

  get waiting(): number {
    return this.#scheduler.waiting;
  }

  #handle(kind: number, index: number): boolean {
    if (kind === forwardEnds) this.#forwardEnd(index);
    else if (kind === decodeEnds) this.#decodeEnd(index);
    else if (kind === joinsDecode) this.#join(this.agents.agents[index]!);
    else if (kind === prefillHasRead) this.#hasRead(this.agents.agents[index]!, 'prefill-read');
    else if (kind === decodeHasRead) this.#hasRead(this.agents.agents[index]!, 'decode-read');
    else if (kind === admits) this.#admit();
    else if (kind === writeEnds) this.#persistence.ended(index, this.nowS);
    else if (kind === submits) this.#submit(this.agents.agents[index]!);
    else this.#arrive();
    return true;
  }

  #end(ending: Ending): false {
    this.ending = ending;
    return false;
  }

  /** Every 50 s: whether the run is over, or makes no sense any more. */
  #check(): boolean {
    const { agents, recorder } = this;
    const { overloadTtftS, windowS = 150, steadyAfterS = Infinity, warmupS = 0 } = this.#stop;
    if (agents.active === 0 && agents.nextArrivalS === Infinity) return false;
    if (overloadTtftS !== undefined && this.nowS >= warmupS + windowS) {
      const ttft = recorder.ttftBetween(this.nowS - windowS, this.nowS);
      if ((ttft ?? Infinity) > overloadTtftS) return this.#end('overloaded');
      const beforeS = this.nowS - steadyAfterS;
      const before =
        beforeS < warmupS + windowS ? undefined : recorder.ttftBetween(beforeS - windowS, beforeS);
      if (before !== undefined && Math.abs(ttft! / before - 1) <= steadyShare) return this.#end('steady');
    }
    this.events.add(this.nowS + checkS, checks, 0);
    return true;
  }

  #nextArrival(): void {
    if (this.agents.nextArrivalS < Infinity) this.events.add(this.agents.nextArrivalS, arrives, 0);
  }

  #arrive(): void {
    this.#passed();
    this.#submit(this.agents.arrive());
    this.#nextArrival();
  }

  #passed(): void {
    this.recorder.passed(this.nowS, this.agents.active, this.agents.contextTokens);
  }

  #submit(agent: Agent): void {
    const { script, turn, name } = agent;
    const promptTokens = script.promptTokens[turn]!;
    const hitTokens = script.hitTokens[turn]!;
    const maxNewTokens = script.outputTokens[turn]!;
    agent.submittedS = this.nowS;
    setHits(agent, hitTokens);
    this.#byRequest.set(name, agent);
    this.#scheduler.submit({ request: name, promptTokens, hitTokens, maxNewTokens }, this.nowS);
    const { recorder } = this;
    recorder.requests++;
    recorder.promptTokens += promptTokens;
    recorder.outputTokens += maxNewTokens;
    this.#admitSoon();
  }

  /** Groups fetch at multiples of the period; all that changed since is seen together. */
  #admitSoon(): void {
    if (this.#admitAtS < Infinity) return;
    const { fetchS } = this.#settings;
    const atS = fetchS === 0 ? this.nowS : Math.ceil(this.nowS / fetchS + 1e-9) * fetchS;
    this.#admitAtS = atS;
    this.events.add(atS, admits, 0);
  }

  #admit(): void {
    this.#admitAtS = Infinity;
    const { blockTokens, bytesPerToken, enginesPerNode } = this.#settings;
    const blockBytes = blockTokens * bytesPerToken;
    const prefillEngines = this.#settings.prefillNodes * enginesPerNode;
    if (this.#settings.adaptLinkRates) this.#scheduler.report?.(this.#loads());
    for (const assignment of this.#scheduler.admit()) {
      const agent = this.#byRequest.get(assignment.request)!;
      const { prefillReadBlocks, decodeReadBlocks } = assignment;
      agent.admission = assignment.admission;
      agent.prefill = this.#engines.get(assignment.prefillEngine)!;
      agent.decode = this.#engines.get(assignment.decodeEngine)! - prefillEngines;
      agent.prefillReadBlocks = prefillReadBlocks;
      agent.decodeReadBlocks = decodeReadBlocks;
      agent.readsLeft = (prefillReadBlocks > 0 ? 1 : 0) + (decodeReadBlocks > 0 ? 1 : 0);
      const { recorder } = this;
      recorder.admitted++;
      recorder.newTokens += agent.remainingTokens;
      recorder.admittedTokens += agent.script.promptTokens[agent.turn]!;
      recorder.hitTokens += agent.hitTokens;
      recorder.admissionWaitS += this.nowS - agent.submittedS;
      if (prefillReadBlocks > 0) {
        const link = this.prefillLinks[Math.floor(agent.prefill / enginesPerNode)]!;
        this.events.add(link.read(this.nowS, prefillReadBlocks * blockBytes), prefillHasRead, agent.slot);
      }
      if (decodeReadBlocks > 0) {
        const link = this.decodeLinks[Math.floor(agent.decode / enginesPerNode)]!;
        this.events.add(link.read(this.nowS, decodeReadBlocks * blockBytes), decodeHasRead, agent.slot);
      }
      if (agent.readsLeft === 0) this.#ready(agent);
    }
  }

  /** What an engine of each node reports of its link. */
  #loads(): EngineLoad[] {
    const of = (role: string, links: readonly StorageLink[]): EngineLoad[] =>
      links.map((link, node) => ({
        engine: `${role}${node}.0`,
        sequence: this.handled,
        unfinishedRequests: 0,
        unfinishedTokens: 0,
        nodeReadQueueBlocks: 0,
        nodeRead: link.report(this.nowS),
      }));
    return [...of('p', this.prefillLinks), ...of('d', this.decodeLinks)];
  }

  #hasRead(agent: Agent, stage: 'prefill-read' | 'decode-read'): void {
    this.#scheduler.complete(agent.name, stage, agent.admission);
    if (--agent.readsLeft === 0) this.#ready(agent);
  }

  #ready(agent: Agent): void {
    this.#forward(this.prefill.ready(agent));
  }

  readonly #repaced = (group: number): void => this.events.add(this.prefill.endS(group), forwardEnds, group);

  #forward(group: number): void {
    if (this.prefill.start(group, this.nowS, this.#repaced)) this.#repaced(group);
  }

  #forwardEnd(group: number): void {
    // One that was put off, or is over already.
    if (this.prefill.isIdle(group) || this.prefill.endS(group) !== this.nowS) return;
    this.prefill.finish(group, this.nowS, this.#computed, this.#repaced);
    this.#forward(group);
  }

  readonly #computed = (agent: Agent, newTokens: number): void => {
    agent.cachedTokens += newTokens;
    agent.remainingTokens -= newTokens;
    if (agent.remainingTokens > 0) {
      this.prefill.again(agent);
      return;
    }
    const { name, admission, script, turn } = agent;
    this.#scheduler.complete(name, 'prefill', admission);
    this.#admitSoon();
    agent.firstTokenS = this.nowS;
    const promptTokens = script.promptTokens[turn]!;
    this.recorder.firstToken(this.nowS, agent.submittedS, promptTokens - agent.hitTokens);
    const { bytesPerToken, cnicBytesPerS, decodeAdmissionS } = this.#settings;
    const toHbmS = (promptTokens * bytesPerToken) / cnicBytesPerS;
    agent.inHbm = agent.isDecoded = false;
    this.#persistence.prompt(agent, this.nowS);
    this.events.add(this.nowS + decodeAdmissionS + toHbmS, joinsDecode, agent.slot);
  };

  #join(agent: Agent): void {
    agent.inHbm = true;
    if (agent.promptStored) this.#freeDecodeBuffer(agent);
    const engine = this.decode[agent.decode]!;
    const steps = agent.script.outputTokens[agent.turn]! - 1;
    agent.joinedS = this.nowS;
    if (steps <= 0) {
      this.#decoded(agent);
      return;
    }
    engine.join(this.nowS, agent.slot, steps, agent.script.promptTokens[agent.turn]!);
    this.#decodeDue(agent.decode);
  }

  #freeDecodeBuffer(agent: Agent): void {
    this.#scheduler.complete(agent.name, 'decode-buffer', agent.admission);
    this.#admitSoon();
  }

  #decodeDue(index: number): void {
    const dueS = this.decode[index]!.nextEndS();
    this.#decodeDueS[index] = dueS;
    if (dueS < Infinity) this.events.add(dueS, decodeEnds, index);
  }

  #decodeEnd(index: number): void {
    if (this.#decodeDueS[index] !== this.nowS) return;
    const agent = this.agents.agents[this.decode[index]!.leave(this.nowS)]!;
    const steps = agent.script.outputTokens[agent.turn]! - 1;
    const stepS = (this.nowS - agent.joinedS) / steps;
    this.recorder.decodedSequence(agent.submittedS, agent.joinedS - agent.firstTokenS + stepS, stepS);
    this.#decodeDue(index);
    this.#decoded(agent);
  }

  /** The reply is whole; the request ends when what it has made is stored, for the next turn reads it. */
  #decoded(agent: Agent): void {
    agent.isDecoded = true;
    this.#persistence.generated(agent, this.nowS);
    if (agent.writesLeft === 0) this.#replied(agent);
  }

  #replied(agent: Agent): void {
    const { agents, recorder } = this;
    this.#scheduler.complete(agent.name, 'request', agent.admission);
    this.#byRequest.delete(agent.name);
    this.#admitSoon();
    recorder.turnsEnded++;
    recorder.lastEndS = this.nowS;
    this.#passed();
    const { script } = agent;
    agents.replied(agent);
    if (agent.turn < script.promptTokens.length) {
      const thinkS = script.thinkS[agent.turn]!;
      if (thinkS > 0) this.events.add(this.nowS + thinkS, submits, agent.slot);
      else this.#submit(agent);
      return;
    }
    if (agent.startedS >= recorder.warmupS) recorder.agentS.push(this.nowS - agent.startedS);
    agents.leave(agent);
    const successor = agents.successor(this.nowS);
    if (successor) this.#submit(successor);
  }
}
