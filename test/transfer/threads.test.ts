/** Engines in worker threads, and threads and processes that end in the midst of transfers. */
import { spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { join } from 'node:path';
import { MessageChannel, Worker } from 'node:worker_threads';
import { describe, expect, it } from 'vitest';
import { Arena } from '../../src/memory/index.js';
import type { TransferEngine } from '../../src/transfer/index.js';
import { scratchDirectory } from '../traffic/support.js';
import { errorOf, openEngine, sleep } from './support.js';

const script = new URL('./engine-worker.mjs', import.meta.url);
const blockBytes = 4096;

/** Memory of the shape that engine-worker.mjs has. */
function addMemory(engine: TransferEngine): void {
  const arena = new Arena({ name: 'main', bytes: 16 * blockBytes, hugePages: false, lock: 'none' });
  const layers = [0, blockBytes / 2].map((offsetBytes) => ({
    offsetBytes,
    planes: [{ offsetBytes: 0, bytesPerToken: 128 }],
  }));
  engine.addGeometry({
    arena: arena.handle,
    offsetBytes: 0,
    slotStrideBytes: blockBytes,
    slots: 16,
    blockTokens: 16,
    layers,
  });
  engine.setSlots(
    0,
    Array.from({ length: 16 }, (_, i) => i),
  );
}

describe('worker threads', () => {
  it('exchange blocks by name, with nothing shared but a port', async () => {
    const { port1, port2 } = new MessageChannel();
    const workers = [port1, port2].map(
      (port, i) =>
        new Worker(script, {
          workerData: { role: 'exchange', name: `exchange-${i}`, port, seed: i + 1 },
          transferList: [port],
        }),
    );
    const results = await Promise.all(workers.map((worker) => once(worker, 'message')));
    for (const [result] of results) expect(result).toEqual({ mine: 8 * blockBytes, got: 8 * blockBytes });
    await Promise.all(workers.map((worker) => worker.terminate()));
  });

  it('may be terminated in the midst of it, 20 times', async () => {
    const path = join(scratchDirectory(), 'store');
    const engine = openEngine({ name: 'main' });
    addMemory(engine);
    const codes: string[] = [];
    for (let round = 0; round < 20; round++) {
      const name = 'worker'; // the same each time: the name is free when the worker has gone
      const worker = new Worker(script, { workerData: { role: 'busy', name, peer: 'main', path } });
      worker.on('error', (error) => codes.push(String(error)));
      const [{ arrived }] = (await once(worker, 'message')) as [{ arrived: number }];
      const peer = engine.connect(`${name}/memory`);
      const send = {
        op: 'send',
        peer,
        from: 0,
        to: 0,
        fromSlots: 0,
        toSlots: 0,
        blocks: 16,
        firstBlock: 0,
        tokenBegin: 0,
        tokenEnd: 256,
        layers: 2,
        signals: [{ counter: arrived, value: 1, remote: true }],
      } as const;
      // Submitted one after the other until the peer is lost: each has its end.
      const sending = (async (): Promise<string> => {
        for (;;) {
          const done = engine.submit(Array.from({ length: 8 }, () => send)).done;
          const code = await done.then(
            () => 'completed',
            (error: unknown) => (error as { code: string }).code,
          );
          if (code !== 'completed') return code;
        }
      })();
      await sleep(round % 5);
      await worker.terminate();
      codes.push(await sending);
      expect((await errorOf(() => engine.connect(`${name}/memory`))).code).toBe('PEER_LOST');
    }
    expect(codes).toEqual(Array.from({ length: 20 }, () => 'PEER_LOST'));
    await engine.submit([{ op: 'nop' }]).done;
  });
});

describe('terminated workers', () => {
  it('leave no native object, no file descriptor and no socket', () => {
    const child = spawnSync(
      process.execPath,
      [new URL('./terminations.mjs', import.meta.url).pathname, '--terminations', '10'],
      { encoding: 'utf8', timeout: 60_000 },
    );
    expect([child.status, child.signal]).toEqual([0, null]);
    expect(JSON.parse(child.stdout)).toMatchObject({ ends: { PEER_LOST: 10 }, left: {}, passed: true });
  }, 60_000);
});

describe('a process', () => {
  it.each([
    ['exit', 7, ''],
    ['throw', 1, 'Error: nobody catches this'],
    ['reject', 1, 'Error: nobody awaits this'],
  ])('that ends by %s in the midst of transfers does so with its own code', (how, code, message) => {
    const child = spawnSync(
      process.execPath,
      [new URL('./exit-process.mjs', import.meta.url).pathname, scratchDirectory(), how],
      { encoding: 'utf8', timeout: 15_000 },
    );
    expect([child.status, child.signal]).toEqual([code, null]);
    expect(child.stderr).toContain(message);
  });

  it('ends by itself when its engines are closed', () => {
    const child = spawnSync(
      process.execPath,
      [
        '--input-type=module',
        '-e',
        `import { TransferEngine } from ${JSON.stringify(new URL('../../dist/index.js', import.meta.url).href)};
        const engine = new TransferEngine({ name: 'a' });
        try { new TransferEngine({ name: 'a' }); } catch (error) { console.log(error.code); }
        await engine.submit([{ op: 'nop' }]).done;
        await engine.close();
        try { new TransferEngine({ name: 'b', maxPrograms: 0 }); } catch (error) { console.log(error.code); }`,
      ],
      { encoding: 'utf8', timeout: 15_000 },
    );
    expect([child.status, child.signal, child.stderr]).toEqual([0, null, '']);
    expect(child.stdout).toBe('INVALID_ARGUMENT\nINVALID_ARGUMENT\n');
  });
});
