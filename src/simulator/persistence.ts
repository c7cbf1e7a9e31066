import type { Agent } from './agents.js';
import type { ClusterSettings } from './settings.js';
import { WriteLink } from './write-link.js';

const prompt = 0;
const generated = 1;

export interface PersistenceHooks {
  /** persistence.ended(node) is to be called then. */
  due(timeS: number, node: number): void;
  /** The agent whose request has that slot. */
  agent(slot: number): Agent;
  /** The prompt's new blocks are stored: its part of the DE buffer is free once it is in HBM. */
  promptStored(agent: Agent): void;
  /** Nothing of the agent's is left to be stored for now. */
  stored(agent: Agent): void;
}

/** What the decode nodes store: a request's prompt once it is complete, and the blocks that its reply fills. */
export class Persistence {
  readonly #settings: ClusterSettings;
  readonly #hooks: PersistenceHooks;
  readonly #links: readonly WriteLink[];
  readonly #dueS: Float64Array;

  constructor(settings: ClusterSettings, hooks: PersistenceHooks) {
    this.#settings = settings;
    this.#hooks = hooks;
    const { decodeNodes, snicBytesPerS } = settings;
    this.#links = Array.from({ length: decodeNodes }, () => new WriteLink(snicBytesPerS));
    this.#dueS = new Float64Array(decodeNodes).fill(Infinity);
  }

  get writtenBytes(): number {
    return this.#links.reduce((sum, { totalBytes }) => sum + totalBytes, 0);
  }

  prompt(agent: Agent, nowS: number): void {
    const { script, turn } = agent;
    agent.writesLeft = 0;
    agent.promptStored = !this.#store(agent, prompt, nowS, agent.hitTokens, script.promptTokens[turn]!);
  }

  /** The reply's last token has no KV. */
  generated(agent: Agent, nowS: number): void {
    const { script, turn } = agent;
    const begin = script.promptTokens[turn]!;
    this.#store(agent, generated, nowS, begin, begin + script.outputTokens[turn]! - 1);
  }

  /** The full blocks that tokens [fromTokens, toTokens) complete. @returns whether there are any */
  #store(agent: Agent, kind: number, nowS: number, fromTokens: number, toTokens: number): boolean {
    const { blockTokens, bytesPerToken, enginesPerNode } = this.#settings;
    const blocks = Math.floor(toTokens / blockTokens) - Math.floor(fromTokens / blockTokens);
    if (blocks <= 0) return false;
    const node = Math.floor(agent.decode / enginesPerNode);
    agent.writesLeft++;
    this.#links[node]!.add(nowS, 2 * agent.slot + kind, blocks * blockTokens * bytesPerToken);
    this.#due(node);
    return true;
  }

  #due(node: number): void {
    const dueS = this.#links[node]!.nextS();
    if (dueS === this.#dueS[node]) return;
    this.#dueS[node] = dueS;
    if (dueS < Infinity) this.#hooks.due(dueS, node);
  }

  /** The time that due() named has come; it may have been put off since. */
  ended(node: number, nowS: number): void {
    if (this.#dueS[node] !== nowS) return;
    this.#dueS[node] = Infinity;
    const owner = this.#links[node]!.take(nowS);
    this.#due(node);
    if (owner === undefined) return;
    const agent = this.#hooks.agent(owner >> 1);
    agent.writesLeft--;
    if ((owner & 1) === prompt) {
      agent.promptStored = true;
      this.#hooks.promptStored(agent);
    }
    if (agent.writesLeft === 0) this.#hooks.stored(agent);
  }
}
