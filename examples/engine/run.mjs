#!/usr/bin/env node
/**
 * The example as a whole: agents talk to the engine over HTTP in every way of running, and a reference computes all of it again.
 *
 *   npm run example [-- --json] [-- --random] [-- --small] [-- --gguf FILE] [-- --turns N]
 */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { basename, join } from 'node:path';
import { parseArgs } from 'node:util';
import { fetchWeights, installPackages } from './install.mjs';

const { values: flags } = parseArgs({
  options: {
    json: { type: 'boolean', default: false },
    small: { type: 'boolean', default: false },
    random: { type: 'boolean', default: false },
    gguf: { type: 'string' },
    turns: { type: 'string', default: '12' },
    sessions: { type: 'string', default: '2' },
    paths: { type: 'string' },
    measure: { type: 'boolean', default: false },
    'measure-only': { type: 'boolean', default: false },
    timeline: { type: 'string' },
    conversation: { type: 'string' },
    help: { type: 'boolean', default: false },
  },
});
const usage = `npm run example -- [options]: a real transformer on dualpath's data plane, every token checked
  --json               one document on stdout
  --small              a small model with random weights, which loads in a moment
  --random             random weights of the real model's shape; nothing is downloaded
  --gguf FILE          another Llama-type model
  --turns N            of each agent (12); --sessions N: agents (2)
  --paths LIST         some of them, as split-64,prefill-read-16
  --measure            TTFT against recomputing, and layerwise against load-then-compute
  --measure-only       that, after the paths of --paths, and nothing else
  --timeline FILE      an SVG of one turn's layers (with --measure)
  --conversation FILE  the first agent's conversation, as text`;
const say = (text) => process.stderr.write(`${text}\n`);

/** Way of running, side that reads, block size. */
function plan({ small, paths }) {
  const all = ['prefill-read', 'decode-read', 'split'];
  const every = [16, 64].flatMap((blockTokens) => all.map((path) => ({ path, blockTokens })));
  const nameOf = ({ path, blockTokens }) => `${path}-${blockTokens}`;
  if (paths === undefined)
    return small ? every : every.filter((one) => one.blockTokens === 64 || one.path === 'split');
  return paths.split(',').map((name) => {
    const found = every.find((one) => nameOf(one) === name);
    if (found === undefined) throw new Error(`no path ${name}; there are ${every.map(nameOf).join(', ')}`);
    return found;
  });
}

async function openModel() {
  const { LlamaModel } = await import('./model.mjs');
  const { ggufWeights, randomWeights } = await import('./weights.mjs');
  const { ChatTokenizer } = await import('./tokenizer.mjs');
  const file = flags.small || flags.random ? undefined : (flags.gguf ?? fetchWeights());
  const weights =
    file === undefined ? randomWeights(flags.small ? 'small' : 'smollm2-135m') : ggufWeights(file);
  const model = await LlamaModel.open(weights);
  say(
    file === undefined
      ? `model ${model.name}: random weights, replies mean nothing`
      : `model ${model.name} from ${basename(file)}: ${model.shape.layers} layers, KV of ${4 * model.rowFloats * model.shape.layers} bytes a token`,
  );
  const source = file === undefined ? { shape: flags.small ? 'small' : 'smollm2-135m' } : { gguf: file };
  return {
    source,
    model,
    tokenizer: new ChatTokenizer(weights.metadata),
    weights: file === undefined ? 'random' : 'real',
  };
}

/** Runs agents on a cluster, follows them on the reference, and says what came of it. */
async function runAndCheck(common, { name, way, path, blockTokens, ...more }) {
  const { checkPath, hitRates, runPath } = await import('./path.mjs');
  const directory = join(common.directory, name.replaceAll(/\W+/g, '-'));
  const run = await runPath({ ...common, name, path, blockTokens, directory, ...more });
  const check = await checkPath(run, common.model, { blockTokens });
  const hits = hitRates(run.turns, blockTokens, 5);
  say(
    `${name}: ${run.turns.length} turns, tokens ${check.tokens_identical ? 'identical' : 'DIFFERENT'}, largest logit ` +
      `difference ${check.largest_logit_difference}, hit rate from turn 5 on ${(100 * hits.hit_rate).toFixed(1)} % of ` +
      `${(100 * hits.at_most).toFixed(1)} % possible`,
  );
  const result = {
    name,
    way,
    path,
    block_tokens: blockTokens,
    ...check,
    turns: run.turns.length,
    from_turn_5: hits,
  };
  return { run, result };
}

async function runPaths(common) {
  const results = [];
  let run;
  for (const { path, blockTokens } of plan(flags)) {
    const name = `one process, ${path}, blocks of ${blockTokens}`;
    const one = await runAndCheck(common, { name, way: 'one process', path, blockTokens });
    results.push(one.result);
    ({ run } = one);
  }
  return { results, run };
}

/** Engines in processes of their own; the decode engine is killed between two turns, and in the midst of one. */
async function runProcesses(common) {
  const { ProcessCluster } = await import('./processes.mjs');
  let cluster;
  const open = async (options) => (cluster = await ProcessCluster.open(common.model, options));
  const beforeTurn = async (session, turn) => {
    if (session === 0 && turn === 3) await cluster.killAndReplace('decode');
    if (session === 0 && turn === 6) cluster.killDuring(4);
  };
  const [name, path] = ['processes, split, blocks of 16, decode engine killed twice', 'split'];
  const { result } = await runAndCheck(common, {
    name,
    way: 'processes',
    path,
    blockTokens: 16,
    open,
    beforeTurn,
  });
  return { ...result, engines_started: cluster.started };
}

async function runFaults(common) {
  const { checkPath, runPath } = await import('./path.mjs');
  const { corruptingCluster } = await import('./faults.mjs');
  const result = {};
  for (const detect of [true, false]) {
    const { found, ...cluster } = corruptingCluster({ detect });
    const name = detect ? 'flipped bytes' : 'flipped bytes, checks switched off';
    const options = { ...common, ...cluster, name, path: 'split', blockTokens: 16 };
    const agents = { ...common.agents, sessions: 1, turns: 4 };
    const run = await runPath({ ...options, agents, directory: join(common.directory, `flipped-${detect}`) });
    const { tokens_identical } = await checkPath(run, common.model, { blockTokens: 16 });
    result[detect ? 'detected' : 'not_detected'] = {
      tokens_identical,
      flipped_blocks: found.flipped,
      recomputed_blocks: found.lostBlocks,
    };
    say(
      `${name}: ${found.flipped} blocks harmed, ${found.lostBlocks} computed anew, tokens ${tokens_identical ? 'identical' : 'different'}`,
    );
  }
  return result;
}

async function runMeasurements(common, run) {
  const { overlap, recomputeTtft } = await import('./measure.mjs');
  const last = plan(flags).at(-1);
  const ttft = await recomputeTtft(run, { ...common, ...last }, 5);
  say(
    `TTFT from turn 5 on: ${(100 * ttft.ratio_median).toFixed(1)} % of recomputing it (most ${(100 * ttft.ratio_most).toFixed(1)} %)`,
  );
  const { result, timeline } = await overlap(
    { ...common, blockTokens: 64 },
    { hits: 1024, fresh: 96, rounds: 5, loadShare: 0.75 },
  );
  say(
    `layerwise ${result.layerwise_ms.toFixed(0)} ms, load-then-compute ${result.load_then_compute_ms.toFixed(0)} ms: ratio ${result.ratio.toFixed(2)}`,
  );
  if (flags.timeline !== undefined) {
    const { timelineSvg } = await import('./timeline.mjs');
    writeFileSync(
      flags.timeline,
      await timelineSvg(timeline, `${common.model.name}: one turn, layer by layer`),
    );
  }
  return { ttft, overlap: result };
}

const asText = ({ talks }) => talks[0].map(({ role, content }) => `## ${role}\n\n${content}\n`).join('\n');

async function main() {
  installPackages();
  const { model, tokenizer, weights, source } = await openModel();
  const directory = mkdtempSync(join(tmpdir(), 'dualpath-engine-example-'));
  const agents = {
    ...{ sessions: Number(flags.sessions), turns: Number(flags.turns) },
    ...(flags.small ? { toolLines: 0, maxTokens: 12 } : { toolLines: 5, maxTokens: 24 }),
  };
  const common = { model, tokenizer, directory, agents, ...source };
  try {
    const { results, run } = await runPaths(common);
    const whole = !flags['measure-only'];
    if (whole) results.push(await runProcesses(common));
    const faults = whole ? await runFaults(common) : undefined;
    const measured = flags.measure || !whole ? await runMeasurements(common, run) : {};
    if (flags.conversation !== undefined) writeFileSync(flags.conversation, asText(run));
    const document = { model: model.name, weights, paths: results, faults, ...measured };
    if (flags.json) console.log(JSON.stringify(document));
    const fine = results.every(
      ({ tokens_identical, from_turn_5 }) => tokens_identical && from_turn_5.all_hit,
    );
    const seen =
      faults === undefined || (faults.detected.tokens_identical && !faults.not_detected.tokens_identical);
    if (!fine || !seen) process.exitCode = 1;
  } finally {
    rmSync(directory, { recursive: true, force: true });
  }
}

if (flags.help) console.log(usage);
else await main();
