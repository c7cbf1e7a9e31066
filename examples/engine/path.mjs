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
 * open(options): the cluster; route(url): a router in front of the front; beforeTurn(session, turn, cluster, request body)
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
    route,
    beforeTurn,
  } = options;
  const records = join(directory, 'records');
  mkdirSync(records, { recursive: true });
  const storePath = join(directory, 'store');
  const cluster = await open({ ...options, contextTokens, storePath, records });
  const front = new Front({
    ...{ model: model.name, tokenizer, contextTokens },
    submit: (what) => cluster.submit(what),
  });
  let router;
  try {
    const direct = await front.listen();
    router = await route?.(direct);
    const url = router?.url ?? direct;
    const before = (session, turn, body) => beforeTurn?.(session, turn, cluster, body);
    const { records: turns, talks } = await runAgents({
      ...agents,
      url,
      model: model.name,
      beforeTurn: before,
    });
    return { name, turns, talks, recordsFolder: records, records: readRecords(records) };
  } finally {
    await router?.stop();
    await front.close();
    await cluster.close();
  }
}

/** Every turn again on the reference. */
export async function checkPath({ turns, records, recordsFolder: directory }, model, { blockTokens }) {
  const reference = new Reference(model);
  const sum = { tokens_identical: true, largest_logit_difference: 0, smallest_margin: Infinity, attempts: 0 };
  for (const { request } of turns) {
    for (const record of records.get(request)) {
      // Of an attempt whose engine was lost before its first token nothing was stored.
      if (record === undefined || record.tokens.length === 0) continue;
      const found = await reference.follow(record, { blockTokens, directory });
      sum.attempts++;
      sum.tokens_identical &&= found.identical;
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
  const rates = { from_turn: fromTurn, turns: 0, hit_rate: 0, at_most: 0, all_hit: true };
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
