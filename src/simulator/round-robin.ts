import type {
  Assignment,
  EngineCapacity,
  EngineLoad,
  RequestDescription,
  Stage,
} from '../scheduler/index.js';

/** What a simulation asks of a scheduler; `Admission` is one. */
export interface SimulatedScheduler {
  submit(description: RequestDescription, nowS?: number): void;
  admit(): readonly Assignment[];
  complete(request: string, stage: Stage, admission?: number): unknown;
  /** Engines' own loads, where the scheduler takes them. */
  report?(loads: readonly EngineLoad[]): void;
  readonly waiting: number;
}

interface Engine extends EngineCapacity {
  freeBufferBlocks: number;
  freeHbmBlocks: number;
}

interface Running {
  readonly prefill: Engine;
  readonly decode: Engine;
  readonly assignment: Assignment;
}

export interface RoundRobinOptions {
  readonly engines: readonly EngineCapacity[];
  readonly blockTokens: number;
  readonly decodeSpareBlocks: number;
  /** Read sides in turn, or always the prefill side (Basic). */
  readonly sides: 'in turn' | 'prefill';
}

/** One PE's requests in order, from `head` on. */
interface Line {
  entries: { readonly description: RequestDescription; readonly turn: number }[];
  head: number;
}

/**
 * The baseline without scheduling: PEs, DEs and read sides in turn, whatever the load. A request is bound when it comes;
 * where its PE or its DE has no room it waits, and with it what is behind it at that PE.
 */
export class RoundRobin implements SimulatedScheduler {
  readonly #options: RoundRobinOptions;
  readonly #prefill: readonly Engine[];
  readonly #decode: readonly Engine[];
  readonly #lines: readonly Line[];
  readonly #running = new Map<string, Running>();
  #turns = 0;
  #admitted = 0;

  constructor(options: RoundRobinOptions) {
    this.#options = options;
    const of = (role: string): Engine[] =>
      options.engines
        .filter((engine) => engine.role === role)
        .map((engine) => ({
          ...engine,
          freeBufferBlocks: engine.bufferBlocks,
          freeHbmBlocks: engine.hbmBlocks,
        }));
    this.#prefill = of('prefill');
    this.#decode = of('decode');
    this.#lines = this.#prefill.map(() => ({ entries: [], head: 0 }));
  }

  get waiting(): number {
    return this.#turns - this.#admitted;
  }

  submit(description: RequestDescription): void {
    const turn = this.#turns++;
    this.#lines[turn % this.#lines.length]!.entries.push({ description, turn });
  }

  admit(): Assignment[] {
    const assignments: Assignment[] = [];
    for (const line of this.#lines) {
      for (let next = line.entries[line.head]; next; next = line.entries[line.head]) {
        const assignment = this.#assign(next.description, next.turn);
        if (!assignment) break;
        assignments.push(assignment);
        line.head++;
      }
      if (line.head < 64 || 2 * line.head < line.entries.length) continue;
      line.entries = line.entries.slice(line.head);
      line.head = 0;
    }
    return assignments;
  }

  complete(request: string, stage: Stage): void {
    const { prefill, decode, assignment } = this.#running.get(request)!;
    if (stage === 'prefill') prefill.freeBufferBlocks += assignment.prefillReadBlocks;
    if (stage === 'decode-buffer') decode.freeBufferBlocks += assignment.promptBlocks;
    if (stage !== 'request') return;
    decode.freeBufferBlocks += this.#options.decodeSpareBlocks;
    decode.freeHbmBlocks += assignment.decodeHbmBlocks;
    this.#running.delete(request);
  }

  #assign(description: RequestDescription, turn: number): Assignment | undefined {
    const { request, promptTokens, hitTokens, maxNewTokens } = description;
    const { blockTokens, decodeSpareBlocks } = this.#options;
    const prefill = this.#prefill[turn % this.#prefill.length]!;
    const decode = this.#decode[turn % this.#decode.length]!;
    const hitBlocks = hitTokens / blockTokens;
    const promptBlocks = Math.ceil(promptTokens / blockTokens);
    const decodeHbmBlocks = Math.ceil((promptTokens + maxNewTokens) / blockTokens);
    const prefillReadBlocks = this.#readsOnPrefill(turn) ? hitBlocks : 0;
    if (
      prefill.freeBufferBlocks < prefillReadBlocks ||
      decode.freeBufferBlocks < promptBlocks + decodeSpareBlocks ||
      decode.freeHbmBlocks < decodeHbmBlocks
    ) {
      return undefined;
    }
    prefill.freeBufferBlocks -= prefillReadBlocks;
    decode.freeBufferBlocks -= promptBlocks + decodeSpareBlocks;
    decode.freeHbmBlocks -= decodeHbmBlocks;
    const assignment: Assignment = {
      request,
      epoch: 1,
      admission: ++this.#admitted,
      prefillEngine: prefill.engine,
      decodeEngine: decode.engine,
      side: prefillReadBlocks === hitBlocks ? 'prefill' : 'decode',
      prefillReadBlocks,
      decodeReadBlocks: hitBlocks - prefillReadBlocks,
      promptBlocks,
      prefillHbmBlocks: 0,
      decodeHbmBlocks,
    };
    this.#running.set(request, { prefill, decode, assignment });
    return assignment;
  }

  /** By rounds, so that a PE does not always have the same side where the number of PEs is even. */
  #readsOnPrefill(turn: number): boolean {
    if (this.#options.sides === 'prefill') return true;
    return (turn + Math.floor(turn / this.#prefill.length)) % 2 === 0;
  }
}
