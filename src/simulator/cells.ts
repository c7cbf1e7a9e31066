import { DualPathError } from '../errors/index.js';
import {
  DualMapPolicy,
  hash32,
  HashAffinityPolicy,
  lateLane,
  LateLanePolicy,
  LeastLoadedPolicy,
  paperDualMap,
  Router,
  type RoutedRequest,
  type RoutingPolicy,
} from '../router/index.js';
import type { Assignment, EngineCapacity, RequestDescription, Stage } from '../scheduler/index.js';
import { setHits, type Agent } from './agents.js';
import { takenConstants } from './constants.js';
import type { SimulatedScheduler } from './round-robin.js';
import type { ClusterSettings } from './settings.js';

/** Who chooses the cell of a request. */
export const cellRoutings = ['dualmap', 'late-lane', 'hash', 'least-loaded'] as const;
export type CellRouting = (typeof cellRoutings)[number];

/** Several cells, each a group of prefill and decode nodes with a scheduler and a block store of its own. */
export interface CellSettings {
  readonly cells: number;
  readonly routing: CellRouting;
  /** Time to first token that the router aims at. */
  readonly sloS: number;
}

export interface CellHooks {
  nowS(): number;
  agent(request: string): Agent;
  /** A cell's scheduler over its engines. */
  scheduler(engines: readonly EngineCapacity[]): SimulatedScheduler;
}

interface Session {
  readonly keys: Uint32Array;
  /** Tokens of full blocks that each cell has stored of it. */
  readonly storedTokens: Float64Array;
}

interface Running {
  readonly description: RequestDescription;
  readonly agent: Agent;
  readonly session: Session;
  routed?: RoutedRequest;
  cell: number;
}

/** What the router takes a cell's store for: more than sessions at work fill. */
const storeTokens = 1 << 27;

/**
 * The router of src/router in front of many schedulers of src/scheduler: DualMap chooses the cell, DualPath the engines in it. What a
 * request hits is what its session has left in the cell that it comes to.
 */
export class Cells implements SimulatedScheduler {
  readonly #settings: ClusterSettings;
  readonly #hooks: CellHooks;
  readonly #cells: readonly SimulatedScheduler[];
  readonly #router: Router;
  readonly #sessions: Session[] = [];
  readonly #running = new Map<string, Running>();
  readonly #byId: Running[] = [];
  #sessionsSoFar = 0;
  /** Requests that wait in the router, and can still go to either cell. */
  #undispatched = 0;

  /** @throws INVALID_ARGUMENT for nodes that cells cannot share alike */
  constructor(
    settings: ClusterSettings,
    { cells, routing, sloS }: CellSettings,
    engines: readonly EngineCapacity[],
    hooks: CellHooks,
  ) {
    const { prefillNodes, decodeNodes, blockTokens } = settings;
    for (const [what, nodes] of [
      ['prefill', prefillNodes],
      ['decode', decodeNodes],
    ] as const) {
      if (nodes % cells === 0) continue;
      throw new DualPathError(
        'INVALID_ARGUMENT',
        `${nodes} ${what} nodes do not make ${cells} cells alike; use a multiple`,
        { cells, [`${what}_nodes`]: nodes },
      );
    }
    this.#settings = settings;
    this.#hooks = hooks;
    const each = engines.length / cells;
    const prefillEach = (prefillNodes / cells) * settings.enginesPerNode;
    const prefill = engines.filter(({ role }) => role === 'prefill');
    const decode = engines.filter(({ role }) => role === 'decode');
    this.#cells = Array.from({ length: cells }, (_, cell) =>
      hooks.scheduler([
        ...prefill.slice(cell * prefillEach, (cell + 1) * prefillEach),
        ...decode.slice(cell * (each - prefillEach), (cell + 1) * (each - prefillEach)),
      ]),
    );
    const prefillSPerToken = engineSPerToken(settings) / prefillEach;
    // A cell's scheduler orders what it is given; beyond what it computes in time, requests can still go elsewhere.
    const dispatchedTokensMax = Math.max(blockTokens, sloS / prefillSPerToken);
    this.#router = new Router(
      { blockTokens, prefillSPerToken, sloS, dispatchedTokensMax },
      policyOf(routing, settings.seed),
      { dispatch: (request) => this.#dispatch(request) },
    );
    for (let cell = 0; cell < cells; cell++)
      this.#router.addInstance({ name: `cell-${cell}`, cacheTokens: storeTokens }, 0);
  }

  get waiting(): number {
    return this.#cells.reduce((sum, { waiting }) => sum + waiting, this.#undispatched);
  }

  submit(description: RequestDescription, nowS: number): void {
    const agent = this.#hooks.agent(description.request);
    const { blockTokens } = this.#settings;
    if (agent.turn === 0 || this.#sessions[agent.slot] === undefined)
      this.#sessions[agent.slot] = this.#newSession(agent);
    const session = this.#sessions[agent.slot]!;
    const running: Running = { description, agent, session, cell: -1 };
    this.#running.set(description.request, running);
    this.#byId[agent.slot] = running;
    this.#undispatched++;
    const { promptTokens } = description;
    const blocks = Math.floor(promptTokens / blockTokens);
    running.routed = this.#router.submit(
      { id: agent.slot, keys: session.keys, firstBlock: 0, blocks, promptTokens },
      nowS,
    );
  }

  #newSession({ script }: Agent): Session {
    const session = this.#sessionsSoFar++;
    const blocks = Math.ceil(Math.max(...script.promptTokens) / this.#settings.blockTokens);
    const keys = new Uint32Array(2 * blocks);
    for (let block = 0; block < blocks; block++) {
      keys[2 * block] = hash32(block, session, 0x2c1b3c6d);
      keys[2 * block + 1] = hash32(session, block, 0x297a2d39);
    }
    return { keys, storedTokens: new Float64Array(this.#cells.length) };
  }

  #dispatch({ id, instance }: RoutedRequest): void {
    const running = this.#byId[id]!;
    const { description, agent, session } = running;
    running.cell = instance.index;
    this.#undispatched--;
    const hitTokens = Math.min(description.hitTokens, session.storedTokens[running.cell]!);
    setHits(agent, hitTokens);
    this.#cells[running.cell]!.submit({ ...description, hitTokens }, this.#hooks.nowS());
  }

  admit(): readonly Assignment[] {
    return this.#cells.flatMap((cell) => cell.admit());
  }

  complete(request: string, stage: Stage, admission?: number): void {
    const running = this.#running.get(request)!;
    const { routed, session, agent, cell } = running;
    this.#cells[cell]!.complete(request, stage, admission);
    const nowS = this.#hooks.nowS();
    if (stage === 'prefill') this.#router.prefillDone(routed!, nowS);
    if (stage !== 'request') return;
    const { script, turn } = agent;
    const { blockTokens } = this.#settings;
    const tokens = script.promptTokens[turn]! + script.outputTokens[turn]! - 1;
    session.storedTokens[cell] = Math.floor(tokens / blockTokens) * blockTokens;
    this.#running.delete(request);
    this.#router.finished(routed!, nowS);
  }
}

function policyOf(routing: CellRouting, seed: number): RoutingPolicy {
  if (routing === 'dualmap') return new DualMapPolicy({ ...paperDualMap, seed });
  if (routing === 'late-lane') return new LateLanePolicy({ ...lateLane, seed });
  return routing === 'hash' ? new HashAffinityPolicy(seed) : new LeastLoadedPolicy(seed);
}

/** What a token more costs an engine's prefill, in the midst of an ordinary context. */
function engineSPerToken({ prefillTime }: ClusterSettings): number {
  const { perNewTokenS, perAttentionTokenS, perAttentionPairS } = prefillTime;
  return perNewTokenS + perAttentionTokenS + perAttentionPairS * takenConstants.overheadContextTokens;
}
