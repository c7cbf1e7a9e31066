/**
 * The leader of a group of the kill tests: joins the scheduler for its engines, processes of their own, which it starts
 * again when they die. One JSON argument; says on stdout which engines it has; ends with its input.
 */
import { fork } from 'node:child_process';
import { join } from 'node:path';
import { EngineClient } from '../../dist/scheduler-client/index.js';

const { group, role, engines, endpoints, model, folder } = JSON.parse(process.argv[2]);
const children = new Map();

const capacityOf = (engine) => ({
  ...{ engine, group, role, node: `node-${group}`, bufferBlocks: 4096 },
  ...{ hbmBlocks: role === 'prefill' ? 0 : 4096, readRateBytesPerS: 1e9 },
});

const client = new EngineClient({
  ...{ endpoints, model, group, credits: 64 },
  engines: engines.map((engine) => ({ capacity: capacityOf(engine) })),
  onRevoked: (request, error, admission) => {
    const child = children.get(holders.get(admission));
    if (child?.connected) child.send({ revoke: admission, why: error.message });
  },
});
/** Which engine has which lease. */
const holders = new Map();

function start(engine) {
  const child = fork(join(import.meta.dirname, 'engine.mjs'), [
    JSON.stringify({ name: engine, role, folder }),
  ]);
  children.set(engine, child);
  console.log(`engine ${engine} ${child.pid}`);
  child.on('message', (message) => hear(message));
  child.on('error', () => undefined); // what could not be said to one that is dying
  child.once('exit', () => {
    for (const [admission, holder] of holders) if (holder === engine) holders.delete(admission);
    client.engineLost(engine);
    start(engine);
    client.engineStarted(engine);
  });
}

function hear({ admission, request, stage, first, tokens, failed }) {
  if (tokens) client.tokens(admission, first, Uint32Array.from(tokens));
  if (stage) client.complete(request, stage, admission);
  if (failed !== undefined) client.fail(request, new Error(failed), admission);
  if (failed !== undefined || stage === 'prefill' || stage === 'request') holders.delete(admission);
}

function assign({ request, admission, prefillEngine, decodeEngine }) {
  const engine = role === 'prefill' ? prefillEngine : decodeEngine;
  const { resumeTokens, maxNewTokens } = client.details(admission);
  holders.set(admission, engine);
  const child = children.get(engine);
  if (child.connected) child.send({ request, admission, resume: resumeTokens.length, tokens: maxNewTokens });
}

engines.forEach(start);
process.stdin.once('close', () => process.exit()).resume();
for (let sequence = 1; ; sequence++) {
  const loads = engines.map((engine) => {
    const unfinishedRequests = [...holders.values()].filter((holder) => holder === engine).length;
    return { engine, sequence, unfinishedRequests, unfinishedTokens: 0, nodeReadQueueBlocks: 0 };
  });
  for (const assignment of await client.fetch(group, loads)) assign(assignment);
}
