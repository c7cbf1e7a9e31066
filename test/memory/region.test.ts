/** Memory that is adopted: whose it is, what may be wrong with it, and that bytes get there. */
import { execFileSync } from 'node:child_process';
import { closeSync, ftruncateSync, openSync, readSync, writeSync } from 'node:fs';
import { join } from 'node:path';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { describe, expect, it, onTestFinished } from 'vitest';
import { blockLayout } from '../../src/layout/index.js';
import { Arena, engineGeometry, pagedTensors, Region, type Tensor } from '../../src/memory/index.js';
import type { TransferEngine } from '../../src/transfer/index.js';
import { scratchDirectory } from '../traffic/support.js';
import { errorOf, openEngine, plainMemory, turn } from '../transfer/support.js';

const layout = blockLayout(
  {
    ...{ name: 'one-plane', revision: '1', dtype: 'test', layers: 2 },
    groups: [
      {
        ...{ name: 'kv', layers: [0, 1], windowTokens: 0, sharding: 'replicated' },
        planes: [{ name: 'latent', bytesPerToken: 16 }],
      },
    ],
  },
  { blockTokens: 4 },
);
const slotBytes = 2 * 4 * 16; // as plainMemory: two layers side by side

/** Blocks of such slots in memory, both layers in each slot, from byte `offsetBytes` on. */
function adopt(engine: TransferEngine, memory: Region, slots: number, offsetBytes = 0): number {
  const layer = (l: number): Tensor => ({
    ...{ memory, elementBytes: 1, offsetBytes: offsetBytes + l * 64 },
    ...{ axes: ['page', 'token', 'value'], shape: [slots, 4, 16], strides: [slotBytes, 16, 1] },
  });
  return engine.addGeometry(engineGeometry(layout, { kv: pagedTensors([layer(0), layer(1)]) }));
}

/** Copies every block of plain memory, filled with a pattern, to the same slots of `to`; returns the pattern. */
async function copyInto(engine: TransferEngine, to: number, slots: number): Promise<Uint8Array> {
  const plain = plainMemory(slots);
  plain.bytes.forEach((_, i) => (plain.bytes[i] = (i * 131) % 251));
  const from = engine.addGeometry(plain.geometry);
  const list = engine.slotTable.take(slots);
  engine.setSlots(
    list,
    Array.from({ length: slots }, (_, i) => i),
  );
  await engine.submit([
    {
      ...{ op: 'copy', from, to, fromSlots: list, toSlots: list, blocks: slots, firstBlock: 0 },
      ...{ tokenBegin: 0, tokenEnd: 4 * slots, layers: 2 },
    },
  ]).done;
  return plain.bytes;
}

describe('a buffer of this process', () => {
  it.each([
    ['an ArrayBuffer', () => new ArrayBuffer(4 * slotBytes), 0],
    ['a SharedArrayBuffer', () => new SharedArrayBuffer(4 * slotBytes), 0],
    ['a part of one, unaligned', () => new Uint8Array(new SharedArrayBuffer(5 * slotBytes), 13), 7],
    ['a Float32Array', () => new Float32Array(new ArrayBuffer(5 * slotBytes), 4), 1],
  ] as [string, () => ArrayBuffer | SharedArrayBuffer | Uint8Array, number][])(
    '%s',
    async (_name, make, offset) => {
      const memory = make();
      const region = Region.ofBuffer({ name: 'kv', emulatedHbm: true }, memory);
      expect(region.facts).toMatchObject({ name: 'kv', bytes: memory.byteLength, kind: 'emulated-hbm' });
      const engine = openEngine();
      const written = await copyInto(engine, adopt(engine, region, 4, offset), 4);
      const bytes = ArrayBuffer.isView(memory)
        ? new Uint8Array(memory.buffer, memory.byteOffset)
        : new Uint8Array(memory);
      expect(Buffer.compare(bytes.subarray(offset, offset + 4 * slotBytes), written)).toBe(0);
    },
  );

  it('stays as long as the engine may touch it', async () => {
    setFlagsFromString('--expose-gc');
    const collect = runInNewContext('gc') as () => void;
    const engine = openEngine();
    let alive: WeakRef<SharedArrayBuffer> | undefined;
    const geometry = (() => {
      const memory = new SharedArrayBuffer(2 * slotBytes);
      alive = new WeakRef(memory);
      return adopt(engine, Region.ofBuffer({ name: 'kv' }, memory), 2);
    })();
    for (let i = 0; i < 3; i++) {
      collect();
      await turn();
    }
    await copyInto(engine, geometry, 2);
    expect(alive.deref()).toBeDefined();
  });

  it('is refused when there is nothing, when it may shrink, and when it has been transferred', async () => {
    const refused = async (memory: ArrayBuffer): Promise<string> =>
      (await errorOf(() => Region.ofBuffer({ name: 'kv' }, memory))).message;
    expect(await refused(new ArrayBuffer(0))).toContain('the buffer is empty or has been transferred');
    const gone = new ArrayBuffer(8);
    structuredClone(gone, { transfer: [gone] });
    expect(await refused(gone)).toContain('the buffer is empty or has been transferred');
    const Resizable = ArrayBuffer as unknown as new (n: number, o: object) => ArrayBuffer;
    expect(await refused(new Resizable(8, { maxByteLength: 16 }))).toContain('pass one of a fixed length');
  });
});

describe('an address', () => {
  it('of memory that somebody else keeps', async () => {
    const arena = new Arena({ name: 'a', bytes: 4 * slotBytes + 3, lock: 'none' });
    const { address } = Region.ofArena('a', arena).facts;
    const region = Region.ofAddress({
      name: 'kv',
      address: address + 3n,
      bytes: 4 * slotBytes,
      owner: arena.buffer,
    });
    expect(region.facts).toMatchObject({ bytes: 4 * slotBytes, address: address + 3n, kind: 'host' });
    const engine = openEngine();
    const written = await copyInto(engine, adopt(engine, region, 4), 4);
    expect(Buffer.compare(new Uint8Array(arena.buffer).subarray(3), written)).toBe(0);
  });

  it.each([
    ['null', { address: 0n }, /the address is null; pass the address of its first byte/],
    ['overflowing', { address: 2n ** 64n - 8n }, /16 bytes from 0xfffffffffffffff8 on overflow 64 bits/],
    ['more than 64 bits', { address: 2n ** 64n }, /address: a BigInt of 0 to 2\^64 - 1 expected/],
    ['negative', { address: -1n }, /address: a BigInt/],
    ['a number', { address: 4096 as unknown as bigint }, /address: a BigInt/],
    ['not mapped', { address: 4096n }, /0x1000 is not mapped readable and writable in this process/],
    ['of nothing', { bytes: 0 }, /0 bytes/],
    ['of half a byte', { bytes: 0.5 }, /bytes: a whole number/],
    ['owned by nobody that can be kept', { owner: 7 as unknown as object }, /owner: an object/],
  ])('%s', async (_name, wrong, message) => {
    const { address } = Region.ofArena('a', new Arena({ name: 'a', bytes: 64, lock: 'none' })).facts;
    const error = await errorOf(() => Region.ofAddress({ name: 'kv', address, bytes: 16, ...wrong }));
    expect(error.code).toBe('INVALID_ARGUMENT');
    expect(error.message).toMatch(message);
  });
});

describe('a file that another process shares', () => {
  const open = (bytes: number): { path: string; fd: number } => {
    const path = join(scratchDirectory(), 'kv');
    const fd = openSync(path, 'w+');
    onTestFinished(() => closeSync(fd));
    ftruncateSync(fd, bytes);
    return { path, fd };
  };

  it('what either writes the other sees, from an offset that is not aligned', async () => {
    const { path, fd } = open(4 * slotBytes + 5001);
    const bytes = 4 * slotBytes + 1;
    const region = Region.ofFile({ name: 'kv', fd, offsetBytes: 5000, bytes });
    const engine = openEngine();
    const written = await copyInto(engine, adopt(engine, region, 4, 1), 4);
    const script = `process.stdout.write(require('fs').readFileSync(process.argv[1]).subarray(5001))`;
    const seen = execFileSync(process.execPath, ['-e', script, path]);
    expect(Buffer.compare(seen, written)).toBe(0);
  });

  it('of more than 1 GiB is several slices, and pages may lie across their boundary', async () => {
    const pageBytes = 40_000_007;
    const { fd } = open(64 * pageBytes + slotBytes);
    const region = Region.ofFile({ name: 'kv', fd, bytes: 64 * pageBytes + slotBytes });
    expect(region.facts.sliceBytes).toEqual([2 ** 30, 2 ** 30, 64 * pageBytes + slotBytes - 2 ** 31]);
    // The second layer's rows of page 0 lie on both sides of the boundary.
    const layer = (offsetBytes: number): Tensor => ({
      ...{ memory: region, elementBytes: 1, offsetBytes },
      ...{ axes: ['page', 'token', 'value'], shape: [2, 4, 16], strides: [pageBytes, 16, 1] },
    });
    const engine = openEngine();
    const tensors = [layer(0), layer(2 ** 30 - 24)];
    const written = await copyInto(
      engine,
      engine.addGeometry(engineGeometry(layout, { kv: pagedTensors(tensors) })),
      2,
    );
    const got = Buffer.alloc(64);
    readSync(fd, got, 0, 64, 2 ** 30 - 24);
    expect(Buffer.compare(got, written.subarray(64, 128))).toBe(0);
    readSync(fd, got, 0, 64, 2 ** 30 - 24 + pageBytes);
    expect(Buffer.compare(got, written.subarray(slotBytes + 64, slotBytes + 128))).toBe(0);
  });

  it('is refused when it is shorter, closed, or only for reading', async () => {
    const { path, fd } = open(100);
    const refused = (wrong: object): Promise<Error & { code: string }> =>
      errorOf(() => Region.ofFile({ name: 'kv', fd, bytes: 100, ...wrong }));
    expect((await refused({ bytes: 101 })).message).toMatch(/101 bytes at offset 0 asked, the file has 100/);
    expect((await refused({ offsetBytes: 1 })).message).toMatch(/100 bytes at offset 1 asked/);
    expect((await refused({ fd: 987_654 })).message).toMatch(/file descriptor 987654: Bad file descriptor/);
    expect((await refused({ fd: -1 })).code).toBe('INVALID_ARGUMENT');
    const reader = openSync(path, 'r');
    expect((await refused({ fd: reader })).message).toMatch(/open it for reading and writing/);
    closeSync(reader);
    writeSync(fd, 'x', 50);
  });
});
