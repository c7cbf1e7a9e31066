import { LinearTimeModel, packBatch, type PackedBatch } from '../scheduler/index.js';
import type { Agent } from './agents.js';
import { modePlans } from './modes.js';
import { PacedLinks } from './paced-links.js';
import { layerwiseS, sequentialS } from './pipeline.js';
import type { ClusterSettings } from './settings.js';

/** Requests of one forward, as `PrefillEngine`. */
const maxBatchRequests = 64;
/** Staging is planned for; the quota bounds a batch long before. */
const maxBatchBlocks = 1 << 20;
/** Attention balance is kept in bins of so many seconds. */
export const balanceBinS = 10;

interface Part {
  readonly agent: Agent;
  readonly newTokens: number;
}

/** A forward as it was put together. */
interface Forward {
  readonly parts: readonly Part[];
  readonly transfers: readonly Transfers[];
  readonly attention: readonly number[];
  readonly formedS: number;
  /** Alone, and behind another whose last layers it overlaps. */
  readonly aloneS: number;
  readonly behindS: number;
}

interface Group {
  readonly engines: readonly number[];
  readonly queues: Agent[][];
  parts: readonly Part[];
  /** Where two may be under way: the one that begins when the group is through with this. */
  next: Forward | undefined;
  isComputing: boolean;
  /** When the forward ends, or would if nothing changes. */
  endS: number;
  /** Of a forward that shares full links: what is left of it without others, when that was, and its stretch. */
  leftS: number;
  atS: number;
  stretch: number;
}

/** Bytes that one engine's part of a forward moves over all layers. */
interface Transfers {
  /** Hits from the engine's own buffer, and from decode engines; what goes to decode engines. */
  own: number;
  received: number;
  sent: number;
}

/**
 * Prefill engines. Those of a group meet in collectives: each layer takes as long as the slowest engine's attention
 * and, experts being spread over all, the mean of the rest. Transfers keep the pace of the layers.
 */
export class PrefillGroups {
  /** Sums of the slowest engine's attention and of the mean, by bin of forwards' starts. */
  readonly slowestS: number[] = [];
  readonly meanS: number[] = [];
  readonly links: PacedLinks;
  forwards = 0;
  busyS = 0;
  /** Seconds by which full links have lengthened forwards. */
  crowdedS = 0;
  readonly #settings: ClusterSettings;
  readonly #isLayerwise: boolean;
  readonly #groups: Group[];
  readonly #groupOf: Int32Array;
  readonly #placeOf: Int32Array;
  readonly #time: LinearTimeModel;
  readonly #prefillEngines: number;

  constructor(settings: ClusterSettings) {
    this.#settings = settings;
    this.#isLayerwise = modePlans[settings.mode].isLayerwise;
    this.#time = new LinearTimeModel(settings.prefillTime);
    const { prefillNodes, decodeNodes, enginesPerNode, isLockstep } = settings;
    const engines = prefillNodes * enginesPerNode;
    this.#prefillEngines = engines;
    const size = isLockstep ? enginesPerNode : 1;
    this.#groupOf = Int32Array.from({ length: engines }, (_, engine) => Math.floor(engine / size));
    this.#placeOf = Int32Array.from({ length: engines }, (_, engine) => engine % size);
    this.#groups = Array.from({ length: engines / size }, (_, group) => newGroup(group * size, size));
    const all = engines + decodeNodes * enginesPerNode;
    const capacity = new Float64Array(2 * all + prefillNodes + decodeNodes);
    capacity.fill(settings.cnicBytesPerS, 0, 2 * all);
    // What storage brings at full rate, written once, is not there for transfers.
    capacity.fill(Math.max(1, settings.dramBytesPerS - settings.snicBytesPerS), 2 * all);
    this.links = new PacedLinks(capacity, this.#groups.length);
  }

  /** An agent's reads are complete. @returns its group, whose forward may begin */
  ready(agent: Agent): number {
    const group = this.#groupOf[agent.prefill]!;
    const queue = this.#groups[group]!.queues[this.#placeOf[agent.prefill]!]!;
    queue.push(agent);
    const { slackSPerToken } = this.#settings;
    if (slackSPerToken > 0) {
      const dueS = ({ submittedS, remainingTokens }: Agent): number =>
        submittedS + slackSPerToken * remainingTokens;
      queue.sort((a, b) => dueS(a) - dueS(b));
    }
    return group;
  }

  isIdle(group: number): boolean {
    return !this.#groups[group]!.isComputing;
  }

  endS(group: number): number {
    return this.#groups[group]!.endS;
  }

  /** Starts the group's next forward; false if none may. Others that it slows down are passed to `changed`. */
  start(group: number, nowS: number, changed: (group: number) => void): boolean {
    const state = this.#groups[group]!;
    const { isComputing } = state;
    const forward = isComputing ? undefined : (state.next ?? this.#form(state, nowS));
    if (!isComputing) state.next = undefined;
    if (forward !== undefined) this.#run(group, forward, nowS, changed);
    if (this.#settings.maxForwards > 1) state.next ??= this.#form(state, nowS);
    return forward !== undefined;
  }

  #form(state: Group, nowS: number): Forward | undefined {
    const parts: Part[] = [];
    const attention: number[] = [];
    const transfers: Transfers[] = [];
    for (const queue of state.queues) {
      const batch = this.#pack(queue);
      attention.push(batch?.attentionS ?? 0);
      transfers.push(batch === undefined ? noTransfers : this.#take(parts, queue, batch));
    }
    if (parts.length === 0) return undefined;
    const newTokens = parts.reduce((sum, part) => sum + part.newTokens, 0);
    const { baseS, perNewTokenS } = this.#settings.prefillTime;
    const computeS = baseS + (perNewTokenS * newTokens) / state.queues.length + Math.max(...attention);
    return { parts, attention, transfers, formedS: nowS, ...this.#forwardS(computeS, transfers) };
  }

  #run(group: number, forward: Forward, nowS: number, changed: (group: number) => void): void {
    const state = this.#groups[group]!;
    const { parts, attention, transfers, formedS, aloneS, behindS } = forward;
    state.parts = parts;
    this.#balance(nowS, Math.max(...attention), attention);
    // What could be done while the one before it was under way has been.
    const forwardS = Math.max(behindS, aloneS - (nowS - formedS));
    this.forwards++;
    this.busyS += forwardS * state.queues.length;
    this.#ask(group, transfers, forwardS);
    Object.assign(state, {
      isComputing: true,
      leftS: forwardS,
      atS: nowS,
      stretch: this.links.stretch(group),
    });
    state.endS = nowS + forwardS * state.stretch;
    this.crowdedS += state.endS - nowS - forwardS;
    if (this.links.crowds(group)) this.#repace(nowS, changed);
  }

  /** The group's forward is over: passes each of its parts to `computed`. */
  finish(
    group: number,
    nowS: number,
    computed: (agent: Agent, newTokens: number) => void,
    changed: (group: number) => void,
  ): void {
    const state = this.#groups[group]!;
    const { parts } = state;
    state.parts = [];
    state.isComputing = false;
    if (this.links.release(group)) this.#repace(nowS, changed);
    for (const { agent, newTokens } of parts) computed(agent, newTokens);
  }

  /** The rest of the prompt waits at the head of its engine's queue. */
  again(agent: Agent): void {
    this.#groups[this.#groupOf[agent.prefill]!]!.queues[this.#placeOf[agent.prefill]!]!.unshift(agent);
  }

  #pack(queue: readonly Agent[]): PackedBatch | undefined {
    if (queue.length === 0) return undefined;
    const { quotaS, blockTokens } = this.#settings;
    const works = queue.slice(0, maxBatchRequests).map(({ name, cachedTokens, remainingTokens }) => ({
      request: name,
      cachedTokens,
      remainingTokens,
    }));
    return packBatch(works, this.#time, {
      quotaS,
      blockTokens,
      maxBatchBlocks,
      maxRequests: maxBatchRequests,
    });
  }

  #take(parts: Part[], queue: Agent[], { entries }: PackedBatch): Transfers {
    const { bytesPerToken, blockTokens, mode } = this.#settings;
    const sum: Transfers = { own: 0, received: 0, sent: 0 };
    for (const { index, newTokens } of entries) {
      const agent = queue[index]!;
      parts.push({ agent, newTokens });
      sum.sent += newTokens * bytesPerToken;
      if (mode === 'oracle') continue;
      const own = agent.prefillReadBlocks * blockTokens * bytesPerToken;
      sum.own += own;
      sum.received += agent.cachedTokens * bytesPerToken - own;
      // The decode side has what it read, and what earlier chunks have sent.
      if (agent.cachedTokens === (agent.prefillReadBlocks + agent.decodeReadBlocks) * blockTokens)
        sum.sent += own;
    }
    queue.splice(0, entries.length);
    return sum;
  }

  #balance(nowS: number, slowest: number, attention: readonly number[]): void {
    const bin = Math.floor(nowS / balanceBinS);
    while (this.slowestS.length <= bin) {
      this.slowestS.push(0);
      this.meanS.push(0);
    }
    this.slowestS[bin]! += slowest;
    this.meanS[bin]! += attention.reduce((sum, value) => sum + value, 0) / attention.length;
  }

  #forwardS(computeS: number, transfers: readonly Transfers[]): Pick<Forward, 'aloneS' | 'behindS'> {
    const { layers, windowLayers, cnicBytesPerS } = this.#settings;
    let inS = 0;
    let outS = 0;
    for (const { own, received, sent } of transfers) {
      inS = Math.max(inS, (own + received) / cnicBytesPerS / layers);
      // What is loaded from the engine's own buffer leaves through the same NIC.
      outS = Math.max(outS, (own + sent) / cnicBytesPerS / layers);
    }
    const times = { layers, windowLayers, inS, computeS: computeS / layers, outS };
    return {
      aloneS: this.#isLayerwise ? layerwiseS(times) : sequentialS(times),
      behindS: Math.max(layers * Math.max(inS, outS), computeS),
    };
  }

  #ask(group: number, transfers: readonly Transfers[], forwardS: number): void {
    const { enginesPerNode, blockTokens, bytesPerToken, mode, prefillNodes } = this.#settings;
    const { engines, parts } = this.#groups[group]!;
    const dram = 2 * (this.#prefillEngines + this.#settings.decodeNodes * enginesPerNode);
    const ask = (link: number, bytes: number): void => {
      if (bytes > 0) this.links.ask(group, link, bytes, forwardS);
    };
    for (const [place, { own, received, sent }] of transfers.entries()) {
      const engine = engines[place]!;
      ask(2 * engine, own + sent);
      ask(2 * engine + 1, own + received);
      ask(dram + Math.floor(engine / enginesPerNode), own);
    }
    for (const { agent, newTokens } of parts) {
      const read = agent.prefillReadBlocks * blockTokens;
      const own = mode === 'oracle' ? 0 : read * bytesPerToken;
      const fromDecode = mode === 'oracle' ? 0 : (agent.cachedTokens - read) * bytesPerToken;
      const toDecode = newTokens * bytesPerToken + own;
      const engine = this.#prefillEngines + agent.decode;
      ask(2 * engine, fromDecode);
      ask(2 * engine + 1, toDecode);
      ask(dram + prefillNodes + Math.floor(agent.decode / enginesPerNode), fromDecode + toDecode);
    }
  }

  /** A link is, or was, full: the pace of every forward is looked at again. Rare, so all groups are. */
  #repace(nowS: number, changed: (group: number) => void): void {
    for (const [index, group] of this.#groups.entries()) {
      if (!group.isComputing) continue;
      const stretch = this.links.stretch(index);
      if (stretch === group.stretch) continue;
      group.leftS = Math.max(0, group.leftS - (nowS - group.atS) / group.stretch);
      group.atS = nowS;
      group.stretch = stretch;
      const endS = nowS + group.leftS * stretch;
      this.crowdedS += endS - group.endS;
      group.endS = endS;
      changed(index);
    }
  }
}

const noTransfers: Transfers = { own: 0, received: 0, sent: 0 };

function newGroup(first: number, size: number): Group {
  return {
    engines: Array.from({ length: size }, (_, place) => first + place),
    queues: Array.from({ length: size }, () => []),
    parts: [],
    next: undefined,
    isComputing: false,
    endS: Infinity,
    leftS: 0,
    atS: 0,
    stretch: 1,
  };
}
