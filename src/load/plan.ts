import { DualPathError } from '../errors/index.js';
import { arrivalTimesS } from '../route-eval/index.js';
import { SeededRandom } from '../scheduler/index.js';
import { SessionTokens, type Session } from '../trace/index.js';

/** One request to send. */
export interface PlannedRequest {
  readonly session: number;
  readonly turn: number;
  /** From the start of the run. */
  readonly atS: number;
  readonly promptTokens: number;
  readonly outputTokens: number;
}

export interface PlanOptions {
  readonly qps: number;
  readonly arrivals: 'trace' | 'poisson';
  readonly seed: number;
  /** Requests to take, the first; default all. */
  readonly requests?: number | undefined;
  readonly maxPromptTokens: number;
  readonly maxOutputTokens: number;
}

/** When what is sent. @throws INVALID_ARGUMENT where the trace has no arrival times and they are asked for */
export function planLoad(sessions: readonly Session[], options: PlanOptions): PlannedRequest[] {
  const { qps, seed, maxPromptTokens, maxOutputTokens } = options;
  const turns = sessions
    .flatMap((session, index) => session.turns.map((turn, number) => ({ session: index, number, turn })))
    .slice(0, options.requests);
  let timesS: Float64Array;
  if (options.arrivals === 'trace') {
    const arrivalMs = Float64Array.from(turns, ({ turn }) => turn.arrivalMs ?? NaN);
    if (arrivalMs.some((ms) => Number.isNaN(ms))) {
      throw new DualPathError(
        'INVALID_ARGUMENT',
        'the trace does not say when each request came: give --arrivals poisson, or a trace in the mooncake format',
      );
    }
    timesS = arrivalTimesS({ arrivalMs }, qps, seed);
  } else {
    const random = new SeededRandom(seed);
    let nowS = 0;
    timesS = Float64Array.from(turns, (_, i) => {
      if (i > 0) nowS += -Math.log((random.below(2 ** 32) + 1) / 2 ** 32) / qps;
      return nowS;
    });
  }
  return turns.map(({ session, number, turn }, i) => ({
    session,
    turn: number,
    atS: timesS[i]!,
    promptTokens: Math.min(turn.promptTokens, maxPromptTokens),
    outputTokens: Math.max(1, Math.min(turn.outputTokens, maxOutputTokens)),
  }));
}

const digits = 'ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_';

/** Prompts whose equal parts are those of the trace: as words of four bytes, a token each, or as token ids. */
export class PromptMaker {
  readonly #sessions: readonly Session[];
  readonly #seed: number;
  readonly #vocabulary: number | null;
  readonly #latest = new Map<number, SessionTokens>();

  /** `vocabulary`: prompts are ids below it; null: text. */
  constructor(sessions: readonly Session[], seed: number, vocabulary: number | null) {
    this.#sessions = sessions;
    this.#seed = seed;
    this.#vocabulary = vocabulary;
  }

  promptOf({ session, turn, promptTokens }: PlannedRequest): string | number[] {
    const whole = this.#sessions[session]!;
    const tokens = this.#latest.get(session) ?? new SessionTokens(whole, this.#seed);
    // A session of several turns is made turn by turn; what is over is forgotten.
    if (turn + 1 < whole.turns.length) this.#latest.set(session, tokens);
    else this.#latest.delete(session);
    const ids = tokens.conversationOf(turn).subarray(0, promptTokens);
    if (this.#vocabulary !== null) return Array.from(ids, (id) => id % this.#vocabulary!);
    let text = '';
    for (const id of ids) text += `${digits[id & 63]}${digits[(id >>> 6) & 63]}${digits[(id >>> 12) & 63]} `;
    return text;
  }
}
