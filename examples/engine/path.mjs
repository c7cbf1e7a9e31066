/** One way of running, driven by agents through the front, and checked against the reference. */
import { mkdirSync } from 'node:fs';
import { join } from 'node:path';
import { runAgents } from './agent.mjs';
import { LocalCluster } from './cluster.mjs';
import { Front } from './front.mjs';
import { Recorder, readRecords } from './recorder.mjs';
import { Reference } from './reference.mjs';

/** A cluster of this process. */
export const openLocal = async ({ model, tokenizer, ...options }) =>
  new LocalCluster(model, tokenizer.endToken, {
    ...options,
    recorder: new Recorder(options.records, 'engines'),
  });

/**
 * @param options name; directory: a folder of its own; path, blockTokens; model, tokenizer; agents: for runAgents;
 * open(options): the cluster; beforeTurn(session, turn, cluster)
 */
export async function runPath(options) {
  const {
    name,
    directory,
    model,
    tokenizer,
    agents,
    contextTokens = 8192,
    open = openLocal,
    beforeTurn,
  } = options;
  const records = join(directory, 'records');
  mkdirSync(records, { recursive: true });
  const storePath = join(directory, 'store');
  const cluster = await open({ ...options, contextTokens, storePath, records });
  /** For each turn what was submitted: one request, or several where an engine was lost in its midst. */
  const attempts = new Map();
  const submit = async (what) => {
    const submission = await cluster.submit({
      ...what,
      attempt: (request, prompt) => attempts.set(request, [...(attempts.get(request) ?? []), prompt]),
    });
    if (!attempts.has(submission.request)) attempts.set(submission.request, [what.prompt]);
    return submission;
  };
  const front = new Front({ model: model.name, tokenizer, contextTokens, submit });
  try {
    const url = await front.listen();
    const before = (session, turn) => beforeTurn?.(session, turn, cluster);
    const { records: turns, talks } = await runAgents({
      ...agents,
      url,
      model: model.name,
      beforeTurn: before,
    });
    return { name, turns, talks, attempts, records: readRecords(records), recordsFolder: records };
  } finally {
    await front.close();
    await cluster.close();
  }
}

/** Every turn again on the reference. */
export async function checkPath({ turns, attempts, records, recordsFolder }, model, { blockTokens }) {
  const reference = new Reference(model);
  const sum = {
    tokens_identical: true,
    largest_logit_difference: 0,
    smallest_margin: Infinity,
    differing_turns: [],
  };
  for (const turn of turns) {
    for (const [attempt, prompt] of attempts.get(turn.request).entries()) {
      const record = records.get(attempt === 0 ? turn.request : `${turn.request}/${attempt}`);
      if (record === undefined || record.chunks.length === 0) continue; // it was lost before anything was computed
      const found = await reference.follow(prompt, record, { blockTokens, directory: recordsFolder });
      sum.tokens_identical &&= found.identical;
      if (!found.identical) sum.differing_turns.push({ session: turn.session, turn: turn.turn });
      sum.largest_logit_difference = Math.max(sum.largest_logit_difference, found.logitDifference);
      sum.smallest_margin = Math.min(sum.smallest_margin, found.leastMargin);
      // From here on the conversation is another one: there is nothing to compare it with.
      if (!found.identical) return sum;
    }
  }
  return sum;
}

/** Hits of each turn against the most that full blocks allow: the session's stored blocks, and at least a token computed. */
export function hitRates(turns, blockTokens, fromTurn) {
  const last = new Map();
  const rates = { turns: 0, hit_rate: 0, at_most: 0, all_hit: true };
  for (const { session, turn, promptTokens, hitTokens, newTokens } of turns) {
    const before = last.get(session);
    last.set(session, promptTokens + newTokens - 1); // the last token has no KV
    if (turn < fromTurn || before === undefined) continue;
    const most = Math.floor(Math.min(before, promptTokens - 1) / blockTokens) * blockTokens;
    rates.turns++;
    rates.hit_rate += hitTokens / promptTokens;
    rates.at_most += most / promptTokens;
    rates.all_hit &&= hitTokens >= most;
  }
  return { ...rates, hit_rate: rates.hit_rate / rates.turns, at_most: rates.at_most / rates.turns };
}
