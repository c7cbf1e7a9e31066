import { expect } from 'vitest';
import type {
  Admission,
  AdmissionOptions,
  Assignment,
  EngineCapacity,
  EngineRole,
  RequestDescription,
  Stage,
} from '../../src/scheduler/index.js';

interface Live {
  readonly description: RequestDescription;
  readonly prefill: EngineCapacity;
  readonly readsAll: boolean;
  assignment?: Assignment;
  readonly done: Set<Stage>;
}

interface Use {
  buffer: number;
  hbm: number;
  requests: number;
  tokens: number;
}

const sum = (values: readonly number[]): number => values.reduce((total, value) => total + value, 0);

/**
 * DualPath's inter-engine scheduling as the paper writes it: every load is added up anew, every engine is looked
 * at. Where ties fall by chance it takes the choice that `Admission` made, if it is one of the best.
 */
export class Transcription {
  waiting: RequestDescription[] = [];
  /** With a PE, no DE group yet. */
  placed: Live[] = [];
  readonly queues = new Map<string, Live[]>();
  readonly running = new Map<string, Live>();
  readonly lost = new Set<string>();
  turn: EngineRole = 'prefill';

  constructor(readonly options: AdmissionOptions) {
    for (const group of this.groups('decode')) this.queues.set(group, []);
  }

  groups(role: EngineRole): string[] {
    return [...new Set(this.options.engines.filter((e) => e.role === role).map(({ group }) => group))];
  }

  all(): Live[] {
    return [...this.placed, ...[...this.queues.values()].flat(), ...this.running.values()];
  }

  tokensOf({ promptTokens, hitTokens }: RequestDescription): number {
    return Math.max(1, Math.round(promptTokens - (1 - (this.options.hitTokenWeight ?? 1)) * hitTokens));
  }

  hitBlocks({ hitTokens }: RequestDescription): number {
    return this.options.policy === 'none' ? 0 : hitTokens / this.options.blockTokens;
  }

  promptBlocks({ promptTokens }: RequestDescription): number {
    return Math.ceil(promptTokens / this.options.blockTokens);
  }

  hbmBlocks({ promptTokens, maxNewTokens }: RequestDescription): number {
    return Math.ceil((promptTokens + maxNewTokens) / this.options.blockTokens);
  }

  /** What is held on an engine, by the documented rules. */
  use(engine: EngineCapacity): Use {
    const use = { buffer: 0, hbm: 0, requests: 0, tokens: 0 };
    for (const { description, prefill, readsAll, assignment, done } of this.all()) {
      if (prefill === engine && !done.has('prefill')) {
        use.buffer += assignment?.prefillReadBlocks ?? (readsAll ? this.hitBlocks(description) : 0);
        use.hbm += prefill.hbmBlocks === 0 ? 0 : this.promptBlocks(description);
        use.requests += 1;
        use.tokens += this.tokensOf(description);
      }
      if (assignment?.decodeEngine === engine.engine) {
        use.buffer += done.has('decode-buffer') ? 0 : assignment.promptBlocks;
        use.buffer += this.options.decodeSpareBlocks;
        use.hbm += this.hbmBlocks(description);
        use.requests += 1;
        use.tokens += description.promptTokens + description.maxNewTokens;
      }
    }
    return use;
  }

  queueS(node: string, moreBlocks = 0): number {
    let blocks = moreBlocks;
    for (const { assignment, done } of this.running.values()) {
      if (!assignment) continue;
      const { prefillEngine, decodeEngine, prefillReadBlocks, decodeReadBlocks } = assignment;
      if (this.capacity(prefillEngine).node === node && !done.has('prefill-read'))
        blocks += prefillReadBlocks;
      if (this.capacity(decodeEngine).node === node && !done.has('decode-read')) blocks += decodeReadBlocks;
    }
    const rate = this.options.engines.find((engine) => engine.node === node)?.readRateBytesPerS ?? 0;
    return (blocks * this.options.blockBytes) / rate;
  }

  capacity(name: string): EngineCapacity {
    const capacity = this.options.engines.find(({ engine }) => engine === name);
    if (!capacity) throw new Error(name);
    return capacity;
  }

  live(role: EngineRole, group?: string): EngineCapacity[] {
    return this.options.engines.filter(
      (engine) =>
        engine.role === role && !this.lost.has(engine.engine) && (group ?? engine.group) === engine.group,
    );
  }

  canHold(engine: EngineCapacity, description: RequestDescription, readsAll: boolean): boolean {
    const { bufferBlocks, hbmBlocks, role } = engine;
    if (role === 'decode') {
      const buffer = this.promptBlocks(description) + this.options.decodeSpareBlocks;
      return bufferBlocks >= buffer && hbmBlocks >= this.hbmBlocks(description);
    }
    const buffer = readsAll ? this.hitBlocks(description) : 0;
    return bufferBlocks >= buffer && (hbmBlocks === 0 || hbmBlocks >= this.promptBlocks(description));
  }

  /** Whether some live engine of each role could hold the request, were it empty. */
  possible(description: RequestDescription): boolean {
    return (['prefill', 'decode'] as const).every((role) =>
      this.live(role).some((engine) => this.canHold(engine, description, this.options.policy === 'prefill')),
    );
  }

  fitsNow(engine: EngineCapacity, description: RequestDescription, readsAll: boolean): boolean {
    const { buffer, hbm } = this.use(engine);
    const rest = { ...engine, bufferBlocks: engine.bufferBlocks - buffer, hbmBlocks: engine.hbmBlocks - hbm };
    if (engine.role === 'prefill' && engine.hbmBlocks > 0 && rest.hbmBlocks === 0) return false;
    return this.canHold(rest, description, readsAll);
  }

  /** Algorithm 1: the PEs that may be chosen for a request. */
  prefillChoices(
    description: RequestDescription,
    engines: EngineCapacity[],
    readsAll: boolean,
  ): EngineCapacity[] {
    const { alphaS = 3, betaTokens = Infinity } = this.options;
    const fit = engines.filter((engine) => this.fitsNow(engine, description, readsAll));
    const eligible = fit.filter((engine) => this.use(engine).tokens <= betaTokens);
    const second = eligible.filter(({ node }) => this.queueS(node) <= alphaS);
    const best = second.length > 0 ? second : eligible;
    const least = Math.min(...best.map((engine) => this.use(engine).tokens));
    return best.filter((engine) => this.use(engine).tokens === least);
  }

  placePrefill(admission: Admission, engines: EngineCapacity[]): void {
    for (let head = this.waiting[0]; head; head = this.waiting[0]) {
      const description = head;
      const { policy } = this.options;
      const couldRead = this.live('prefill').some((engine) => this.canHold(engine, description, true));
      const readsAll =
        policy === 'prefill' || (policy === 'round-robin' && this.turn === 'prefill' && couldRead);
      const choices = this.prefillChoices(description, engines, readsAll);
      const view = admission.request(description.request);
      if (choices.length === 0) {
        expect(view?.state).toBe('waiting');
        return;
      }
      const prefill = choices.find(({ engine }) => engine === view?.prefillEngine);
      if (!prefill)
        throw new Error(`${view?.prefillEngine} is none of ${choices.map((c) => c.engine).join()}`);
      if (policy === 'round-robin' && this.hitBlocks(description) > 0) this.takeTurn();
      this.waiting.shift();
      this.placed.push({ description, prefill, readsAll, done: new Set() });
    }
  }

  groupTokens(group: string): number {
    const engines = sum(this.live('decode', group).map((engine) => this.use(engine).tokens));
    const queued = this.queues
      .get(group)!
      .map(({ description }) => description.promptTokens + description.maxNewTokens);
    return engines + sum(queued);
  }

  /** Phase 1. */
  drain(admission: Admission): void {
    for (const live of this.placed.splice(0)) {
      const able = this.groups('decode').filter((group) =>
        this.live('decode', group).some((engine) => this.canHold(engine, live.description, false)),
      );
      const least = Math.min(...able.map((group) => this.groupTokens(group)));
      const choices = able.filter((group) => this.groupTokens(group) === least);
      const group = admission.request(live.description.request)?.decodeGroup;
      expect(choices).toContain(group);
      this.queues.get(group!)!.push(live);
    }
  }

  /** Phase 2. */
  placeDecode(group: string, assignments: Map<string, Assignment>): void {
    const queue = this.queues.get(group)!;
    const engines = this.live('decode', group);
    const tokens = ({ description: { promptTokens, maxNewTokens } }: Live): number =>
      promptTokens + maxNewTokens;
    let free = sum(engines.map((engine) => engine.hbmBlocks - this.use(engine).hbm));
    let total = sum(engines.map((engine) => this.use(engine).tokens));
    for (const live of queue) {
      free -= this.hbmBlocks(live.description);
      if (free < 0) break;
      total += tokens(live);
    }
    const most = (1.05 * total) / engines.length;
    for (let head = queue[0]; head; head = queue[0]) {
      const live = head;
      const fit = engines.filter((engine) => this.fitsNow(engine, live.description, false));
      const within = fit.filter((engine) => this.use(engine).tokens + tokens(live) <= most);
      const rank = (engine: EngineCapacity): number =>
        within.length > 0 ? this.use(engine).requests : this.use(engine).tokens;
      const candidates = within.length > 0 ? within : fit;
      const least = Math.min(...candidates.map(rank));
      const choices = candidates.filter((engine) => rank(engine) === least).map(({ engine }) => engine);
      const assignment = assignments.get(live.description.request);
      if (choices.length === 0) {
        expect(assignment).toBeUndefined();
        return;
      }
      expect(choices).toContain(assignment?.decodeEngine);
      expect(assignment?.prefillEngine).toBe(live.prefill.engine);
      this.checkSide(live, assignment!);
      queue.shift();
      this.running.set(live.description.request, { ...live, assignment: assignment! });
    }
  }

  checkSide({ description, readsAll }: Live, assignment: Assignment): void {
    const pe = this.capacity(assignment.prefillEngine);
    const de = this.capacity(assignment.decodeEngine);
    const hit = this.hitBlocks(description);
    const { prefillReadBlocks: x, decodeReadBlocks: y } = assignment;
    expect(x + y).toBe(hit);
    expect(assignment.side).toBe(y === 0 ? 'prefill' : x === 0 ? 'decode' : 'split');
    if (readsAll) return expect(x).toBe(hit);
    if (hit === 0) return;
    const room = pe.bufferBlocks - this.use(pe).buffer;
    const p = this.queueS(pe.node, hit);
    const d = this.queueS(de.node, hit);
    switch (this.options.policy) {
      case 'shorter-queue':
        if (room < hit) return expect(x).toBe(0);
        if (p !== d) return expect(x).toBe(p < d ? hit : 0);
        return expect(x).toBe(this.takeTurn() === 'prefill' ? hit : 0);
      case 'split': {
        const finish = (n: number): number =>
          Math.max(this.queueS(pe.node, n), this.queueS(de.node, hit - n));
        const all = Array.from({ length: Math.min(hit, room) + 1 }, (_, n) => finish(n));
        return expect(finish(x)).toBeCloseTo(Math.min(...all), 9);
      }
      default:
        return expect(x).toBe(0);
    }
  }

  takeTurn(): EngineRole {
    const { turn } = this;
    this.turn = turn === 'prefill' ? 'decode' : 'prefill';
    return turn;
  }

  forget(request: string): void {
    const other = ({ description }: { description: RequestDescription }): boolean =>
      description.request !== request;
    this.waiting = this.waiting.filter((description) => description.request !== request);
    this.placed = this.placed.filter(other);
    for (const [group, queue] of this.queues) this.queues.set(group, queue.filter(other));
    this.running.delete(request);
  }

  /** What was not assigned goes back: from a lost PE to the waiting queue, from a lost DE's group to the drain. */
  lose(engine: string, order: (request: string) => number): void {
    this.lost.add(engine);
    const { role, group } = this.capacity(engine);
    if (role === 'decode') {
      this.placed.unshift(...this.queues.get(group)!);
      this.queues.set(group, []);
      return;
    }
    const gone = this.all().filter(({ prefill, assignment }) => prefill.engine === engine && !assignment);
    for (const { description } of gone) {
      this.forget(description.request);
      this.waiting.push(description);
    }
    this.waiting.sort((a, b) => order(a.request) - order(b.request));
  }
}
