/**
 * The block store: one directory of Full Blocks keyed by a chain over everything before them, so it is the
 * paper's trie. Hashing, look-up and files are native (native/store); bytes move by an engine's programs.
 */
import { existsSync, mkdirSync } from 'node:fs';
import { dirname, resolve } from 'node:path';
import { callNative, native, type NativeStore, type NativeStoreStatistics } from '../binding/index.js';
import { DualPathError } from '../errors/index.js';
import type { BlockLayout } from '../layout/index.js';

export interface BlockStoreOptions {
  /** Directory; made when missing. */
  readonly path: string;
  readonly layout: BlockLayout;
  /** Separates namespaces: whoever does not know the salt can neither name nor find its blocks. 0 to 64 bytes. */
  readonly salt?: Uint8Array;
  /** Keys the in-memory index holds; look-ups beyond ask the file system. Default 1,048,576. */
  readonly indexCapacity?: number;
  /**
   * Memory for the keys of chains hashed before, by which the next look-up of a prefix need not hash it: 288 bytes a
   * block of 64 tokens. 65,536 bytes to 256 GiB, or 0 for none; default 64 MiB.
   */
  readonly chainCacheBytes?: number;
}

export class BlockStore {
  readonly path: string;
  readonly layout: BlockLayout;
  /** A block's file: header page, payload, padding. */
  readonly file: { readonly fileBytes: number; readonly headerBytes: number; readonly payloadBytes: number };
  /** For src/transfer's engines. */
  readonly handle: NativeStore;

  private constructor(options: BlockStoreOptions, handle: NativeStore) {
    this.path = options.path;
    this.layout = options.layout;
    this.handle = handle;
    this.file = handle.facts();
  }

  /** @throws STORE_MISMATCH when the directory holds blocks of another layout, STORAGE_IO, NO_SPACE */
  static open(options: BlockStoreOptions): BlockStore {
    const { layout, path, salt, indexCapacity, chainCacheBytes } = options;
    makeParents(path);
    const handle = callNative(
      () =>
        new (native().Store)({
          path,
          identity: layout.identity,
          layerBytes: Array.from({ length: layout.layers }, (_, layer) => layout.layerBlockBytes(layer)),
          ...(salt === undefined ? {} : { salt }),
          ...(indexCapacity === undefined ? {} : { indexCapacity }),
          ...(chainCacheBytes === undefined ? {} : { chainCacheBytes }),
        }),
    );
    return new BlockStore(options, handle);
  }

  statistics(): NativeStoreStatistics {
    return this.handle.statistics();
  }
}

/** Not mkdirSync's `recursive`: that never returns where mkdir says ENOENT for ever, as below /proc. */
function makeParents(path: string): void {
  const missing: string[] = [];
  for (let at = dirname(resolve(path)); !existsSync(at); at = dirname(at)) missing.push(at);
  for (const parent of missing.reverse()) {
    try {
      mkdirSync(parent);
    } catch (cause) {
      const { code = '', errno = 0 } = cause as NodeJS.ErrnoException;
      if (code === 'EEXIST') continue; // another process was quicker
      const full = code === 'ENOSPC' || code === 'EDQUOT';
      throw new DualPathError(
        full ? 'NO_SPACE' : 'STORAGE_IO',
        `block store ${path}: its parent directory ${parent} cannot be made (${code}); ` +
          (full ? 'free some space there or choose another directory' : 'check the path and its permissions'),
        { path, parent, errno: -errno },
        { cause },
      );
    }
  }
}
