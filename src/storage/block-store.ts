/**
 * The block store: one directory of Full Blocks keyed by a chain over everything before them, so it is the
 * paper's trie. Hashing, look-up and files are native (native/store); bytes move by an engine's programs.
 */
import { existsSync, mkdirSync } from 'node:fs';
import { dirname, resolve } from 'node:path';
import {
  callNative,
  fromNative,
  native,
  type NativeStore,
  type NativeStoreOptions,
  type NativeStoreStatistics,
} from '../binding/index.js';
import { DualPathError } from '../errors/index.js';
import type { BlockLayout } from '../layout/index.js';

export interface BlockStoreOptions {
  /** Directory; made when missing. */
  readonly path: string;
  readonly layout: BlockLayout;
  /**
   * A named part of the store that can be deleted as a whole (StoreAdmin): 1 to 40 of a-z, 0-9, '.', '_', '-'.
   * Left out: the default one, which can not. Capacity and age order are the whole store's.
   */
  readonly namespace?: string;
  /** A secret, 0 to 64 bytes: whoever does not know it can neither name nor find the blocks written with it. */
  readonly salt?: Uint8Array;
  /**
   * Bytes of all block files of the store, whoever wrote them: above 95 % of it this process evicts, down to
   * 90 %, the oldest first. Left out: this process never evicts.
   */
  readonly capacityBytes?: number;
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

  /**
   * @throws STORE_MISMATCH when the directory holds blocks of another layout or is another program's,
   *   INVALID_ARGUMENT, STORAGE_IO, NO_SPACE
   */
  static open(options: BlockStoreOptions): BlockStore {
    const wanted = nativeOptions(options);
    return new BlockStore(
      options,
      callNative(() => new (native().Store)(wanted)),
    );
  }

  /**
   * The same, off this thread: it reads some hundreds of directories, which takes seconds where the file system is slow.
   * @throws what open throws
   */
  static async openAsync(options: BlockStoreOptions): Promise<BlockStore> {
    const wanted = nativeOptions(options);
    try {
      return new BlockStore(options, await native().Store.open(wanted));
    } catch (error) {
      throw fromNative(error);
    }
  }

  statistics(): NativeStoreStatistics {
    return this.handle.statistics();
  }
}

function nativeOptions(options: BlockStoreOptions): NativeStoreOptions {
  const { layout, path, namespace, salt, indexCapacity, chainCacheBytes, capacityBytes } = options;
  makeParents(path);
  return {
    path,
    identity: layout.identity,
    layerBytes: Array.from({ length: layout.layers }, (_, layer) => layout.layerBlockBytes(layer)),
    ...(namespace === undefined ? {} : { namespace: checkNamespace(namespace) }),
    ...(salt === undefined ? {} : { salt }),
    ...(capacityBytes === undefined ? {} : { capacityBytes: checkCapacity(capacityBytes) }),
    ...(indexCapacity === undefined ? {} : { indexCapacity }),
    ...(chainCacheBytes === undefined ? {} : { chainCacheBytes }),
  };
}

/** The native side takes no name for the default namespace; here that would hide a mistake. */
function checkNamespace(name: string): string {
  if (name !== '') return name;
  throw new DualPathError(
    'INVALID_ARGUMENT',
    "namespace '' has no name; leave the option out for the default namespace",
  );
}

function checkCapacity(bytes: number): number {
  if (Number.isSafeInteger(bytes) && bytes > 0) return bytes;
  throw new DualPathError(
    'INVALID_ARGUMENT',
    `capacityBytes is ${bytes}; give a whole number of bytes above 0, or leave the option out`,
    { capacity_bytes: bytes },
  );
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
