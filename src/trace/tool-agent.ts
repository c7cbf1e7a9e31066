import { SeededRandom } from '../scheduler/index.js';
import type { Session } from './types.js';

/**
 * A stand-in for Mooncake's Tool&Agent trace, made to the description of it that has been published: so many requests
 * over so long, mean lengths, the share of tokens that an infinite cache has, and what requests share. It is not that
 * trace; where the original is at hand, read it instead.
 */
export const toolAgentDescription = {
  requests: 23_608,
  durationS: 3537,
  meanPromptTokens: 8596,
  meanOutputTokens: 182,
  /** Prompt tokens in blocks that an earlier request had. */
  prefixShare: 0.59,
  /** Requests that share at least half their blocks. */
  halfSharedRequests: 0.76,
  /** Requests that begin with one prefix of so many blocks; the rest shares nothing. */
  groups: [
    { share: 0.378, prefixBlocks: 12 },
    { share: 0.149, prefixBlocks: 5 },
    { share: 0.452, prefixBlocks: 1, conversations: true },
  ],
} as const;

const blockTokens = 512;
const maxPromptTokens = 125_000;

/** Fitted to the description; see the test. Means in tokens, sigmas of the logarithm. */
const fit = {
  toolTail: { mean: 4000, sigma: 0.25 },
  agentTail: { mean: 1500, sigma: 0.5 },
  single: { mean: 16000, sigma: 0.8 },
  firstPrompt: { mean: 6000, sigma: 0.8 },
  growth: { mean: 1450, sigma: 0.9 },
  output: { mean: 182, sigma: 0.9 },
  /** Chance that a conversation has another turn. */
  continues: 0.625,
  meanPauseS: 45,
} as const;

interface Made {
  readonly arrivalMs: number;
  readonly promptTokens: number;
  readonly outputTokens: number;
  readonly blocks: readonly number[];
}

/** Requests as the Mooncake reader gives them: sessions of one turn, by arrival. */
export function toolAgentSessions(seed: number): Session[] {
  const maker = new Maker(seed);
  const made: Made[] = [];
  const { requests, groups } = toolAgentDescription;
  const [tool, agent, chat] = groups.map(({ share }) => Math.round(share * requests)) as [
    number,
    number,
    number,
  ];
  for (let i = 0; i < tool; i++) made.push(maker.single(maker.prefix(0), fit.toolTail));
  for (let i = 0; i < agent; i++) made.push(maker.single(maker.prefix(1), fit.agentTail));
  for (let i = 0; i < requests - tool - agent - chat; i++) made.push(maker.single([], fit.single));
  while (made.length < requests) made.push(...maker.conversation(requests - made.length));
  made.sort((a, b) => a.arrivalMs - b.arrivalMs);
  return renumbered(made).map(toSession);
}

class Maker {
  readonly #random: SeededRandom;
  #next = 0;
  readonly #prefixes: readonly (readonly number[])[];

  constructor(seed: number) {
    this.#random = new SeededRandom(seed);
    this.#prefixes = toolAgentDescription.groups.map(({ prefixBlocks }) => this.#fresh(prefixBlocks));
  }

  prefix(group: number): readonly number[] {
    return this.#prefixes[group]!;
  }

  single(prefix: readonly number[], length: { mean: number; sigma: number }): Made {
    const promptTokens = this.#cut(prefix.length * blockTokens + this.#length(length));
    return {
      arrivalMs: this.#arrivalMs(),
      promptTokens,
      outputTokens: this.#length(fit.output),
      blocks: [...prefix, ...this.#fresh(Math.ceil(promptTokens / blockTokens) - prefix.length)],
    };
  }

  /** Turns that each begin with the full blocks of the one before; those after the trace's end are left out. */
  conversation(turnsMax: number): Made[] {
    const turns: Made[] = [];
    let kept = this.prefix(2);
    let promptTokens = Math.max(blockTokens + 1, this.#cut(this.#length(fit.firstPrompt)));
    let arrivalMs = this.#arrivalMs();
    while (turns.length < turnsMax && arrivalMs < toolAgentDescription.durationS * 1000) {
      const blocks = [...kept, ...this.#fresh(Math.ceil(promptTokens / blockTokens) - kept.length)];
      const outputTokens = this.#length(fit.output);
      turns.push({ arrivalMs, promptTokens, outputTokens, blocks });
      if (this.#random.below(1000) >= 1000 * fit.continues) break;
      kept = blocks.slice(0, Math.floor(promptTokens / blockTokens));
      promptTokens = this.#cut(promptTokens + outputTokens + this.#length(fit.growth));
      arrivalMs += Math.round(-Math.log(this.#uniform()) * fit.meanPauseS * 1000);
    }
    return turns;
  }

  #arrivalMs(): number {
    return this.#random.below(toolAgentDescription.durationS * 1000);
  }

  #cut(tokens: number): number {
    return Math.min(maxPromptTokens, tokens);
  }

  #fresh(blocks: number): number[] {
    return Array.from({ length: blocks }, () => this.#next++);
  }

  /** Above 0, at most 1. */
  #uniform(): number {
    return (this.#random.below(2 ** 32) + 1) / 2 ** 32;
  }

  /** Log-normal of that mean. */
  #length({ mean, sigma }: { mean: number; sigma: number }): number {
    const normal = Math.sqrt(-2 * Math.log(this.#uniform())) * Math.cos(2 * Math.PI * this.#uniform());
    return Math.max(1, Math.round(mean * Math.exp(sigma * normal - (sigma * sigma) / 2)));
  }
}

/** Ids in the order in which blocks first appear, as in the original. */
function renumbered(made: readonly Made[]): Made[] {
  const ids = new Map<number, number>();
  return made.map((request) => ({
    ...request,
    blocks: request.blocks.map((block) => {
      const id = ids.get(block) ?? ids.size;
      ids.set(block, id);
      return id;
    }),
  }));
}

function toSession({ arrivalMs, promptTokens, outputTokens, blocks }: Made, index: number): Session {
  const identity = { kind: 'blocks', blockTokens, hashIds: blocks } as const;
  return {
    id: `request-${index + 1}`,
    prefix: [],
    turns: [{ promptTokens, outputTokens, traceHitTokens: null, arrivalMs, thinkMs: null, identity }],
  };
}
