import { readdirSync, readFileSync, rmSync, statSync, truncateSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { decodeReads, joined, TestCluster, tokens, type ClusterOptions } from './cluster.js';

const EIO = 5;
const ENOSPC = 28;
const storedBlocks = 6;

function blockFiles(cluster: TestCluster): string[] {
  const root = join(cluster.store.path, 'blocks');
  return readdirSync(root, { recursive: true, encoding: 'utf8' })
    .map((name) => join(root, name))
    .filter((path) => statSync(path).isFile());
}

/** Stores a prompt's blocks one by one, so that the file of each is known. */
async function storeOneByOne(cluster: TestCluster, prompt: Uint32Array): Promise<string[]> {
  const files: string[] = [];
  for (let block = 0; block < storedBlocks; block++) {
    const before = new Set(blockFiles(cluster));
    await cluster.turn(`store ${block}`, prompt.subarray(0, 16 * (block + 1)));
    const added = blockFiles(cluster).filter((path) => !before.has(path));
    expect(added).toHaveLength(1);
    files.push(added[0]!);
  }
  return files;
}

const harms: Record<string, (path: string, headerBytes: number) => void> = {
  'a flipped byte': (path, headerBytes) => {
    const bytes = readFileSync(path);
    bytes[headerBytes + 777]! ^= 1;
    writeFileSync(path, bytes);
  },
  'a truncated file': (path) => truncateSync(path, 5000),
  'a file that is gone': (path) => rmSync(path),
};

const reads: Record<string, { readonly options: ClusterOptions; readonly bad: readonly number[] }> = {
  'PE read, first block': { options: { policy: 'prefill' }, bad: [0] },
  'PE read, some block': { options: { policy: 'prefill' }, bad: [4, 2] },
  'DE read, first block': { options: decodeReads, bad: [0] },
  'DE read, last block': { options: decodeReads, bad: [5] },
  'split read, prefill side': { options: { policy: 'split' }, bad: [1] },
  'split read, decode side': { options: { policy: 'split' }, bad: [4] },
  'split read, both sides': { options: { policy: 'split' }, bad: [2, 5] },
};

describe.each(Object.entries(reads))('%s', (_, { options, bad }) => {
  it.each(Object.entries(harms))(
    '%s counts as a miss, is computed anew and stored again',
    async (_, harm) => {
      await using cluster = new TestCluster({ ...options, model: 'demo-mla', ownStore: true });
      const prompt = tokens(16 * storedBlocks + 9);
      const files = await storeOneByOne(cluster, prompt);
      for (const block of bad) harm(files[block]!, cluster.store.file.headerBytes);
      const first = Math.min(...bad);
      const { hits } = cluster.prefill[0]!.engine;
      const lostBefore = hits.lostBlocks;
      const turn = await cluster.turn('bad', prompt, tokens(20));
      expect(turn).toMatchObject({ foundBlocks: storedBlocks, hitBlocks: first, persistError: undefined });
      expect(hits.lostBlocks - lostBefore).toBe(storedBlocks - first);
      await cluster.expectNothingHeld();
      const again = await cluster.turn('healed', prompt);
      expect(again).toMatchObject({ foundBlocks: storedBlocks, hitBlocks: storedBlocks });
      await cluster.expectRightBytes(prompt);
      await cluster.expectNothingHeld();
    },
  );
});

describe('I/O errors', () => {
  it.each([
    ['prefill', { policy: 'prefill' }, 0],
    ['decode', decodeReads, 0],
    // The prefill side has the first three of the six.
    ['prefill', { policy: 'split' }, 0],
    ['decode', { policy: 'split' }, 3],
  ] as const)('a read fails on the %s side: %o', async (side, options, leastHits) => {
    await using cluster = new TestCluster(options);
    const prompt = tokens(16 * storedBlocks + 1);
    await cluster.turn('one', prompt);
    cluster.runtimes[side].setFaults({ readErrno: EIO, readErrorAfter: 3 });
    const turn = await cluster.turn('two', prompt);
    expect(turn).toMatchObject({ foundBlocks: storedBlocks, persistError: undefined });
    // Which block's read it is depends on the order of completions.
    expect(turn.hitBlocks).toBeGreaterThanOrEqual(leastHits);
    expect(turn.hitBlocks).toBeLessThan(storedBlocks);
    expect(cluster.prefill[0]!.engine.hits.lostBlocks).toBe(storedBlocks - turn.hitBlocks);
    expect(await cluster.turn('three', prompt)).toMatchObject({ hitBlocks: storedBlocks });
    await cluster.expectRightBytes(prompt);
    await cluster.expectNothingHeld();
  });

  it.each([
    ['the prompt', 2, 0],
    // Blocks 0 to 2 are the prompt's.
    ['a generated block', 4, 3],
  ])('no space for %s: the turn goes on, its blocks are not counted on', async (_, writeErrorAfter, left) => {
    await using cluster = new TestCluster();
    const prompt = tokens(50);
    const reply = tokens(60);
    cluster.runtimes.decode.setFaults({ writeErrno: ENOSPC, writeErrorAfter });
    const turn = await cluster.turn('one', prompt, reply);
    expect(turn).toMatchObject({ tokens: 109, hitBlocks: 0, storedBlocks: 0 });
    expect(turn.persistError).toMatchObject({ code: 'NO_SPACE' });
    await cluster.expectNothingHeld();
    const next = joined(prompt, reply);
    const again = await cluster.turn('two', next);
    expect(again.foundBlocks).toBeGreaterThanOrEqual(left);
    expect(again.foundBlocks).toBeLessThan(6);
    expect(again).toMatchObject({ hitBlocks: again.foundBlocks, storedBlocks: 6, persistError: undefined });
    await cluster.expectRightBytes(next);
    await cluster.expectNothingHeld();
  });

  it('short reads are continued', async () => {
    await using cluster = new TestCluster({ policy: 'split' });
    const prompt = tokens(16 * storedBlocks + 1);
    await cluster.turn('one', prompt);
    cluster.runtimes.prefill.setFaults({ shortReadBytes: 4096 });
    cluster.runtimes.decode.setFaults({ shortReadBytes: 4096 });
    expect(await cluster.turn('two', prompt)).toMatchObject({ hitBlocks: storedBlocks });
    await cluster.expectRightBytes(prompt);
  });

  it('a flipped bit on the way is seen by the devices: the checks can fail', async () => {
    await using cluster = new TestCluster({ policy: 'prefill' });
    const prompt = tokens(16 * storedBlocks + 1);
    await cluster.turn('one', prompt);
    cluster.runtimes.prefill.setFaults({ flipByteAfter: 1 });
    await cluster.turn('two', prompt);
    expect(cluster.prefill[0]!.gpu.statistics().mismatchedBytes).toBe(1);
    await expect(cluster.expectRightBytes()).rejects.toThrow();
  });
});
