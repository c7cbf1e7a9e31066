import { generateTrace, type GeneratedTurn } from '../../trace/index.js';
import type { RequestDescription } from '../../scheduler/index.js';

/**
 * Agents that replay generated 64K trajectories without think time. One that has finished takes the next
 * trajectory, so that there are always as many.
 */
export class Agents {
  readonly #trajectories: readonly (readonly GeneratedTurn[])[];
  readonly #blockTokens: number;
  readonly #places: { trajectory: number; turn: number; contextTokens: number }[];
  #requests = 0;

  /** @param spread agents start at turns all over their trajectories, their context stored; else at the first */
  constructor(agents: number, trajectories: number, seed: number, blockTokens: number, spread: boolean) {
    const sessions = generateTrace({ dataSet: '64k', trajectories, seed });
    this.#trajectories = [...sessions].map(({ turns }) => turns);
    this.#blockTokens = blockTokens;
    const all = this.#trajectories.reduce((sum, turns) => sum + turns.length, 0);
    this.#places = Array.from({ length: agents }, (_, agent) => {
      // Every turn is as likely, so long trajectories have more agents in them, as at any time in a long run.
      let turn = spread ? Math.floor(((agent + 0.5) / agents) * all) : 0;
      let trajectory = spread ? 0 : agent % trajectories;
      while (turn >= this.#trajectories[trajectory]!.length) turn -= this.#trajectories[trajectory++]!.length;
      const before = this.#trajectories[trajectory]!.slice(0, turn);
      const contextTokens = before.reduce((sum, { append, output }) => sum + append + output, 0);
      return { trajectory, turn, contextTokens };
    });
  }

  get count(): number {
    return this.#places.length;
  }

  /** The agent's next request. Names tell the agent. */
  next(agent: number): RequestDescription {
    const place = this.#places[agent]!;
    if (place.turn === this.#trajectories[place.trajectory]!.length) {
      place.trajectory = (place.trajectory + this.#places.length) % this.#trajectories.length;
      place.turn = 0;
      place.contextTokens = 0;
    }
    const { append, output } = this.#trajectories[place.trajectory]![place.turn++]!;
    // The last generated token has no KV-Cache yet.
    const stored = Math.max(0, place.contextTokens - 1);
    const hitTokens = Math.floor(stored / this.#blockTokens) * this.#blockTokens;
    const promptTokens = place.contextTokens + append;
    place.contextTokens = promptTokens + output;
    return { request: `${agent}/${this.#requests++}`, promptTokens, hitTokens, maxNewTokens: output };
  }

  static agentOf(request: string): number {
    return Number(request.slice(0, request.indexOf('/')));
  }
}
