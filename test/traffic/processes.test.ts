/** Several processes on one store. */
import { spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import type { NativeGeometry } from '../../src/binding/index.js';
import { blockLayout } from '../../src/layout/index.js';
import { sequenceGeometry } from '../../src/memory/index.js';
import { BlockStore } from '../../src/storage/index.js';
import type { TrafficManager } from '../../src/traffic/index.js';
import { openManager, preset, scratchDirectory } from './support.js';

const script = new URL('./store-process.mjs', import.meta.url).pathname;
const layout = blockLayout(preset('demo'), { blockTokens: 16 });
const blocks = 16;
const sequence = (n: number): Uint32Array => new Uint32Array(blocks * layout.blockTokens + 1).fill(n);

/** Loads what there is of a sequence n; the number of its blocks, all of whose bytes must be n. */
function loader(manager: TrafficManager): (n: number) => Promise<number> {
  const memory = sequenceGeometry(layout, blocks, 'memory');
  const geometry = manager.adopt(memory);
  return (n) => loadWhole(manager, memory, geometry, n);
}

async function loadWhole(
  manager: TrafficManager,
  memory: NativeGeometry,
  geometry: number,
  n: number,
): Promise<number> {
  const chain = await manager.lookup(sequence(n));
  const blockTable = Array.from({ length: blocks }, (_, i) => i);
  await manager.load({ chain, geometry, blockTable }).done;
  const bytes = new Uint8Array(memory.arena.buffer()!).subarray(0, chain.hitBlocks * layout.fullBlockBytes);
  expect(Buffer.compare(bytes, Buffer.alloc(bytes.length, n & 0xff))).toBe(0);
  chain.release();
  return chain.hitBlocks;
}

describe('two processes', () => {
  it('what one has saved, the other finds at once', async () => {
    const path = scratchDirectory();
    const store = BlockStore.open({ path: join(path, 'store'), layout });
    const manager = openManager(layout, path, { store }); // open before anything is there
    expect((await manager.lookup(sequence(1))).hitBlocks).toBe(0);
    const { status, stderr } = spawnSync(process.execPath, [script, join(path, 'store'), '2'], {
      encoding: 'utf8',
      timeout: 15_000,
    });
    expect([status, stderr]).toEqual([0, '']);
    const load = loader(manager);
    expect([await load(1), await load(2), await load(3)]).toEqual([blocks, blocks, 0]);
  });

  it('one killed while it writes leaves whole blocks only', async () => {
    for (let round = 0; round < 3; round++) {
      const path = scratchDirectory();
      const child = spawn(process.execPath, [script, join(path, 'store'), '64', 'stay'], {
        stdio: ['ignore', 'pipe', 'inherit'],
      });
      let finished = 0;
      let output = '';
      child.stdout.setEncoding('utf8').on('data', (text: string) => {
        output += text;
        finished = output.split('\n').length - 1;
        if (finished >= 5 + round) child.kill('SIGKILL');
      });
      const [, signal] = (await once(child, 'close')) as [number | null, string | null];
      expect(signal).toBe('SIGKILL');
      const manager = openManager(layout, path);
      const load = loader(manager);
      for (let n = 1; n <= finished; n++) expect(await load(n)).toBe(blocks);
      const partly = await load(finished + 1);
      expect(partly).toBeLessThanOrEqual(blocks);
      expect(manager.engine.statistics().badBlocks).toBe(0);
      // Every file under its name is whole, also those that no chain leads to.
      const { fileBytes } = manager.store.file;
      const names = readdirSync(join(path, 'store', 'blocks'), { recursive: true, encoding: 'utf8' });
      const files = names.filter((name) => name.endsWith('.kvb'));
      expect(files.length).toBeGreaterThanOrEqual(finished * blocks);
      for (const name of files) {
        expect(readFileSync(join(path, 'store', 'blocks', name)).length).toBe(fileBytes);
      }
      await manager.close();
    }
  });
});
