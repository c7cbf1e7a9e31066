#!/usr/bin/env node
/**
 * An engine in a process of its own: `dualpath serve` gives it requests, the network of engines carries KV and control messages.
 * One JSON argument; says "ready" on stdout; ends with SIGTERM.
 */
import { readFileSync } from 'node:fs';
import {
  BlockStore,
  blockLayout,
  ControlNode,
  DecodeEngine,
  EngineClient,
  EngineControl,
  findRdmaPlace,
  MemoryExchange,
  PathExchange,
  PrefillEngine,
  rdmaTransport,
  sharedMemoryTransport,
  TrafficManager,
} from 'dualpath';
import { bufferBlocksOf, capacityOf, engineOptions } from './cluster.mjs';
import { runDecode } from './decode.mjs';
import { LlamaModel } from './model.mjs';
import { runPrefill } from './prefill.mjs';
import { Recorder } from './recorder.mjs';
import { ChatTokenizer } from './tokenizer.mjs';
import { ggufWeights, randomWeights } from './weights.mjs';

const options = JSON.parse(process.argv[2]);
const { role, name, scheduler, listen, storePath, blockTokens, records, tokenFile } = options;
const token = tokenFile === undefined ? {} : { token: readFileSync(tokenFile) };

const weights = options.gguf === undefined ? randomWeights(options.shape) : ggufWeights(options.gguf);
const model = await LlamaModel.open(weights);
const { endToken } = new ChatTokenizer(weights.metadata);
const layout = blockLayout(model.description, { blockTokens });
const { identity } = layout;

// Other engines are reached by their names; how bytes go to them depends on what joins the hosts.
const node = await ControlNode.open({ name, identity, listen, ...token });
const transports = {
  'shared-memory': () => sharedMemoryTransport({ identity, exchange: new MemoryExchange(node) }),
  rdma: () =>
    rdmaTransport({ ...{ name, identity, place: findRdmaPlace({}), exchange: new PathExchange(node) } }),
};
const traffic = new TrafficManager({
  ...{ name, layout, store: BlockStore.open({ path: storePath, layout }) },
  bufferBlocks: bufferBlocksOf(role, layout, options),
  sharedMemory: options.transport === 'shared-memory',
  transport: transports[options.transport](),
});

const client = new EngineClient({
  ...{ endpoints: [scheduler], model: model.name, group: name, ...token },
  engines: [
    {
      capacity: capacityOf(role, name, layout, options),
      addresses: { control: JSON.stringify(node.address) },
    },
  ],
  onRevoked: (request, error, admission) => engine.cancel(request, error, admission),
});

/** Assignments by request: what it is about, and which other engine it is shared with. */
const assignments = new Map();
const details = (request) => client.details(assignments.get(request)?.admission);
const fetchAssignments = async (group, loads, signal) => {
  const assigned = await client.fetch(group, loads, signal);
  for (const assignment of assigned) assignments.set(assignment.request, assignment);
  if (assignments.size > 4096) assignments.delete(assignments.keys().next().value);
  return assigned;
};

/** Whoever has been met once is dialled again by the node itself, should the connection end. */
const met = new Map();
function meet(peer) {
  if (!met.has(peer)) {
    const meeting = node.connect(JSON.parse(client.peer(peer).addresses.control));
    met.set(peer, meeting);
    meeting.catch(() => met.delete(peer));
  }
  return met.get(peer);
}

const prompts = {
  prompt: async (request) => {
    const { prefillEngine, decodeEngine } = assignments.get(request);
    const peer = role === 'decode' ? prefillEngine : decodeEngine;
    // One side dials: the decode engine, which speaks first.
    if (role === 'decode') await meet(peer);
    return new Uint32Array(Uint8Array.from(details(request).payload).buffer);
  },
  maxNewTokens: (request) => details(request).maxNewTokens,
};

const common = {
  ...{ traffic, group: name, control: new EngineControl(node), prompts },
  scheduler: {
    fetch: fetchAssignments,
    complete: (request, stage, admission) => client.complete(request, stage, admission),
    fail: (request, error, admission) => client.fail(request, error, admission),
  },
  ...engineOptions(role, model, layout, options),
};
const engine = role === 'prefill' ? new PrefillEngine(common) : new DecodeEngine(common);
node.listen({ lost: (peer) => engine.peerLost(peer) });

const hooks = {
  recorder: new Recorder(records, `${name}-${process.pid}`),
  attempt: (request) => details(request)?.attempt ?? 0,
  // Tokens go to the client by the scheduler; the decode engine has all of them, the first one too. After the loss of an engine
  // another one generates them again, over what is stored: those that were delivered are not delivered twice.
  emit: (request, first, tokens) => {
    if (role === 'decode') client.tokens(assignments.get(request).admission, first, Uint32Array.from(tokens));
  },
  ended: () => {},
  failed: (request, error) => process.stderr.write(`${name}: ${request}: ${error.message}\n`),
};
const loop =
  role === 'prefill' ? runPrefill(engine, model, hooks) : runDecode(engine, model, endToken, hooks);
loop.catch((error) => {
  process.stderr.write(`${name}: ${error.stack}\n`);
  process.exit(1);
});
process.once('SIGTERM', async () => {
  await engine.close();
  await loop;
  await client.close();
  await node.close();
});
process.stdout.write('ready\n');
