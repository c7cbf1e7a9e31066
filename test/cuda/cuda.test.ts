/** Memory of a GPU from TypeScript, against the stand-in driver: no GPU is needed, and none is used. */
import { afterAll, describe, expect, it } from 'vitest';
import { native } from '../../src/binding/index.js';
import { Arena, CudaDevice, Region } from '../../src/memory/index.js';
import { CopyNic } from '../../src/rdma/index.js';
import type { Descriptor, TransferEngine } from '../../src/transfer/index.js';
import { errorOf, openEngine, plainMemory } from '../transfer/support.js';
import { makeStandInCuda } from './support.js';

const standIn = makeStandInCuda();
afterAll(standIn.remove);

const openDevice = (): CudaDevice => new CudaDevice({ ordinal: 0, library: standIn.library });
const copy = (from: number, to: number): Descriptor => ({
  ...{ op: 'copy', from, to, fromSlots: 0, toSlots: 0, blocks: 4, layers: 2 },
  ...{ firstBlock: 0, tokenBegin: 0, tokenEnd: 16 },
});

/** Host memory that is filled, memory of the GPU, host memory to come back to. */
function openMemories(engine: TransferEngine, device: CudaDevice): { sent: Uint8Array; back: Uint8Array } {
  const [first, last] = [plainMemory(4), plainMemory(4)];
  engine.addGeometry(first.geometry);
  const arena = new Arena({ name: 'hbm', bytes: 4 * 128, cuda: device });
  engine.addGeometry({ ...first.geometry, arena: arena.handle });
  engine.addGeometry(last.geometry);
  engine.setSlots(0, [2, 0, 3, 1]);
  first.bytes.forEach((_, i) => (first.bytes[i] = (i * 131) % 251));
  return { sent: first.bytes, back: last.bytes };
}

describe('a CUDA device', () => {
  it('is found by ordinal and by PCI address, and says what it is', () => {
    expect(openDevice().facts).toMatchObject({
      ...{ ordinal: 0, name: 'stand-in CUDA device 0 (no GPU)', pciAddress: '0000:3b:00.0' },
      ...{ driverVersion: 12040, gpuDirectRdma: true, dmaBuf: true, remoteFlush: 'host' },
    });
    const second = new CudaDevice({ pciAddress: '0000:3c:00.0', library: standIn.library });
    expect(second.facts.ordinal).toBe(1);
  });

  it('that is not there, or whose driver is not, is named with what there is', async () => {
    const open =
      (options: object): (() => CudaDevice) =>
      () =>
        new CudaDevice(options as never);
    const { library } = standIn;
    expect(await errorOf(open({ ordinal: 7, library }))).toMatchObject({
      code: 'INVALID_ARGUMENT',
      message: expect.stringMatching(/no CUDA device 7; 0 to 1 are visible/),
    });
    expect(await errorOf(open({ pciAddress: '0000:99:00.0', library }))).toMatchObject({
      message: expect.stringMatching(/there are 0000:3b:00.0, 0000:3c:00.0/),
    });
    expect(await errorOf(open({ ordinal: 0, library: 'libnowhere-cuda.so' }))).toMatchObject({
      code: 'CUDA_UNAVAILABLE',
      message: expect.stringMatching(/libnowhere-cuda.so not found; install NVIDIA's driver/),
    });
    expect(open({ ordinal: -1, library })).toThrow(/ordinal: a whole number/);
  });
});

describe('memory of a GPU', () => {
  it('is adopted by its address, and only as far as it is the device’s', async () => {
    const device = openDevice();
    const arena = new Arena({ name: 'engine’s', bytes: 8192, cuda: device });
    expect(arena.facts.kind).toBe('cuda');
    expect(() => arena.buffer).toThrow(/arena 'engine’s' is memory of stand-in .* the CPU does not reach/);
    expect(() => arena.read(0, new Uint8Array(4))).toThrow(/the CPU does not reach/);
    const { address } = Region.ofArena('whole', arena).facts;
    const region = Region.ofCuda({ name: 'kv', device, address: address + 100n, bytes: 1000 });
    expect(region.facts).toMatchObject({ kind: 'cuda', bytes: 1000, address: address + 100n });
    const adopt =
      (options: object): (() => Region) =>
      () =>
        Region.ofCuda({ name: 'kv', device, address, bytes: 8192, ...options });
    expect((await errorOf(adopt({ bytes: 8193 }))).message).toMatch(/its allocation has 8192 bytes/);
    expect((await errorOf(adopt({ address: 4096n }))).message).toMatch(/is no memory of a CUDA device/);
    expect((await errorOf(adopt({ address: 4096 }))).message).toMatch(/address 4096; a BigInt is needed/);
    expect((await errorOf(adopt({ address: 0n }))).message).toMatch(/neither may be 0/);
    const other = new CudaDevice({ ordinal: 1, library: standIn.library });
    expect((await errorOf(adopt({ device: other }))).message).toMatch(/CUDA device 0, not of 1/);
  });

  it('is copied to and from by its driver, which the statistics say', async () => {
    const engine = openEngine();
    const { sent, back } = openMemories(engine, openDevice());
    await engine.submit([copy(0, 1)]).done;
    await engine.submit([copy(1, 2)]).done;
    expect(back).toEqual(sent);
    const { copyBytesByWay, copyRefusals } = engine.statistics();
    expect(copyBytesByWay).toEqual({ nic: 0, memcpy: 0, cuda: 1024 });
    expect(copyRefusals).toMatchObject({ notOpen: 4, notWanted: 0 });
  });

  it('is copied to and from by the NIC where one is open for that', async () => {
    const engine = openEngine();
    const provider = new (native().StubFabric)({ name: 'copies' });
    const nic = new CopyNic({ engine, device: 'stub0', gidIndex: 2, provider });
    const device = openDevice();
    const { sent, back } = openMemories(engine, device);
    await engine.submit([copy(0, 1)]).done;
    await engine.submit([copy(1, 2)]).done;
    expect(back).toEqual(sent);
    expect(engine.statistics().copyBytesByWay).toEqual({ nic: 1024, memcpy: 0, cuda: 0 });
    const { chains, postCalls, completions, registeredBytes, emulated } = nic.statistics();
    expect([postCalls, completions]).toEqual([chains, chains]);
    expect(registeredBytes).toMatchObject({ 'dma-buf': 512, 'nvidia-peermem': 0 });
    expect(emulated).toBe(true);
    expect(device.facts.flushes).toBe(2);
    expect(
      await errorOf(() => new CopyNic({ engine, device: 'stub0', gidIndex: 2, provider })),
    ).toMatchObject({ message: expect.stringMatching(/copies through stub0 already/) });
  });

  it('goes no other way than the NIC where that is wanted', async () => {
    const engine = openEngine({ copyWay: 'nic' });
    openMemories(engine, openDevice());
    const error = await errorOf(engine.submit([copy(0, 1)]).done);
    expect(error.message).toMatch(/copyWay is 'nic' and the NIC cannot/);
    expect(() => openEngine({ copyWay: 'pigeon' as never })).toThrow(/copyWay: 'auto', 'nic' or 'plain'/);
  });
});
