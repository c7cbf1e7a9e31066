/** Another process drives the door: programs in C (native/test/door) that know nothing but the header. */
import { execFileSync, spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { connect, createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from 'vitest';
import { native, type NativeGeometry } from '../../src/binding/index.js';
import { blockLayout, type BlockLayout } from '../../src/layout/index.js';
import { bufferGeometry } from '../../src/memory/index.js';
import { BlockStore } from '../../src/storage/index.js';
import type { OfferedMemory, SharedDoor, TransferEngine } from '../../src/transfer/index.js';
import { preset, scratchDirectory } from '../traffic/support.js';
import { errorOf, openEngine, openRuntime, sleep } from './support.js';

const include = new URL('../../native/include', import.meta.url).pathname;
const sources = new URL('../../native/test/door/', import.meta.url).pathname;
const warnings = ['-std=c11', '-Wall', '-Wextra', '-Wconversion', '-pedantic', '-Werror'];
const blocks = 6; // as in drive.c
const readDelayMs = 100;
const programs: Record<string, string> = {};
let folder = '';

beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), 'dualpath-door-'));
  for (const name of ['drive', 'observe']) {
    programs[name] = join(folder, name);
    // Without the sanitizer's runtime that the add-on's tests may be preloaded with.
    execFileSync(
      'cc',
      [...warnings, '-O1', `-I${include}`, join(sources, `${name}.c`), '-o', programs[name]],
      {
        env: { ...process.env, LD_PRELOAD: '' },
        stdio: 'inherit',
      },
    );
  }
}, 60_000);

afterAll(() => rmSync(folder, { recursive: true, force: true }));

interface Run {
  readonly process: ChildProcess;
  readonly lines: AsyncIterableIterator<string>;
  /** Resolves to what it wrote to stderr and its status. */
  readonly ended: Promise<[status: number | null, stderr: string]>;
}

function run(name: string, ...args: (string | number)[]): Run {
  const child = spawn(programs[name]!, args.map(String), {
    env: { ...process.env, LD_PRELOAD: '' },
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  onTestFinished(() => void child.kill('SIGKILL'));
  let stderr = '';
  child.stderr.on('data', (text) => (stderr += String(text)));
  const lines = createInterface({ input: child.stdout })[Symbol.asyncIterator]();
  const ended = once(child, 'close').then(([status]): [number | null, string] => [
    status as number | null,
    stderr,
  ]);
  return { process: child, lines, ended };
}

const line = async ({ lines }: Run): Promise<string> => String((await lines.next()).value);

const layout: BlockLayout = blockLayout(preset('demo'), { blockTokens: 16 });

/** Whole blocks one after the other, each as it is stored. */
function ownGeometry({ arena, bytes }: OfferedMemory): NativeGeometry {
  const layers = Array.from({ length: layout.layers }, (_, layer) => ({
    offsetBytes: layout.layerOffsetBytes(layer),
    planes: layout.planesOf(layer).map(({ offsetBytes, bytesPerToken, windowTokens }) => ({
      ...{ offsetBytes, bytesPerToken, windowTokens },
    })),
  }));
  const slotStrideBytes = layout.fullBlockBytes;
  const slots = bytes / slotStrideBytes;
  return { arena, offsetBytes: 0, slotStrideBytes, slots, blockTokens: layout.blockTokens, layers };
}

interface Host {
  readonly engine: TransferEngine;
  readonly door: SharedDoor;
  readonly store: BlockStore;
  readonly buffer: number;
  readonly producers: (number | undefined)[];
  readonly refusals: string[];
  readonly socket: string;
  drive(...more: string[]): Run;
}

function openHost(): Host {
  const scratch = scratchDirectory();
  const store = BlockStore.open({ path: join(scratch, 'store'), layout });
  const runtime = openRuntime();
  runtime.setFaults({ readDelayNs: readDelayMs * 1e6 });
  const engine = openEngine({ runtime, store: store.handle, shared: true });
  const buffer = engine.addGeometry(bufferGeometry(layout, store.file, 8, 'buffer'));
  const producers: (number | undefined)[] = [];
  const refusals: string[] = [];
  const socket = join(scratch, 'door.sock');
  const door = engine.shareDoor({
    path: socket,
    onProducer: (pid) => producers.push(pid),
    onMemory: ownGeometry,
    onRefused: (error) => refusals.push((error as Error).message),
  });
  const { layers, blockTokens, fullBlockBytes } = layout;
  const drive = (...more: string[]): Run =>
    run('drive', socket, buffer, layers, blockTokens, fullBlockBytes, readDelayMs, ...more);
  return { engine, door, store, buffer, producers, refusals, socket, drive };
}

/** What the host finds in the store, by the keys that drive.c chose. */
function wrongBytes(store: BlockStore): number {
  let wrong = 0;
  for (let block = 0; block < blocks; block++) {
    const name = (0x40 + block).toString(16).repeat(32);
    const file = readFileSync(join(store.path, 'blocks', name.slice(0, 2), `${name}.kvb`));
    const payload = file.subarray(store.file.headerBytes, store.file.headerBytes + layout.fullBlockBytes);
    payload.forEach((byte, i) => (wrong += byte === ((block * 31 + i * 7 + 3) & 0xff) ? 0 : 1));
  }
  return wrong;
}

async function eventually(holds: () => boolean): Promise<void> {
  while (!holds()) await sleep(2); // the test's own time limit ends it
}

describe('a process in C', () => {
  it('gets the door, saves its own memory and loads it again; another looks on', async () => {
    const host = openHost();
    const observer = run('observe', host.socket, 6, 10, layout.layers);
    expect(await line(observer)).toBe('watching');
    const driver = host.drive();
    expect(await driver.ended).toEqual([0, '']);
    expect(JSON.parse(await line(driver))).toEqual({
      saved_bytes: blocks * (layout.fullBlockBytes + host.store.file.fileBytes),
      loaded_bytes: blocks * (layout.fullBlockBytes + host.store.file.fileBytes),
      steps: layout.layers,
      wrong_bytes: 0,
    });
    expect(wrongBytes(host.store)).toBe(0);
    expect(JSON.parse(await line(observer))).toMatchObject({ ended: 6, failed: 3, counter: layout.layers });
    expect(await observer.ended).toEqual([0, '']);
    expect(host.refusals).toEqual([expect.stringContaining('F_SEAL_SHRINK')]);
    await eventually(() => host.producers.length === 2);
    expect(host.producers).toEqual([driver.process.pid, undefined]);
    expect(host.door.facts()).toMatchObject({ producer: undefined, observers: 0, producersSeen: 1 });
    expect(host.engine.counter(10)).toBe(layout.layers);
    expect(host.engine.statistics()).toMatchObject({ doorErrors: 0, writeBlocks: blocks });
  });

  it('may be killed in the midst of it: the next one gets the door', async () => {
    const host = openHost();
    const first = host.drive('linger');
    await line(first);
    expect(await line(first)).toBe('lingering');
    first.process.kill('SIGKILL');
    await first.ended;
    await eventually(() => host.producers.length === 2);
    expect(host.door.facts()).toMatchObject({ producer: undefined, producersSeen: 1 });
    const second = run('observe', host.socket, 0, 10, layout.layers);
    expect(await second.ended).toEqual([0, '']);
  });

  it('hears of the end of its host: its programs end, then the door', async () => {
    const host = openHost();
    const driver = host.drive('linger');
    await line(driver);
    expect(await line(driver)).toBe('lingering');
    await host.engine.close();
    expect(await driver.ended).toEqual([0, '']);
    expect(existsSync(host.socket)).toBe(false);
    expect((await errorOf(() => void host.door.facts())).code).toBe('CLOSED');
  });
});

describe('a shared door', () => {
  it('has one producer, and that is not this process', async () => {
    const { engine } = openHost();
    const error = await errorOf(() => engine.submit([{ op: 'nop' }]));
    expect([error.code, error.message]).toEqual(['INVALID_ARGUMENT', expect.stringContaining('shared door')]);
  });

  it('belongs to an engine that was opened for it', async () => {
    const path = join(scratchDirectory(), 'door.sock');
    expect((await errorOf(() => openEngine().shareDoor({ path }))).code).toBe('INVALID_ARGUMENT');
    const engine = openEngine({ shared: true });
    await engine.close();
    expect((await errorOf(() => engine.shareDoor({ path }))).code).toBe('CLOSED');
  });

  it.each([
    ['a path that is too long', 'x'.repeat(120), 'INVALID_ARGUMENT'],
    ['no path', '', 'INVALID_ARGUMENT'],
    ['a folder that is not there', 'nowhere/door.sock', 'STORAGE_IO'],
  ])('does not listen at %s', async (_what, path, code) => {
    const scratch = scratchDirectory();
    const error = await errorOf(() =>
      openEngine({ shared: true }).shareDoor({ path: path && join(scratch, path) }),
    );
    expect(error.code).toBe(code);
  });

  it('takes the place of a dead one, not of a living one nor of a file', async () => {
    const scratch = scratchDirectory();
    const path = join(scratch, 'door.sock');
    const engine = openEngine({ shared: true });
    const door = engine.shareDoor({ path });
    expect((await errorOf(() => engine.shareDoor({ path }))).code).toBe('INVALID_ARGUMENT');
    door.close();
    door.close();
    writeFileSync(path, 'mine');
    expect((await errorOf(() => engine.shareDoor({ path }))).code).toBe('INVALID_ARGUMENT');
    expect(readFileSync(path, 'utf8')).toBe('mine');
    rmSync(path);
    const script = `require('node:net').createServer().listen(${JSON.stringify(path)}, () => process.kill(process.pid, 'SIGKILL'))`;
    await once(spawn(process.execPath, ['-e', script], { stdio: 'ignore' }), 'close');
    expect(existsSync(path)).toBe(true);
    engine.shareDoor({ path }).close();
  });

  it('is of no use to a stream socket', async () => {
    const { socket } = openHost();
    const [error] = (await once(connect(socket), 'error')) as [NodeJS.ErrnoException];
    expect(error.code).toBe('EPROTOTYPE');
    expect(createServer().listening).toBe(false);
  });

  it('leaves nothing behind', async () => {
    const before = native().liveObjects();
    const { engine, door } = openHost();
    expect(native().liveObjects()['doorServers']).toBe(before['doorServers']! + 1);
    await engine.close();
    expect(door.path).toContain('door.sock');
    expect(() => door.close()).not.toThrow();
  });
});
