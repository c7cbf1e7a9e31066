import type {
  Assignment,
  EngineCapacity,
  EngineLoad,
  RequestDescription,
  Stage,
} from '../../scheduler/index.js';
import type { ModelScheduler } from './cluster.js';

interface Engine extends EngineCapacity {
  freeBufferBlocks: number;
  freeHbmBlocks: number;
}

interface Running {
  readonly prefill: Engine;
  readonly decode: Engine;
  readonly assignment: Assignment;
}

/**
 * The baseline without scheduling: requests in order, PEs, DEs and read sides in turn, whatever the load. It
 * keeps to the engines' memory: what has none where its turn is waits, as does everything behind it.
 */
export class RoundRobin implements ModelScheduler {
  readonly #blockTokens: number;
  readonly #prefill: readonly Engine[];
  readonly #decode: readonly Engine[];
  readonly #waiting: RequestDescription[] = [];
  readonly #running = new Map<string, Running>();
  #head = 0;
  #admitted = 0;

  constructor(engines: readonly EngineCapacity[], blockTokens: number) {
    this.#blockTokens = blockTokens;
    const of = (role: string): Engine[] =>
      engines
        .filter((engine) => engine.role === role)
        .map((engine) => ({
          ...engine,
          freeBufferBlocks: engine.bufferBlocks,
          freeHbmBlocks: engine.hbmBlocks,
        }));
    this.#prefill = of('prefill');
    this.#decode = of('decode');
  }

  submit(description: RequestDescription): void {
    this.#waiting.push(description);
  }

  fetch(_group: string, _loads: readonly EngineLoad[]): Assignment[] {
    const assignments: Assignment[] = [];
    for (let head = this.#waiting[this.#head]; head; head = this.#waiting[this.#head]) {
      const assignment = this.#assign(head);
      if (!assignment) break;
      assignments.push(assignment);
      this.#waiting[this.#head++] = head;
    }
    this.#waiting.splice(0, this.#head);
    this.#head = 0;
    return assignments;
  }

  complete(request: string, stage: Stage): void {
    const running = this.#running.get(request)!;
    const { prefill, decode, assignment } = running;
    if (stage === 'prefill') prefill.freeBufferBlocks += assignment.prefillReadBlocks;
    if (stage === 'decode-buffer') decode.freeBufferBlocks += assignment.promptBlocks;
    if (stage !== 'request') return;
    decode.freeHbmBlocks += assignment.decodeHbmBlocks;
    this.#running.delete(request);
  }

  #assign({ request, promptTokens, hitTokens, maxNewTokens }: RequestDescription): Assignment | undefined {
    const turn = this.#admitted;
    const prefill = this.#prefill[turn % this.#prefill.length]!;
    const decode = this.#decode[turn % this.#decode.length]!;
    // By rounds, so that a PE does not always have the same side where the number of PEs is even.
    const side = (turn + Math.floor(turn / this.#prefill.length)) % 2 === 0 ? 'prefill' : 'decode';
    const hitBlocks = hitTokens / this.#blockTokens;
    const promptBlocks = Math.ceil(promptTokens / this.#blockTokens);
    const decodeHbmBlocks = Math.ceil((promptTokens + maxNewTokens) / this.#blockTokens);
    const prefillReadBlocks = side === 'prefill' ? hitBlocks : 0;
    if (
      prefill.freeBufferBlocks < prefillReadBlocks ||
      decode.freeBufferBlocks < promptBlocks ||
      decode.freeHbmBlocks < decodeHbmBlocks
    ) {
      return undefined;
    }
    prefill.freeBufferBlocks -= prefillReadBlocks;
    decode.freeBufferBlocks -= promptBlocks;
    decode.freeHbmBlocks -= decodeHbmBlocks;
    const assignment: Assignment = {
      request,
      epoch: 1,
      admission: ++this.#admitted,
      prefillEngine: prefill.engine,
      decodeEngine: decode.engine,
      side,
      prefillReadBlocks,
      decodeReadBlocks: hitBlocks - prefillReadBlocks,
      promptBlocks,
      prefillHbmBlocks: 0,
      decodeHbmBlocks,
    };
    this.#running.set(request, { prefill, decode, assignment });
    return assignment;
  }
}
