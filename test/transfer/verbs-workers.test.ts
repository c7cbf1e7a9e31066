/** Engines of two threads over the emulated verbs provider, and threads that end in the midst of transfers. */
import { once } from 'node:events';
import { MessageChannel, Worker, type MessagePort } from 'node:worker_threads';
import { describe, expect, it } from 'vitest';
import type { NativeConnectionHalf, NativeRemoteMemory, NativeStubFabric } from '../../src/binding/index.js';
import { Arena } from '../../src/memory/index.js';
import type { Descriptor } from '../../src/transfer/index.js';
import { errorOf, openEngine } from './support.js';
import { openFabric, path, VerbsEnd } from './verbs-support.js';

const script = new URL('./verbs-worker.mjs', import.meta.url);
const slots = 256;
const layerBytes = 64;

interface Hello {
  readonly half: NativeConnectionHalf;
  readonly memory: NativeRemoteMemory;
  readonly arrived: number;
}

/** An engine here whose every byte is 7, and slots 64 to 191 of it are sent. */
function openSender(fabric: NativeStubFabric): VerbsEnd {
  const engine = openEngine();
  const arena = new Arena({ name: 'main', bytes: slots * 2 * layerBytes, hugePages: false, lock: 'none' });
  new Uint8Array(arena.buffer).fill(7);
  const layers = [0, layerBytes].map((offsetBytes) => ({
    offsetBytes,
    planes: [{ offsetBytes: 0, bytesPerToken: 16 }],
  }));
  engine.addGeometry({
    ...{
      arena: arena.handle,
      offsetBytes: 0,
      slotStrideBytes: 2 * layerBytes,
      slots,
      blockTokens: 4,
      layers,
    },
  });
  engine.setSlots(
    0,
    Array.from({ length: slots / 2 }, (_, i) => slots / 4 + i),
  );
  return new VerbsEnd(engine, { device: 'stub0', provider: fabric });
}

const send = (peer: number, counter: number): Descriptor => ({
  ...{ op: 'send', peer, from: 0, to: 0, fromSlots: 0, toSlots: 0, blocks: slots / 2, firstBlock: 0 },
  ...{ tokenBegin: 0, tokenEnd: (slots / 2) * 4, layers: 2 },
  signals: [{ counter, value: 1, remote: true }],
});

async function meet(
  end: VerbsEnd,
  fabric: string,
  name: string,
): Promise<{ worker: Worker; port: MessagePort; counter: number }> {
  const { port1: port, port2 } = new MessageChannel();
  const worker = new Worker(script, {
    workerData: { name, fabric, port: port2, slots },
    transferList: [port2],
  });
  const [hello] = (await once(port, 'message')) as [Hello];
  const { connection, half } = end.transport.open({ trafficClass: 'kv' });
  end.peer = end.transport.addPeer(name, hello.memory);
  const ready = once(port, 'message');
  port.postMessage({ half, memory: end.transport.memory() });
  await ready;
  end.transport.connect(connection, path(end.peer, hello.half));
  return { worker, port, counter: hello.arrived };
}

describe('workers over verbs (emulated provider)', () => {
  it('get what is sent, and nothing beside it', async () => {
    const fabric = 'workers-1';
    const end = openSender(openFabric({ name: fabric }));
    const { worker, port, counter } = await meet(end, fabric, 'verbs-worker');
    await end.engine.submit([send(end.peer, counter)]).done;
    const checked = once(port, 'message');
    port.postMessage('check');
    const half = slots * layerBytes; // bytes
    expect((await checked)[0]).toEqual({ canaries: half, written: half, arrived: 2 });
    port.close();
    await worker.terminate();
  });

  it('that are terminated in the midst of it are peers lost, and everything ends', async () => {
    const fabric = openFabric({ name: 'workers-2' });
    const end = openSender(fabric);
    const objects = fabric.objects();
    for (let round = 0; round < 4; round++) {
      const { worker, port, counter } = await meet(end, 'workers-2', 'verbs-worker');
      const programs = Array.from({ length: 40 }, () => end.engine.submit([send(end.peer, counter)]).done);
      const ended = Promise.allSettled(programs);
      if (round % 2 === 1) await programs[3];
      await worker.terminate();
      port.close();
      const results = await ended;
      expect(results).toHaveLength(40);
      const error = await errorOf(end.engine.submit([send(end.peer, counter)]).done);
      expect(error.code).toBe('PEER_LOST');
      const { connections } = end.transport.statistics();
      for (const { connection, inFlightBytes } of connections) {
        expect(inFlightBytes).toBe(0);
        end.transport.close(connection);
      }
    }
    expect(fabric.objects()).toBe(objects + 1); // the region of the memory here
  });
});
