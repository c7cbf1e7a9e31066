#!/usr/bin/env node
/**
 * Two hosts, joined by RDMA: `dualpath serve`, front, agents and the prefill engine on the first, the decode engine on the second, blocks
 * in a folder that both mount. Prints its paths as JSON.
 *
 *   node examples/engine/hosts.mjs [OPTIONS]      e.g. '{"turns":3,"paths":["split-16"]}'
 *
 * It starts itself on two hosts by `dualpath rxe`, which gives them soft-RoCE, in guests as a rule: emulated, so slow that the model is a
 * small one with random weights.
 */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, mkdirSync, mkdtempSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { randomBytes } from 'node:crypto';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { installPackages } from './install.mjs';

const defaultOptions = { paths: ['split-16'], sessions: 1, turns: 3, maxTokens: 6, timeLimitS: 900 };
const options = { ...defaultOptions, ...JSON.parse(process.argv[2] ?? '{}') };
const { DUALPATH_RXE_HOST: host, DUALPATH_RXE_ADDRESS: address, DUALPATH_OUT: out } = process.env;
const say = (text) => process.stderr.write(`${text}\n`);

/** Words between the hosts are files in a folder that both have. */
const word = (name) => join(out, `${name}.word`);
function tell(name, text = '') {
  writeFileSync(`${word(name)}.part`, text);
  renameSync(`${word(name)}.part`, word(name));
}
async function hear(...names) {
  for (;;) {
    const said = names.find((name) => existsSync(word(name)));
    if (said !== undefined) return said;
    await sleep(200);
  }
}

/** The second host: engines, one after the other, as the first asks for them. */
async function serveEngines() {
  const { launchEngine } = await import('./processes.mjs');
  for (let count = 1; (await hear(`engine-${count}`, 'over')) !== 'over'; count++) {
    const engine = await launchEngine({
      ...JSON.parse(readFileSync(word(`engine-${count}`), 'utf8')),
      listen: { host: address, port: 0 },
    });
    tell(`ready-${count}`);
    await hear(`stop-${count}`, 'over');
    await engine.stop();
    tell(`stopped-${count}`);
  }
}

/** Starts decode engines on the second host. */
function launcher(launchEngine) {
  let count = 0;
  return async (engine) => {
    if (engine.role === 'prefill') return await launchEngine(engine);
    const number = ++count;
    tell(`engine-${number}`, JSON.stringify(engine));
    await hear(`ready-${number}`);
    return {
      stop: async () => {
        tell(`stop-${number}`);
        await hear(`stopped-${number}`);
      },
    };
  };
}

async function runAndCheck(common, name) {
  const { checkPath, hitRates, runPath } = await import('./path.mjs');
  const [, path, blocks] = /^(.+)-(\d+)$/.exec(name);
  const blockTokens = Number(blocks);
  const began = performance.now();
  const run = await runPath({
    ...common,
    ...{ name, path, blockTokens, directory: join(options.folder, name) },
  });
  const check = await checkPath(run, common.model, { blockTokens });
  const seconds = Math.round((performance.now() - began) / 1000);
  say(`two hosts, ${name}: ${run.turns.length} turns, ${JSON.stringify(check)}, ${seconds} s`);
  const hits = hitRates(run.turns, blockTokens, 2);
  return {
    ...{ name: `two hosts, ${path}, blocks of ${blockTokens}`, way: 'two hosts', path },
    ...{ block_tokens: blockTokens, ...check, turns: run.turns.length, hits },
  };
}

async function runAgentsHere() {
  const { LlamaModel } = await import('./model.mjs');
  const { launchEngine, ProcessCluster } = await import('./processes.mjs');
  const { randomWeights } = await import('./weights.mjs');
  const { ChatTokenizer } = await import('./tokenizer.mjs');
  const tokenFile = join(out, 'token');
  writeFileSync(tokenFile, randomBytes(32).toString('hex'), { mode: 0o600 });
  const model = await LlamaModel.open(randomWeights('small'));
  say('two hosts: the model is open');
  const { sessions, turns, maxTokens, paths } = options;
  const common = {
    ...{ model, tokenizer: new ChatTokenizer(), shape: 'small', transport: 'rdma', host: address, tokenFile },
    leaseS: 30, // an emulated host may stand still for seconds
    ...{ contextTokens: 2048, agents: { sessions, turns, maxTokens, toolLines: 0 } },
    ...{ launch: launcher(launchEngine), open: (all) => ProcessCluster.open(model, all) },
  };
  const results = [];
  for (const name of paths) results.push(await runAndCheck(common, name));
  process.stdout.write(`${JSON.stringify({ paths: results })}\n`);
}

/** From outside: both hosts run this file, and see one folder. */
async function startHosts() {
  installPackages();
  const folder = mkdtempSync(join(tmpdir(), 'dualpath-engine-hosts-'));
  const [shared, results] = ['shared', 'results'].map((name) => join(folder, name));
  mkdirSync(shared);
  const cli = join(import.meta.dirname, '../../dist/cli/main.js');
  const folders = ['--share', shared, '--out', results];
  const rxe = ['rxe', '--hosts', '2', '--time-limit', `${options.timeLimitS}`, ...folders];
  const there = [process.execPath, import.meta.filename, JSON.stringify({ ...options, folder: shared })];
  try {
    const child = spawn(process.execPath, [cli, ...rxe, '--', ...there], {
      stdio: ['ignore', 'inherit', 'inherit'],
    });
    const [code] = await once(child, 'exit');
    process.exitCode = code ?? 1;
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

if (host === undefined) await startHosts();
else if (host === '2') await serveEngines();
else {
  try {
    await runAgentsHere();
  } finally {
    tell('over');
  }
}
