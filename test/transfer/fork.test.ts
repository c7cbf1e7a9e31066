/** Children of the process: they inherit nothing of ours, and hold nothing up. */
import { spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { readdirSync, readFileSync, readlinkSync } from 'node:fs';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { Arena } from '../../src/memory/index.js';
import { headsLayout, openManager, PagedMemory, scratchDirectory, tokens } from '../traffic/support.js';
import { openEngine } from './support.js';

/** What this process's descriptors are. */
function descriptors(): string[] {
  return readdirSync('/proc/self/fd').flatMap((fd) => {
    try {
      return [readlinkSync(`/proc/self/fd/${fd}`)];
    } catch {
      return []; // the folder's own
    }
  });
}

it('a spawned child has none of the door, the ring, the store and the bells', () => {
  const childs = (): string[] => {
    const child = spawnSync('sh', ['-c', 'ls -l /proc/self/fd'], { encoding: 'utf8' });
    expect(child.status).toBe(0);
    return child.stdout.split('\n').filter((line) => line.includes(' -> '));
  };
  const before = childs();
  const path = scratchDirectory();
  openManager(headsLayout(), path);
  const shared = openEngine({ shared: true });
  shared.shareDoor({ path: join(path, 'door.sock') });
  const ours = descriptors().filter((link) => /memfd:dualpath|io_uring|eventfd|store/.test(link));
  expect(ours.length).toBeGreaterThan(6);
  const after = childs();
  expect(after).toHaveLength(before.length);
  expect(after.join()).not.toMatch(/memfd:dualpath|io_uring|dualpath-test/);
});

it('arenas are not for children that fork', () => {
  const arena = new Arena({ name: 'fork', bytes: 3 * 2 ** 20, hugePages: false, lock: 'none' });
  expect(arena.facts.bytes).toBe(3 * 2 ** 20);
  const flags = readFileSync('/proc/self/smaps', 'utf8')
    .split('\n')
    .filter((line) => line.startsWith('VmFlags:'));
  // dc: do not copy on fork. io_uring's own rings may have it too; the arena's mapping is one more.
  expect(flags.filter((line) => / dc( |$)/.test(line)).length).toBeGreaterThan(0);
});

it('children come and go in the midst of saves and loads', async () => {
  const layout = headsLayout();
  const manager = openManager(layout, scratchDirectory());
  const blocks = 8;
  const source = new PagedMemory(layout, blocks, 'nhd');
  const target = new PagedMemory(layout, blocks, 'hnd');
  const [from, to] = [source.geometry, target.geometry].map((geometry) => manager.adopt(geometry));
  const blockTable = Array.from({ length: blocks }, (_, i) => i);
  let children = 0;
  let spawning = true;
  const spawner = (async () => {
    while (spawning) {
      const [code] = (await once(spawn('true', { stdio: 'ignore' }), 'close')) as [number];
      expect(code).toBe(0);
      children++;
    }
  })();
  for (let round = 0; children < 10 || round < 20; round++) {
    const sequence = tokens(blocks * layout.blockTokens + 1, round + 1);
    source.write(blockTable, blocks * layout.blockTokens, round);
    const chain = await manager.lookup(sequence);
    await manager.save({ chain, firstBlock: 0, blocks, geometry: from!, blockTable }).done;
    await manager.load({ chain, blocks, geometry: to!, blockTable }).done;
    expect(target.firstDifference(blockTable, blocks * layout.blockTokens, round)).toBe(-1);
    chain.release();
  }
  spawning = false;
  await spawner;
});
