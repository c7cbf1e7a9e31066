import { existsSync, mkdirSync, readdirSync, symlinkSync, utimesSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { BlockStore } from '../../src/storage/index.js';
import { headsLayout, openManager, saveSequence, scratchDirectory, tokens } from '../traffic/support.js';
import { dualpath } from './support.js';

const layout = headsLayout();

interface Filled {
  readonly path: string;
  readonly blocks: string[];
  readonly fileBytes: number;
}

/** A store of a chain of 5 blocks and one of 3 in a namespace, closed again. */
async function filledStore(): Promise<Filled> {
  const directory = scratchDirectory();
  const path = join(directory, 'store');
  const plain = openManager(layout, directory, { store: BlockStore.open({ path, layout }) });
  await saveSequence(plain, tokens(20), 1);
  const tenant = openManager(layout, directory, {
    store: BlockStore.open({ path, layout, namespace: 'tenant-a', salt: new Uint8Array(4).fill(7) }),
  });
  await saveSequence(tenant, tokens(12), 1);
  const { fileBytes } = plain.store.file;
  return { path, blocks: blockFiles(join(path, 'blocks')), fileBytes };
}

const blockFiles = (folder: string): string[] =>
  readdirSync(folder, { recursive: true, encoding: 'utf8' })
    .filter((name) => name.endsWith('.kvb'))
    .map((name) => join(folder, name))
    .sort();

interface Outcome {
  readonly code: number;
  readonly document: Record<string, unknown>;
}

async function json(...argv: string[]): Promise<Outcome> {
  const { code, stdout } = await dualpath(['store', ...argv, '--json']);
  return { code, document: JSON.parse(stdout) as Record<string, unknown> };
}

describe('dualpath store stat', () => {
  it('counts blocks, bytes, namespaces and ages without the model or a salt', async () => {
    const { path, fileBytes } = await filledStore();
    const { code, document } = await json('stat', path);
    expect(code).toBe(0);
    expect(document).toMatchObject({
      path,
      identity: layout.identity,
      layers: layout.layers,
      block_file_bytes: fileBytes,
      blocks: 8,
      bytes: 8 * fileBytes,
      namespaces: [
        { name: '', blocks: 5, bytes: 5 * fileBytes },
        { name: 'tenant-a', blocks: 3, bytes: 3 * fileBytes },
      ],
      quarantined: { files: 0, bytes: 0 },
      temps: { files: 0, bytes: 0 },
      trash_namespaces: 0,
      foreign_names: 0,
      capacity_bytes: null,
    });
    expect((document['ages'] as { blocks: number }[]).reduce((sum, { blocks }) => sum + blocks, 0)).toBe(8);
    const { stdout } = await dualpath(['store', 'stat', path]);
    expect(stdout).toMatch(/tenant-a +│ +3 /);
    expect(stdout).toContain('none in force');
  });

  it('shows the capacity that is in force', async () => {
    const path = join(scratchDirectory(), 'store');
    const stores = [2 ** 30, 2 ** 20, undefined].map((capacityBytes) =>
      BlockStore.open({ path, layout, ...(capacityBytes === undefined ? {} : { capacityBytes }) }),
    );
    const { document } = await json('stat', path);
    expect(document['capacity_bytes']).toBe(2 ** 20);
    expect(document['processes']).toHaveLength(stores.length);
  });
});

describe('dualpath store verify', () => {
  it('finds a flipped byte, exits with 1, and takes the block out when told', async () => {
    const { path, blocks, fileBytes } = await filledStore();
    expect(await json('verify', path)).toMatchObject({
      code: 0,
      document: { blocks: 8, bytes: 8 * fileBytes, good_blocks: 8, bad_blocks: 0, bad: [], resume: null },
    });
    const spoiled = Buffer.alloc(fileBytes, 1);
    writeFileSync(blocks[2]!, spoiled);
    const found = await json('verify', path, '--threads', '2');
    expect(found).toMatchObject({
      code: 1,
      document: { good_blocks: 7, bad_blocks: 1, removed_blocks: 0, faults: { not_a_block: 1, foreign: 0 } },
    });
    const [bad] = found.document['bad'] as { namespace: string; key: string; fault: string }[];
    expect(bad).toMatchObject({ namespace: '', fault: 'not a block' });
    expect(blocks[2]).toContain(bad!.key);
    const { code, stdout } = await dualpath(['store', 'verify', path, '--quarantine']);
    expect(code).toBe(1);
    expect(stdout).toContain(`${bad!.key}: not a block`);
    expect(readdirSync(join(path, 'bad'))).toHaveLength(1);
    writeFileSync(blocks[0]!, '');
    expect(await json('verify', path, '--delete')).toMatchObject({
      code: 1,
      document: { action: 'delete', removed_blocks: 1, faults: { truncated: 1 } },
    });
    expect(await json('verify', path)).toMatchObject({ code: 0, document: { blocks: 6 } });
  });

  it('goes on where it stopped', async () => {
    const { path } = await filledStore();
    const first = await json('verify', path, '--limit', '6');
    expect(first.document).toMatchObject({ blocks: 6 });
    const { document } = await json('verify', path, '--resume', String(first.document['resume']));
    expect(document).toMatchObject({ blocks: 2, resume: null });
  });

  it('refuses what makes no sense', async () => {
    const { path } = await filledStore();
    expect((await dualpath(['store', 'verify', path, '--quarantine', '--delete'])).code).toBe(2);
    expect((await dualpath(['store', 'verify', path, '--threads', '65'])).code).toBe(2);
    const { code, stderr } = await dualpath(['store', 'verify', path, '--resume', 'here']);
    expect([code, stderr]).toEqual([2, expect.stringContaining("'here' is not the 'resume'")]);
  });
});

describe('dualpath store gc', () => {
  it('removes leftovers and says what it would do first', async () => {
    const { path } = await filledStore();
    const temp = join(path, 'tmp', '77-0123456789abcdef-0000000000000008.tmp');
    writeFileSync(temp, 'half');
    utimesSync(temp, 1, 1);
    expect(await json('gc', path, '--dry-run')).toMatchObject({
      code: 0,
      document: { path, dry_run: true, temps: { files: 1, bytes: 4 }, failed: 0 },
    });
    expect(existsSync(temp)).toBe(true);
    expect((await json('gc', path)).document).toMatchObject({ temps: { files: 1, bytes: 4 } });
    expect(existsSync(temp)).toBe(false);
  });

  it('evicts leaf first down to a capacity', async () => {
    const { path, fileBytes } = await filledStore();
    const capacity = String(3 * fileBytes);
    const dry = await json('gc', path, '--capacity', capacity, '--dry-run');
    expect(dry.document).toMatchObject({ eviction: { evicted_blocks: 5, blocks: 8 } });
    expect((await json('stat', path)).document).toMatchObject({ blocks: 8 });
    const { stdout } = await dualpath(['store', 'gc', path, '--capacity', capacity]);
    expect(stdout).toMatch(/oldest blocks +│ +5 blocks/);
    expect((await json('stat', path)).document).toMatchObject({ blocks: 3 });
    expect((await json('gc', path, '--capacity', '0')).document).toMatchObject({
      eviction: { evicted_blocks: 3 },
    });
  });

  it('keeps what is in use', async () => {
    const directory = scratchDirectory();
    const manager = openManager(layout, directory);
    const saved = await saveSequence(manager, tokens(20), 1);
    saved.release();
    const chain = await manager.lookup(tokens(20));
    const path = join(directory, 'store');
    expect((await json('gc', path, '--capacity', '0')).document).toMatchObject({
      eviction: { evicted_blocks: 0, pinned_blocks: 5 },
    });
    chain.release();
    expect((await json('gc', path, '--capacity', '0')).document).toMatchObject({
      eviction: { evicted_blocks: 5, pinned_blocks: 0 },
    });
    const after = await manager.lookup(tokens(20));
    expect(after.hitBlocks).toBe(0);
    after.release();
  });
});

describe('dualpath store delete', () => {
  it('deletes a namespace and nothing else', async () => {
    const { path, fileBytes } = await filledStore();
    expect(await json('delete', path, '--namespace', 'tenant-a')).toEqual({
      code: 0,
      document: { path, namespace: 'tenant-a', blocks: 3, bytes: 3 * fileBytes, failed: 0, last_errno: 0 },
    });
    expect((await json('stat', path)).document).toMatchObject({ blocks: 5, namespaces: [{ name: '' }] });
    const again = await dualpath(['store', 'delete', path, '--namespace', 'tenant-a']);
    expect([again.code, again.stderr]).toEqual([2, expect.stringContaining("no namespace 'tenant-a'")]);
    for (const name of ['../blocks', '', 'A']) {
      expect((await dualpath(['store', 'delete', path, '--namespace', name])).code).toBe(2);
    }
    expect((await dualpath(['store', 'delete', path])).code).toBe(2);
  });
});

describe('dualpath store on what is no store', () => {
  const commands: string[][] = [['stat'], ['verify'], ['gc'], ['delete', '--namespace', 'a']];

  it.each(commands)('%s says what is wrong with the path', async (...command: string[]) => {
    const base = scratchDirectory();
    writeFileSync(join(base, 'file'), 'x');
    mkdirSync(join(base, 'empty'));
    mkdirSync(join(base, 'newer'));
    writeFileSync(join(base, 'newer', 'store.manifest'), 'dualpath block store\nversion=9\nidentity=x\n');
    symlinkSync(join(base, 'nowhere'), join(base, 'link'));
    const expected: [string, number, string][] = [
      ['missing', 1, 'No such file or directory'],
      ['file', 1, 'the path has to name a directory'],
      ['empty', 2, 'it is not a block store'],
      ['newer', 2, "format version '9'"],
      ['link', 1, 'leads nowhere'],
    ];
    for (const [name, code, text] of expected) {
      const result = await dualpath(['store', ...command, join(base, name)]);
      expect([result.code, result.stdout]).toEqual([code, '']);
      expect(result.stderr).toContain(join(base, name));
      expect(result.stderr).toContain(text);
    }
  });
});
