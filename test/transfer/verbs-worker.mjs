/**
 * An engine in a worker thread that others reach over the emulated verbs provider named `fabric`. Tells its half over
 * `port` and takes the other's; the middle half of its memory is for the other to write, the rest is canaries. Answers
 * 'check' with how many bytes are what they should be.
 */
import { workerData } from 'node:worker_threads';
import { native } from '../../dist/binding/index.js';
import { Arena, Runtime, TransferEngine } from '../../dist/index.js';

const { name, fabric, port, slots } = workerData;
const slotBytes = 128;
const canary = 0xca;

const provider = new (native().StubFabric)({ name: fabric });
const engine = new TransferEngine({ name, runtime: new Runtime() });
const arena = new Arena({ name, bytes: slots * slotBytes, hugePages: false, lock: 'none' });
const bytes = new Uint8Array(arena.buffer).fill(canary);
const layers = [0, 64].map((offsetBytes) => ({
  offsetBytes,
  planes: [{ offsetBytes: 0, bytesPerToken: 16 }],
}));
engine.addGeometry({
  ...{ arena: arena.handle, offsetBytes: 0, slotStrideBytes: slotBytes, slots, blockTokens: 4, layers },
});
const arrived = engine.takeCounters(1);
const transport = new (native().VerbsTransport)({
  ...{ engine: engine.handle, provider, device: 'stub1', gidIndex: 2 },
});
const { connection, half } = transport.open({ trafficClass: 'kv' });
port.on('message', (message) => {
  if (message === 'check') {
    const mine = [...bytes.subarray(0, bytes.length / 4), ...bytes.subarray((3 * bytes.length) / 4)];
    const theirs = bytes.subarray(bytes.length / 4, (3 * bytes.length) / 4);
    port.postMessage({
      canaries: mine.filter((byte) => byte === canary).length,
      written: theirs.filter((byte) => byte === 7).length,
      arrived: engine.counter(arrived),
    });
    return;
  }
  const peer = transport.addPeer('main', message.memory);
  const path = { peer, half: message.half, mtuBytes: 4096, serviceLevel: 0, trafficClass: 40 };
  transport.connect(connection, path);
  port.postMessage('ready');
});
port.postMessage({ half, memory: transport.memory(), arrived: engine.handle.counterHandle(arrived) });
