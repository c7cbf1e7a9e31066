/** What stored KV saves, and what layerwise transfer hides. */
import { join } from 'node:path';
import { complete } from './agent.mjs';
import { LocalCluster } from './cluster.mjs';
import { Front } from './front.mjs';
import { hitRates, runPath } from './path.mjs';
import { clockUs, shares, watchBatch } from './timeline.mjs';

const median = (values) => values.toSorted((a, b) => a - b)[Math.floor(values.length / 2)];
const mapValues = (object, f) =>
  Object.fromEntries(Object.entries(object).map(([key, value]) => [key, f(value, key)]));

const medians = (rows) => mapValues(rows[0], (_, key) => median(rows.map((row) => row[key])));

/**
 * TTFT of an agent's turns from `fromTurn` on, seen by the client, with what is stored and recomputed. Each turn is first sent to engines
 * of the same kind whose store is empty, then to its own, so that both find the machine in the same state.
 */
export async function storedTtft(options, { name, fromTurn, agents }) {
  const { model, tokenizer, directory, blockTokens, path } = options;
  const open = (more) => new LocalCluster(model, tokenizer.endToken, { blockTokens, path, ...more });
  const recomputedMs = new Map();
  const beforeTurn = async (_, turn, cluster, body) => {
    if (turn < fromTurn) return;
    const alone = open({ storePath: join(directory, `${name}-without-${turn}`) });
    const submit = (what) => alone.submit(what);
    const front = new Front({ model: model.name, tokenizer, contextTokens: 8192, submit });
    const { firstTokenMs } = await complete(await front.listen(), { ...body, max_tokens: 1 });
    recomputedMs.set(turn, firstTokenMs);
    await front.close();
    await alone.close();
  };
  const { turns } = await runPath({
    ...{ ...options, name, directory: join(directory, name), agents: { ...agents, sessions: 1 }, beforeTurn },
    open: async ({ storePath, contextTokens }) => open({ storePath, contextTokens }),
  });
  const rows = turns
    .filter(({ turn }) => turn >= fromTurn)
    .map(({ turn, promptTokens, hitTokens, firstTokenMs }) => ({
      ...{ turn, prompt_tokens: promptTokens, hit_tokens: hitTokens },
      ...{ stored_ms: firstTokenMs, recomputed_ms: recomputedMs.get(turn) },
      ratio: firstTokenMs / recomputedMs.get(turn),
    }));
  const ratios = rows.map(({ ratio }) => ratio);
  return {
    ...{
      session: name,
      block_tokens: blockTokens,
      hits: hitRates(turns, blockTokens, fromTurn),
      turns: rows,
    },
    ...{ ratio_median: median(ratios), ratio_most: Math.max(...ratios) },
  };
}

/** A cluster of which every request's way to its first token is written down. */
class WatchedCluster {
  /** Of each request: when what began, on the data plane's clock, and its batch layer by layer. */
  rows = [];
  #cluster;

  constructor(model, endToken, options) {
    const row = () => this.rows.at(-1);
    this.#cluster = new LocalCluster(model, endToken, {
      ...options,
      onStage: (_, stage) => (row()[stage] = clockUs()),
      watch: (batch) =>
        watchBatch(this.#cluster.prefill, (timeline) => Object.assign(row(), timeline))(batch),
    });
  }

  /** One request at a time, for one token. */
  async ask(prompt) {
    const row = { submittedUs: clockUs() };
    this.rows.push(row);
    const { stream } = await this.#cluster.submit({ prompt, maxNewTokens: 1 });
    for await (const token of stream) row.firstTokenUs ??= token && clockUs();
    await stream.ended;
    return row;
  }

  close() {
    return this.#cluster.close();
  }
}

/** Requests of `hits` stored tokens and `fresh` new ones, of which no two have the same new ones: or the second would find them. */
function requestsOf({ model, hits, fresh }) {
  const vocabulary = model.shape.vocab - 10;
  const tokens = (count, seed) =>
    Array.from({ length: count }, (_, i) => 5 + (((i + seed) * 7919) % vocabulary));
  const context = tokens(hits, 1);
  let count = 0;
  return () => Uint32Array.from([...context, ...tokens(fresh, 1000 + 37 * count++)]);
}

/**
 * Where the time to the first token goes when either side reads the hits (then what is on its way are copies within the prefill
 * engine's host, or transfers between engines); and layerwise prefill beside load-then-compute over compute networks so slow that loading takes
 * each of `loadShares` of the compute time.
 */
export async function overlap(options, { hits, fresh, rounds, loadShares }) {
  const { model, tokenizer, directory, blockTokens } = options;
  const common = { storePath: join(directory, 'overlap'), blockTokens, path: 'decode-read' };
  const open = (more) => new WatchedCluster(model, tokenizer.endToken, { ...common, ...more });
  const next = requestsOf({ model, hits, fresh });
  const uncapped = {};
  let computeMs = Infinity;
  for (const path of ['prefill-read', 'decode-read']) {
    const cluster = open({ path });
    for (let i = 0; i <= rounds; i++) await cluster.ask(next()); // the first of all stores the context
    await cluster.close();
    const measured = cluster.rows.slice(1).map(shares);
    uncapped[path] = medians(measured);
    computeMs = Math.min(computeMs, ...measured.map(({ compute_ms }) => compute_ms));
  }
  const bytes = hits * 4 * model.rowFloats * model.shape.layers;
  const links = [];
  let timeline;
  for (const loadShare of loadShares) {
    const bytesPerS = Math.round(bytes / ((loadShare * computeMs) / 1000));
    const { lastRow, ...result } = await throughLink(open, { next, rounds, bytesPerS });
    links.push(result);
    timeline ??= lastRow;
  }
  // What else the machine does moves a pair's share of loading; those count that have it from 0.5 to 1.
  const pairs = links.flatMap((link) => link.pairs).filter(({ load_share: x }) => x >= 0.5 && x <= 1);
  const ratios = pairs.map(({ ratio }) => ratio);
  const result = {
    ...{
      hit_tokens: hits,
      new_tokens: fresh,
      compute_ms: computeMs,
      uncapped,
      links,
      pairs_counted: pairs.length,
    },
    ...{ ratio: median(ratios), ratio_least: Math.min(...ratios), ratio_most: Math.max(...ratios) },
    first_token_ratio: median(pairs.map(({ first_token_ratio }) => first_token_ratio)),
  };
  return { timeline, result };
}

/** Both ways in pairs, each first every other time. */
async function throughLink(open, { next, rounds, bytesPerS }) {
  const cluster = (name, layerwise) => {
    const links = (side) => ({
      storage: { name: `${name}-${side}-${bytesPerS}`, readBytesPerS: 0, writeBytesPerS: 0 },
      compute: { name: `${name}-${side}-${bytesPerS}`, bytesPerS },
    });
    return open({ links, layerwise });
  };
  const ways = { layerwise: cluster('layerwise', true), load_then_compute: cluster('at-once', false) };
  for (let i = 0; i <= rounds; i++) {
    const order = Object.keys(ways);
    for (const way of i % 2 === 0 ? order : order.reverse()) await ways[way].ask(next());
  }
  for (const way of Object.values(ways)) await way.close();
  // Without the first round, in which both warm up.
  const measured = mapValues(ways, ({ rows }) => rows.slice(1).map(shares));
  const pairs = measured.layerwise.map((one, i) => {
    const other = measured.load_then_compute[i];
    return {
      load_share: other.load_ms / other.compute_ms,
      ratio: one.batch_ms / other.batch_ms,
      first_token_ratio: one.first_token_ms / other.first_token_ms,
    };
  });
  return {
    ...{ link_bytes_per_s: bytesPerS, pairs, ...mapValues(measured, medians) },
    lastRow: ways.layerwise.rows.at(-1),
  };
}
