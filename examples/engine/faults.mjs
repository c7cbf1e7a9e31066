/** What must not change a token, and what must: bytes of stored blocks flipped, found and recomputed; and not looked for. */
import { openSync, closeSync, readdirSync, readSync, statSync, writeSync } from 'node:fs';
import { join } from 'node:path';
import { Runtime } from 'dualpath';
import { openLocal } from './path.mjs';

/** Files of stored blocks, whatever folders they are in. */
export function blockFiles(folder, blockBytes) {
  return readdirSync(folder, { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile())
    .map((entry) => join(entry.parentPath ?? entry.path, entry.name))
    .filter((path) => statSync(path).size >= blockBytes);
}

/** Flips the highest bit of the exponents of a row of floats in the midst of the payload. */
export function flipBytes(path) {
  const fd = openSync(path, 'r+');
  const bytes = Buffer.alloc(256);
  const at = 4096 + 8 * Math.floor((statSync(path).size - 4096) / 16);
  readSync(fd, bytes, 0, bytes.length, at);
  for (let i = 3; i < bytes.length; i += 4) bytes[i] ^= 0x40;
  writeSync(fd, bytes, 0, bytes.length, at);
  closeSync(fd);
}

/** A cluster whose blocks are corrupted before some turns. `detect: false` switches the checksums off, as a test may. */
export function corruptingCluster({ detect }) {
  const runtime = new Runtime();
  if (!detect) runtime.setFaults({ acceptBadBlocks: 1 });
  const found = { flipped: 0, lostBlocks: 0 };
  return {
    found,
    open: async (options) => {
      const cluster = await openLocal({ ...options, runtime });
      const close = async () => {
        found.lostBlocks = cluster.prefill.hits.lostBlocks;
        await cluster.close();
        runtime.close();
      };
      return { submit: (what) => cluster.submit(what), close, store: cluster.store };
    },
    /** Before every third turn a block in the midst of those stored last. */
    beforeTurn: async (session, turn, { store }) => {
      if (session !== 0 || turn % 3 !== 0) return;
      const files = blockFiles(store.path, store.layout.fullBlockBytes);
      const newest = files.sort((a, b) => statSync(b).mtimeMs - statSync(a).mtimeMs);
      for (const file of newest.slice(0, 4)) flipBytes(file);
      found.flipped += 4;
    },
  };
}
