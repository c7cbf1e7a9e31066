import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { MessageChannel, Worker, type MessagePort } from 'node:worker_threads';
import { expect, it } from 'vitest';
import { DualPathError, type ErrorCode } from '../../src/errors/index.js';
import { blockLayout, loadModel } from '../../src/layout/index.js';
import { verifyStore } from '../../src/replay/index.js';
import { LocalScheduler, type EngineLoad, type ReadPolicy } from '../../src/scheduler/index.js';
import { BlockStore } from '../../src/storage/index.js';
import { TrafficManager } from '../../src/traffic/index.js';
import type { SequenceResult } from '../../src/engine/index.js';
import { joined, tokens } from './cluster.js';

interface Closed {
  readonly checkedBytes: number;
  readonly mismatchedBytes: number;
  readonly readBytes: number;
  readonly held: number;
}

type Request =
  | { readonly id: number; readonly group: string; readonly loads: EngineLoad[] }
  | { readonly abort: number }
  | { readonly report: 'complete'; readonly args: Parameters<LocalScheduler['complete']> }
  | { readonly report: 'fail'; readonly args: [string, { code: ErrorCode; message: string }, number] };

/** Serves the scheduler to an engine in another thread. */
function serve(scheduler: LocalScheduler, port: MessagePort): void {
  const aborts = new Map<number, AbortController>();
  const fetch = async (id: number, group: string, loads: EngineLoad[]): Promise<void> => {
    const abort = new AbortController();
    aborts.set(id, abort);
    try {
      port.postMessage({ id, value: await scheduler.fetch(group, loads, abort.signal) });
    } catch (error) {
      const { code, message } = error as DualPathError;
      port.postMessage({ id, error: { code, message } });
    }
    aborts.delete(id);
  };
  port.on('message', (request: Request) => {
    if ('id' in request) void fetch(request.id, request.group, request.loads);
    else if ('abort' in request) aborts.get(request.abort)?.abort();
    else if (request.report === 'complete') scheduler.complete(...request.args);
    else {
      const [name, { code, message }, admission] = request.args;
      scheduler.fail(name, new DualPathError(code, message), admission);
    }
  });
}

class EngineThread {
  readonly schedulerPort: MessagePort;
  readonly open: Promise<void>;
  readonly #worker: Worker;
  readonly #ended = new Map<string, (result: SequenceResult) => void>();
  #closed!: (closed: Closed) => void;
  #failed!: (error: unknown) => void;

  constructor(data: Record<string, unknown>, controlPort: MessagePort) {
    const { port1, port2 } = new MessageChannel();
    this.schedulerPort = port1;
    this.#worker = new Worker(new URL('engine-worker.mjs', import.meta.url), {
      workerData: { ...data, controlPort, schedulerPort: port2 },
      transferList: [controlPort, port2],
    });
    this.open = new Promise((resolve, reject) => {
      this.#failed = reject;
      this.#worker.on('error', (error) => this.#failed(error));
      type Message = { open?: true; ended?: string; result?: SequenceResult; closed?: Closed };
      this.#worker.on('message', ({ open, ended, result, closed }: Message) => {
        if (open !== undefined) resolve();
        if (ended !== undefined) this.#ended.get(ended)!(result!);
        if (closed !== undefined) this.#closed(closed);
      });
    });
  }

  ended(request: string): Promise<SequenceResult> {
    return new Promise((resolve, reject) => {
      this.#ended.set(request, resolve);
      this.#failed = reject;
    });
  }

  async close(): Promise<Closed> {
    const exited = new Promise((resolve) => this.#worker.once('exit', resolve));
    const closed = await new Promise<Closed>((resolve, reject) => {
      this.#closed = resolve;
      this.#failed = reject;
      this.#worker.postMessage('close');
    });
    await exited;
    this.schedulerPort.close();
    return closed;
  }
}

const model = 'demo-mla';
const blockTokens = 16;

/** Three turns of a session and one of another, one after the other; the prefill engine takes chunks. */
async function run(policy: ReadPolicy, path: string): Promise<{ prefill: Closed; decode: Closed }> {
  const layout = blockLayout(loadModel(model), { blockTokens });
  const store = BlockStore.open({ path, layout });
  const names = { prefill: `prefill-thread/${policy}`, decode: `decode-thread/${policy}` };
  const common = { bufferBlocks: 64, readRateBytesPerS: 1e9 };
  const scheduler = new LocalScheduler({
    engines: (['prefill', 'decode'] as const).map((role) => {
      const engine = names[role];
      return { ...common, engine, node: engine, group: engine, role, hbmBlocks: role === 'decode' ? 64 : 0 };
    }),
    policy,
    blockTokens,
    blockBytes: store.file.fileBytes,
    decodeSpareBlocks: 1,
    maxWaiting: 10,
    seed: 1,
  });
  const { port1, port2 } = new MessageChannel();
  const shared = { storePath: path, model, blockTokens };
  const prefill = new EngineThread(
    {
      ...shared,
      role: 'prefill',
      name: names.prefill,
      peer: names.decode,
      engineOptions: { stagingBlocks: 24, quotaS: 48, windowLayers: 2 },
    },
    port1,
  );
  const decode = new EngineThread(
    { ...shared, role: 'decode', name: names.decode, peer: names.prefill, engineOptions: { hbmBlocks: 64 } },
    port2,
  );
  await Promise.all([prefill.open, decode.open]);
  for (const { schedulerPort } of [prefill, decode]) serve(scheduler, schedulerPort);
  await using front = new TrafficManager({ name: `front/${policy}`, layout, store, bufferBlocks: 1 });
  const turn = async (request: string, prompt: Uint32Array, reply: Uint32Array): Promise<SequenceResult> => {
    const chain = await front.lookup(prompt);
    const { hitTokens } = chain;
    chain.release();
    for (const { schedulerPort } of [prefill, decode]) {
      schedulerPort.postMessage({ prompt: { request, tokens: prompt, reply } });
    }
    const ended = decode.ended(request);
    const maxNewTokens = reply.length;
    await scheduler.submit({ request, promptTokens: prompt.length, hitTokens, maxNewTokens });
    return await ended;
  };
  let conversation = tokens(0);
  for (const [index, hitBlocks] of [0, 8, 16].entries()) {
    const prompt = joined(conversation, tokens(100));
    const reply = tokens(30);
    conversation = joined(prompt, reply);
    expect(await turn(`${index}`, prompt, reply)).toMatchObject({ hitBlocks, persistError: undefined });
  }
  const other = tokens(40);
  expect(await turn('other', other, tokens(0))).toMatchObject({ hitBlocks: 0, storedBlocks: 2 });
  const closed = { prefill: await prefill.close(), decode: await decode.close() };
  const stored = await verifyStore(store, [conversation, other]);
  expect(stored).toMatchObject({ blocks: 24 + 2, mismatchedBytes: 0 });
  expect(scheduler.statistics()).toMatchObject({ completed: 4, failed: 0, running: 0 });
  scheduler.close();
  return closed;
}

it.each([
  ['prefill', true, false],
  ['split', true, true],
] as const)('engines in threads of their own, %s reads: every byte is right', async (policy, pe, de) => {
  const directory = mkdtempSync(join(tmpdir(), 'dualpath-workers-'));
  try {
    const { prefill, decode } = await run(policy, join(directory, 'store'));
    for (const side of [prefill, decode]) {
      expect(side).toMatchObject({ mismatchedBytes: 0, held: 0 });
      expect(side.checkedBytes).toBeGreaterThan(0);
    }
    expect([prefill.readBytes > 0, decode.readBytes > 0]).toEqual([pe, de]);
  } finally {
    rmSync(directory, { recursive: true, force: true });
  }
});
