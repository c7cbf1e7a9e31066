import { DualPathError } from '../errors/index.js';
import { Draws } from './draws.js';
import { traceLimits } from './types.js';

/** One column each of DualPath's Table 2. */
export interface DataSetStatistics {
  /** Mean turns of a trajectory. */
  readonly turns: number;
  /** Mean over trajectories of their mean new prompt tokens a turn. */
  readonly appendTokens: number;
  /** Mean over trajectories of their mean generated tokens a turn. */
  readonly outputTokens: number;
  /** Mean tokens of a trajectory at its end. */
  readonly totalTokens: number;
  /** Mean over all turns of the tokens before the appended ones. */
  readonly contextTokens: number;
}

/**
 * A generator: each trajectory draws how many turns it would take, log-normal, and a turn size of its own,
 * log-normal, which scales its appends and its replies; each of those is log-normal around it. The first prompt
 * has a size of its own, for the mean context is more than half the mean total. A trajectory ends with its
 * last turn or before the turn that would exceed `maxTokens`. So short trajectories with large appends come
 * about, which Table 2 demands: turns x (append + gen) is 1.6 to 1.7 times the total there.
 */
interface DataSet {
  readonly maxTokens: number;
  readonly published: DataSetStatistics;
  readonly turnsLogMean: number;
  readonly turnsLogDeviation: number;
  readonly appendLogMean: number;
  readonly sizeLogDeviation: number;
  /** Generated over appended tokens. */
  readonly outputRatio: number;
  /** Of the first prompt, which has instructions and tools in it; around it as any other append. */
  readonly firstLogMean: number;
}

/** Of an append or a reply around its trajectory's size; Table 2 says nothing of it. */
const turnLogDeviation = 0.8;
/** Takes the mean of such a draw back to the mean of its size. */
const spreadLog = turnLogDeviation ** 2 / 2;

/** The paper's data sets. The log-normal parameters are fitted to `published` and to nothing else. */
export const dataSets = {
  '32k': {
    maxTokens: 32_768,
    published: {
      turns: 60,
      appendTokens: 608,
      outputTokens: 148,
      totalTokens: 28_639,
      contextTokens: 17_183,
    },
    turnsLogMean: 4.9116,
    turnsLogDeviation: 1.0916,
    appendLogMean: 5.846,
    sizeLogDeviation: 0.7246,
    outputRatio: 0.3285,
    firstLogMean: 8.7507,
  },
  '48k': {
    maxTokens: 49_152,
    published: {
      turns: 106,
      appendTokens: 474,
      outputTokens: 172,
      totalTokens: 42_607,
      contextTokens: 25_120,
    },
    turnsLogMean: 5.1906,
    turnsLogDeviation: 0.7162,
    appendLogMean: 5.5174,
    sizeLogDeviation: 0.807,
    outputRatio: 0.4957,
    firstLogMean: 9.0997,
  },
  '64k': {
    maxTokens: 65_536,
    published: {
      turns: 157,
      appendTokens: 429,
      outputTokens: 176,
      totalTokens: 55_958,
      contextTokens: 32_721,
    },
    turnsLogMean: 5.799,
    turnsLogDeviation: 1.1933,
    appendLogMean: 5.5012,
    sizeLogDeviation: 0.816,
    outputRatio: 0.5106,
    firstLogMean: 8.9416,
  },
} as const satisfies Record<string, DataSet>;

export type DataSetName = keyof typeof dataSets;

export interface GenerateOptions {
  readonly dataSet: DataSetName;
  readonly trajectories: number;
  readonly seed: number;
  /**
   * Agents, each a session; default one a trajectory. Agents beyond the trajectories take them again, with a
   * turn of random tokens in front as the paper does, so that nothing of theirs is found in the store.
   */
  readonly agents?: number | undefined;
  /** Agents that start a second, a Poisson process; default: no arrivals are recorded. */
  readonly agentsPerS?: number | undefined;
}

export interface GeneratedTurn {
  readonly append: number;
  readonly output: number;
  readonly arrival_ms?: number;
}

/** A line of the `dualpath` trace format. */
export interface GeneratedSession {
  readonly format: 'dualpath';
  readonly version: 1;
  readonly id: string;
  readonly turns: readonly GeneratedTurn[];
}

/**
 * The turn in front of a repeated trajectory: one block of the paper's 64 tokens, with which every later
 * block's key differs and starts where it did.
 */
const randomTurn: GeneratedTurn = { append: 63, output: 1 };

/** Sessions in the order of their numbers; the same for the same options on every machine. */
export function* generateTrace(options: GenerateOptions): Generator<GeneratedSession> {
  const { dataSet, trajectories, seed, agents = trajectories, agentsPerS } = options;
  checkOptions(options);
  const arrivals = new Draws(seed, 0, 1);
  let arrivalS = 0;
  for (let agent = 0; agent < agents; agent++) {
    let turns = trajectory(dataSets[dataSet], seed, agent % trajectories);
    if (agent >= trajectories) turns = within(dataSets[dataSet].maxTokens, [randomTurn, ...turns]);
    if (agentsPerS !== undefined) {
      arrivalS += arrivals.exponential() / agentsPerS;
      const [first, ...rest] = turns;
      turns = [{ ...first!, arrival_ms: Math.round(arrivalS * 1000) }, ...rest];
    }
    yield { format: 'dualpath', version: 1, id: `${dataSet}-${seed}-${agent}`, turns };
  }
}

/** What Table 2 states, of sessions that were generated. */
export function dataSetStatistics(sessions: Iterable<GeneratedSession>): DataSetStatistics {
  let count = 0;
  const sums = { turns: 0, append: 0, output: 0, total: 0, context: 0 };
  for (const { turns } of sessions) {
    count++;
    let context = 0;
    const own = { append: 0, output: 0 };
    for (const { append, output } of turns) {
      sums.context += context;
      own.append += append;
      own.output += output;
      context += append + output;
    }
    sums.turns += turns.length;
    sums.append += own.append / turns.length;
    sums.output += own.output / turns.length;
    sums.total += context;
  }
  return {
    turns: sums.turns / count,
    appendTokens: sums.append / count,
    outputTokens: sums.output / count,
    totalTokens: sums.total / count,
    contextTokens: sums.context / sums.turns,
  };
}

function trajectory(set: DataSet, seed: number, index: number): GeneratedTurn[] {
  const draws = new Draws(seed, 1, index);
  const wanted = Math.round(draws.logNormal(set.turnsLogMean, set.turnsLogDeviation));
  const turns = Math.min(Math.max(wanted, 1), traceLimits.turnsPerSession);
  const sizeLog = draws.normal() * set.sizeLogDeviation;
  const meanLog = set.appendLogMean + sizeLog - spreadLog;
  const result: GeneratedTurn[] = [];
  let total = 0;
  for (let turn = 0; turn < turns; turn++) {
    // Draws of the first append come in the same place as the others', so that the rest does not shift.
    const drawn = draws.logNormal(turn === 0 ? set.firstLogMean - spreadLog : meanLog, turnLogDeviation);
    const append = Math.min(Math.max(1, Math.round(drawn)), turn === 0 ? set.maxTokens / 2 : Infinity);
    const reply = draws.logNormal(meanLog + Math.log(set.outputRatio), turnLogDeviation);
    const output = Math.max(1, Math.round(reply));
    total += append + output;
    if (total > set.maxTokens) break;
    result.push({ append, output });
  }
  // A first turn beyond the limit alone is cut to it.
  return result.length > 0 ? result : [{ append: set.maxTokens - 1, output: 1 }];
}

function within(maxTokens: number, turns: readonly GeneratedTurn[]): GeneratedTurn[] {
  let total = 0;
  const end = turns.findIndex(({ append, output }) => (total += append + output) > maxTokens);
  return turns.slice(0, end < 0 ? turns.length : Math.max(end, 1));
}

function checkOptions({ dataSet, trajectories, seed, agents, agentsPerS }: GenerateOptions): void {
  if (!Object.hasOwn(dataSets, dataSet)) {
    refuse('dataset', String(dataSet), Object.keys(dataSets).join(', '));
  }
  const whole = (name: string, value: number, least: number, most: number): void => {
    if (Number.isSafeInteger(value) && value >= least && value <= most) return;
    refuse(name, String(value), `a whole number from ${least} to ${most}`);
  };
  whole('trajectories', trajectories, 1, traceLimits.sessions);
  whole('agents', agents ?? trajectories, 1, traceLimits.sessions);
  whole('seed', seed, 0, Number.MAX_SAFE_INTEGER);
  if (agentsPerS !== undefined && !(agentsPerS > 0 && Number.isFinite(agentsPerS))) {
    refuse('arrival rate', String(agentsPerS), 'agents a second, above 0');
  }
}

function refuse(name: string, value: string, remedy: string): never {
  throw new DualPathError('INVALID_ARGUMENT', `${name} is ${value}: give ${remedy}`, { name, value });
}
