import { Draws } from '../trace/index.js';
import type { Arrivals } from './settings.js';
import type { AgentScript, SimulatedWorkload } from './workload.js';

/** An agent at work and its one request under way; used again for the next agent. */
export interface Agent {
  readonly slot: number;
  /** Of its requests: an agent never has two. */
  readonly name: string;
  script: AgentScript;
  turn: number;
  startedS: number;
  submittedS: number;
  firstTokenS: number;
  joinedS: number;
  /** Of its request: the prompt's KV is in HBM, its new blocks are stored, the reply is whole, writes under way. */
  inHbm: boolean;
  promptStored: boolean;
  isDecoded: boolean;
  writesLeft: number;
  /** Of the prompt, what the cluster that it came to has. */
  hitTokens: number;
  cachedTokens: number;
  remainingTokens: number;
  contextTokens: number;
  readsLeft: number;
  admission: number;
  prefill: number;
  decode: number;
  prefillReadBlocks: number;
  decodeReadBlocks: number;
}

/** What of its prompt is there already. The last token is always computed: its output is the first new token. */
export function setHits(agent: Agent, hitTokens: number): void {
  agent.hitTokens = agent.cachedTokens = hitTokens;
  agent.remainingTokens = Math.max(1, agent.script.promptTokens[agent.turn]! - hitTokens);
}

/** Agents of a workload in the order in which they come. */
export class AgentPool {
  readonly agents: Agent[] = [];
  /** Agents at work. */
  active = 0;
  /** Tokens that they have so far. */
  contextTokens = 0;
  readonly #workload: SimulatedWorkload;
  readonly #arrivals: Arrivals;
  readonly #draws: Draws;
  readonly #free: number[] = [];
  #come = 0;
  #nextS: number;

  constructor(workload: SimulatedWorkload, arrivals: Arrivals, seed: number) {
    this.#workload = workload;
    this.#arrivals = arrivals;
    this.#draws = new Draws(seed, 3, 0);
    this.#nextS = this.#firstArrivalS();
  }

  /** When the next agent comes; Infinity if none does. */
  get nextArrivalS(): number {
    return this.#nextS;
  }

  /** The agent whose time has come. */
  arrive(): Agent {
    const { script, turn } = this.#place();
    const slot = this.#free.pop() ?? this.agents.length;
    if (slot === this.agents.length) this.agents.push(newAgent(slot, script));
    const agent = this.agents[slot]!;
    agent.script = script;
    agent.turn = turn;
    agent.startedS = this.#nextS;
    agent.contextTokens = turn === 0 ? 0 : script.promptTokens[turn - 1]! + script.outputTokens[turn - 1]!;
    this.contextTokens += agent.contextTokens;
    this.active++;
    this.#come++;
    this.#nextS = this.#followingS();
    return agent;
  }

  /** The agent has got its reply. */
  replied(agent: Agent): void {
    const { promptTokens, outputTokens } = agent.script;
    const tokens = promptTokens[agent.turn]! + outputTokens[agent.turn]!;
    this.contextTokens += tokens - agent.contextTokens;
    agent.contextTokens = tokens;
    agent.turn++;
  }

  leave(agent: Agent): void {
    this.contextTokens -= agent.contextTokens;
    this.active--;
    this.#free.push(agent.slot);
  }

  /** Who comes in the place of one that has left; undefined where nobody does. */
  successor(nowS: number): Agent | undefined {
    if (this.#arrivals.kind !== 'constant') return undefined;
    this.#nextS = nowS;
    return this.arrive();
  }

  #place(): { readonly script: AgentScript; readonly turn: number } {
    const { scripts } = this.#workload;
    const arrivals = this.#arrivals;
    if (arrivals.kind !== 'constant' || !arrivals.isSpread || this.#come >= arrivals.agents) {
      return { script: scripts[this.#come % scripts.length]!, turn: 0 };
    }
    // Every turn is as likely, so long scripts have more agents in them, as at any time in a long run.
    const all = scripts.reduce((sum, { promptTokens }) => sum + promptTokens.length, 0);
    let turn = Math.floor(((this.#come + 0.5) / arrivals.agents) * all);
    let index = 0;
    while (turn >= scripts[index]!.promptTokens.length) turn -= scripts[index++]!.promptTokens.length;
    return { script: scripts[index]!, turn };
  }

  #firstArrivalS(): number {
    if (this.#arrivals.kind === 'trace') return this.#traceArrivalS(0);
    return this.#arrivals.kind === 'poisson' ? this.#draws.exponential() / this.#arrivals.agentsPerS : 0;
  }

  #followingS(): number {
    const arrivals = this.#arrivals;
    if (arrivals.kind === 'trace') return this.#traceArrivalS(this.#come);
    if (arrivals.kind === 'together') return this.#come < arrivals.agents ? 0 : Infinity;
    // Over the first second, so that no two submit at once.
    if (arrivals.kind === 'constant')
      return this.#come < arrivals.agents ? this.#come / arrivals.agents : Infinity;
    const nextS = this.#nextS + this.#draws.exponential() / arrivals.agentsPerS;
    return nextS < arrivals.untilS ? nextS : Infinity;
  }

  #traceArrivalS(index: number): number {
    const { scripts, arrivalS } = this.#workload;
    if (index >= scripts.length) return Infinity;
    return arrivalS[index] ?? 0;
  }
}

function newAgent(slot: number, script: AgentScript): Agent {
  return {
    slot,
    name: `a${slot}`,
    script,
    turn: 0,
    startedS: 0,
    submittedS: 0,
    firstTokenS: 0,
    joinedS: 0,
    inHbm: false,
    promptStored: false,
    isDecoded: false,
    writesLeft: 0,
    hitTokens: 0,
    cachedTokens: 0,
    remainingTokens: 0,
    contextTokens: 0,
    readsLeft: 0,
    admission: 0,
    prefill: 0,
    decode: 0,
    prefillReadBlocks: 0,
    decodeReadBlocks: 0,
  };
}
