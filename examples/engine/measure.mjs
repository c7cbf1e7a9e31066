/** What stored KV saves, and what layerwise transfer hides. */
import { join } from 'node:path';
import { LocalCluster } from './cluster.mjs';
import { shares, watchBatch } from './timeline.mjs';

const median = (values) => values.toSorted((a, b) => a - b)[Math.floor(values.length / 2)];

const mapValues = (object, f) =>
  Object.fromEntries(Object.entries(object).map(([key, value]) => [key, f(value)]));

async function firstToken(cluster, prompt) {
  const began = performance.now();
  const { hitTokens, stream } = await cluster.submit({ prompt, maxNewTokens: 1 });
  let ms;
  for await (const token of stream) ms ??= token && performance.now() - began;
  await stream.ended;
  return { ms, hitTokens };
}

/**
 * TTFT of a conversation's turns from `fromTurn` on, with what is stored (as the agents found it) and recomputed: on engines with an
 * empty store, each prompt by itself.
 */
export async function recomputeTtft(run, options, fromTurn) {
  const { model, tokenizer, directory, blockTokens, path } = options;
  const turns = run.turns.filter(({ session, turn }) => session === 0 && turn >= fromTurn);
  const rows = [];
  for (const { turn, request, firstTokenMs, promptTokens, hitTokens } of turns) {
    const storePath = join(directory, `recompute-${turn}`);
    const cluster = new LocalCluster(model, tokenizer.endToken, { storePath, blockTokens, path });
    const { ms } = await firstToken(cluster, run.records.get(request)[0].prompt);
    await cluster.close();
    rows.push({
      ...{
        turn,
        prompt_tokens: promptTokens,
        hit_tokens: hitTokens,
        stored_ms: firstTokenMs,
        recomputed_ms: ms,
      },
      ratio: firstTokenMs / ms,
    });
  }
  return {
    turns: rows,
    ratio_median: median(rows.map(({ ratio }) => ratio)),
    ratio_most: Math.max(...rows.map(({ ratio }) => ratio)),
  };
}

/**
 * Time to the first token with layerwise prefill and with load-then-compute, in turns, over a compute network so slow that loading
 * takes `loadShare` of the compute time.
 */
export async function overlap(options, { hits, fresh, rounds, loadShare }) {
  const { model, tokenizer, directory, blockTokens } = options;
  const storePath = join(directory, 'overlap');
  const vocabulary = model.shape.vocab - 10;
  const tokens = (count, seed) =>
    Array.from({ length: count }, (_, i) => 5 + (((i + seed) * 7919) % vocabulary));
  const context = tokens(hits, 1);
  const open = (extra) => {
    const batches = [];
    const cluster = new LocalCluster(model, tokenizer.endToken, {
      ...{ storePath, blockTokens, path: 'decode-read', ...extra },
      watch: (batch) => watchBatch(cluster.prefill, (timeline) => batches.push(timeline))(batch),
    });
    return { cluster, batches };
  };
  const ask = (cluster, seed) => firstToken(cluster, Uint32Array.from([...context, ...tokens(fresh, seed)]));

  const free = open({});
  await ask(free.cluster, 2); // stores the context
  for (let i = 0; i < rounds; i++) await ask(free.cluster, 1000 + 37 * i);
  await free.cluster.close();
  const computeMs = median(free.batches.slice(-rounds).map((batch) => shares(batch).compute_ms));
  const bytes = hits * 4 * model.rowFloats * model.shape.layers;
  const bytesPerS = Math.round(bytes / ((loadShare * computeMs) / 1000));
  const links = (name) => ({
    storage: { name: `${storePath}/${name}`, readBytesPerS: 0, writeBytesPerS: 0 },
    compute: { name: `${storePath}/${name}`, bytesPerS },
  });
  const ways = {
    layerwise: open({ links: (name) => links(`l-${name}`) }),
    load_then_compute: open({ links: (name) => links(`b-${name}`), layerwise: false }),
  };
  const first = { layerwise: [], load_then_compute: [] };
  // New tokens of its own for each, or the second would find what the first has stored.
  const seeds = { layerwise: 5000, load_then_compute: 15_000 };
  for (let i = 0; i <= rounds; i++) {
    // In turns, and each first every other time: whoever reads first from a disk pays for both.
    const order = i % 2 === 0 ? ['layerwise', 'load_then_compute'] : ['load_then_compute', 'layerwise'];
    for (const way of order) first[way].push((await ask(ways[way].cluster, seeds[way] + 41 * i)).ms);
  }
  for (const { cluster } of Object.values(ways)) await cluster.close();
  // Without the first round, in which both warm up; from the batch's forming (its hits have been read) to its last layer.
  const times = mapValues(ways, ({ batches }) =>
    batches.slice(-rounds).map((batch) => shares(batch).batch_ms),
  );
  const ratios = times.layerwise.map((ms, i) => ms / times.load_then_compute[i]);
  const timeline = ways.layerwise.batches.at(-1);
  return {
    timeline,
    result: {
      ...{ hit_tokens: hits, new_tokens: fresh, rounds, link_bytes_per_s: bytesPerS, compute_ms: computeMs },
      load_ms: median(ways.load_then_compute.batches.map((batch) => shares(batch).load_ms)),
      ...{ layerwise_ms: median(times.layerwise), load_then_compute_ms: median(times.load_then_compute) },
      first_token_ms: mapValues(first, (values) => median(values.slice(1))),
      ...{ ratio: median(ratios), ratio_least: Math.min(...ratios), ratio_most: Math.max(...ratios) },
      shares: shares(timeline),
    },
  };
}
