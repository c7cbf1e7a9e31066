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
    known: { type: 'string', default: '0' },
    paths: { type: 'string' },
    measure: { type: 'boolean', default: false },
    'measure-only': { type: 'boolean', default: false },
    timeline: { type: 'string' },
    conversation: { type: 'string' },
    hosts: { type: 'boolean', default: false },
    help: { type: 'boolean', default: false },
  },
});
const usage = `npm run example -- [options]: a real transformer on dualpath's data plane, every token checked
  --json               one document on stdout
  --small              a small model with random weights, which loads in a moment
  --random             random weights of the real model's shape; nothing is downloaded
  --gguf FILE          another Llama-type model
  --turns N            of each agent (12); --sessions N: agents (2)
  --known LINES        how much agents know when they begin (0); 25 lines are some 500 tokens
  --paths LIST         some of them, as split-64,prefill-read-16, or all: with every agent, in processes, too
  --measure            TTFT against recomputing, and layerwise against load-then-compute
  --measure-only       that and nothing else, on the last path of --paths
  --timeline FILE      an SVG of one turn's layers (with --measure)
  --hosts              two hosts over soft-RoCE as well (guests under emulation: some minutes)
  --conversation FILE  the first agent's conversation, as text`;
/** Real weights take their time: unless it is asked for, not every agent takes every path. */
const thorough = flags.small || flags.paths !== undefined;
const percent = (share) => `${(100 * share).toFixed(1)} %`;
const say = (text) => process.stderr.write(`${text}\n`);

/** Way of running, side that reads, block size. */
function plan({ paths }) {
  const all = ['prefill-read', 'decode-read', 'split'];
  const every = [16, 64].flatMap((blockTokens) => all.map((path) => ({ path, blockTokens })));
  const nameOf = ({ path, blockTokens }) => `${path}-${blockTokens}`;
  if (paths === undefined || paths === 'all') return every;
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
      `difference ${check.largest_logit_difference}, hit rate from turn 5 on ${percent(hits.hit_rate)} of ` +
      `${percent(hits.at_most)} possible`,
  );
  const result = {
    name,
    way,
    path,
    block_tokens: blockTokens,
    ...check,
    turns: run.turns.length,
    hits,
  };
  return { run, result };
}

async function runPaths(common) {
  const results = [];
  let run;
  const all = plan(flags);
  for (const { path, blockTokens } of all) {
    const name = `one process, ${path}, blocks of ${blockTokens}`;
    const last = path === all.at(-1).path && blockTokens === all.at(-1).blockTokens;
    const sessions = thorough || last ? common.agents.sessions : 1;
    const agents = { ...common.agents, sessions };
    const one = await runAndCheck(common, { name, way: 'one process', path, blockTokens, agents });
    results.push(one.result);
    ({ run } = one);
  }
  return { results, run };
}

/**
 * Engines in processes of their own, on every path. On one the decode engine is killed between two turns, and in the midst of another;
 * on the others there are fewer turns.
 */
async function runProcesses(common) {
  const { ProcessCluster } = await import('./processes.mjs');
  const results = [];
  for (const { path, blockTokens } of plan(flags)) {
    const kills = path === 'split' && blockTokens === 16;
    if (!thorough && !kills) continue;
    let cluster;
    const { result } = await runAndCheck(common, {
      name: `processes, ${path}, blocks of ${blockTokens}${kills ? ', decode engine killed twice' : ''}`,
      ...{ way: 'processes', path, blockTokens },
      ...(kills
        ? {}
        : { agents: { ...common.agents, sessions: 1, turns: Math.min(common.agents.turns, 6) } }),
      open: async (options) => (cluster = await ProcessCluster.open(common.model, options)),
      beforeTurn: async (session, turn) => {
        if (!kills || session !== 0) return;
        if (turn === 3) await cluster.killAndReplace('decode');
        if (turn === 6) cluster.killDuring(4);
      },
    });
    results.push({ ...result, engines_started: cluster.started });
  }
  return results;
}

/** The agents' requests go by `dualpath route`. */
async function runBehindRouter(common) {
  const { launchRouter } = await import('./processes.mjs');
  const { path, blockTokens } = plan(flags).at(-1);
  const { result } = await runAndCheck(common, {
    name: `one process behind dualpath route, ${path}, blocks of ${blockTokens}`,
    ...{ way: 'one process behind dualpath route', path, blockTokens, route: launchRouter },
    agents: { ...common.agents, turns: Math.min(common.agents.turns, 6) },
  });
  return result;
}

/** In guests: see hosts.mjs. */
async function runHosts() {
  const { spawnSync } = await import('node:child_process');
  const options = { paths: ['split-16', 'prefill-read-16', 'decode-read-16'] };
  const { status, stdout } = spawnSync(
    process.execPath,
    [join(import.meta.dirname, 'hosts.mjs'), JSON.stringify(options)],
    { stdio: ['ignore', 'pipe', 'inherit'], encoding: 'utf8' },
  );
  if (status !== 0) throw new Error(`hosts.mjs ended with ${status}; its output is above`);
  return JSON.parse(stdout).paths;
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

async function runMeasurements(common) {
  const { overlap, storedTtft } = await import('./measure.mjs');
  const last = plan(flags).at(-1);
  const { agents } = common;
  const ttft = [];
  for (const [name, knownLines] of [
    ['task alone', 0],
    ['long first message', 25],
  ]) {
    const one = await storedTtft(
      { ...common, ...last },
      { name, fromTurn: 5, agents: { ...agents, knownLines } },
    );
    say(
      `${name}: TTFT from turn 5 on ${percent(one.ratio_median)} of recomputing it (most ${percent(one.ratio_most)}), ` +
        `hit rate ${percent(one.hits.hit_rate)} of ${percent(one.hits.at_most)} possible`,
    );
    ttft.push(one);
  }
  const { result, timeline } = await overlap(
    { ...common, blockTokens: 64 },
    { hits: 1024, fresh: 96, rounds: 5, loadShares: [0.7, 0.9, 1.2] },
  );
  say(
    `layerwise against load-then-compute, loading takes 0.5 to 1 of computing: ratio ${result.ratio.toFixed(2)} ` +
      `(${result.ratio_least.toFixed(2)} to ${result.ratio_most.toFixed(2)}) of ${result.pairs_counted} pairs`,
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
    ...(flags.small
      ? { toolLines: 0, maxTokens: 12 }
      : { toolLines: 5, knownLines: Number(flags.known), maxTokens: 24 }),
  };
  const common = { model, tokenizer, directory, agents, ...source };
  try {
    const whole = !flags['measure-only'];
    const { results, run } = whole ? await runPaths(common) : { results: [] };
    if (whole) results.push(...(await runProcesses(common)));
    if (whole) results.push(await runBehindRouter(common));
    if (whole && flags.hosts) results.push(...(await runHosts()));
    const faults = whole ? await runFaults(common) : undefined;
    const measured = flags.measure || !whole ? await runMeasurements(common) : {};
    if (run !== undefined && flags.conversation !== undefined) writeFileSync(flags.conversation, asText(run));
    const document = { model: model.name, weights, paths: results, faults, ...measured };
    if (flags.json) console.log(JSON.stringify(document));
    const fine = results.every(({ tokens_identical, hits }) => tokens_identical && hits.all_hit);
    const seen =
      faults === undefined || (faults.detected.tokens_identical && !faults.not_detected.tokens_identical);
    if (!fine || !seen) process.exitCode = 1;
  } finally {
    rmSync(directory, { recursive: true, force: true });
  }
}

if (flags.help) console.log(usage);
else await main();
