import { decode } from '@msgpack/msgpack';

/** One event of a batch, as far as it matters here. Hashes are the engine's own names of its blocks. */
export type KvEvent =
  | {
      readonly type: 'stored';
      readonly hashes: readonly string[];
      readonly parent: string | null;
      /** Of all the blocks, one after the other. */
      readonly ids: Uint32Array;
      readonly blockTokens: number;
      /** So many of the first blocks depend on nothing but ids: no adapter, salt or image. */
      readonly plainBlocks: number;
      readonly group: number | null;
      readonly kind: string | null;
    }
  | {
      readonly type: 'removed';
      readonly hashes: readonly string[];
      /** Copies that are left of each, where the engine says. */
      readonly remaining: readonly number[] | null;
      readonly group: number | null;
    }
  | { readonly type: 'cleared' };

/** Names of fields in their order: msgspec structs come as arrays in earlier versions and as maps in later ones. */
const fields: Readonly<Record<string, readonly string[]>> = {
  BlockStored: [
    'type',
    'block_hashes',
    'parent_block_hash',
    'token_ids',
    'block_size',
    'lora_id',
    'medium',
    'lora_name',
    'extra_keys',
    'group_idx',
    'kv_cache_spec_kind',
  ],
  BlockRemoved: ['type', 'block_hashes', 'medium', 'group_idx', 'remaining_copy_counts'],
  AllBlocksCleared: ['type'],
};

type Fields = Readonly<Record<string, unknown>>;

/** Items of one list: no block table of an engine is larger. */
const listMax = 1 << 20;

/**
 * Reads a KVEventBatch as vLLM's `kv_events.py` and SGLang's write it. Events of other kinds, and of blocks that are not
 * on the device, are left out.
 * @throws Error for anything else
 */
export function decodeBatch(payload: Uint8Array): KvEvent[] {
  const batch = decode(payload, {
    useBigInt64: true,
    maxArrayLength: Math.min(listMax, payload.length),
    maxMapLength: Math.min(1024, payload.length),
  });
  const events = Array.isArray(batch) ? (batch as unknown[])[1] : (batch as Fields | null)?.['events'];
  return listOf(events, 'events').flatMap((each) => eventOf(each) ?? []);
}

function eventOf(value: unknown): KvEvent | null {
  const named = namedFields(value);
  const medium = named['medium'] ?? 'GPU';
  const group = wholeOrNull(named['group_idx'], 'group_idx');
  switch (named['type']) {
    case 'BlockStored':
      return medium === 'GPU' ? storedOf(named, group) : null;
    case 'BlockRemoved': {
      if (medium !== 'GPU') return null;
      const hashes = hashesOf(named['block_hashes']);
      const counts = named['remaining_copy_counts'] ?? null;
      const remaining =
        counts === null ? null : listOf(counts, 'counts').map((each) => whole(each, 'a count'));
      if (remaining !== null && remaining.length !== hashes.length) throw new Error('counts do not fit');
      return { type: 'removed', hashes, remaining, group };
    }
    case 'AllBlocksCleared':
      return { type: 'cleared' };
    default:
      return null;
  }
}

function storedOf(named: Fields, group: number | null): KvEvent {
  const hashes = hashesOf(named['block_hashes']);
  const blockTokens = whole(named['block_size'], 'block_size');
  const ids = Uint32Array.from(listOf(named['token_ids'], 'token_ids'), (id) => whole(id, 'a token id'));
  if (blockTokens === 0 || ids.length !== hashes.length * blockTokens) {
    throw new Error(`${ids.length} ids are not ${hashes.length} blocks of ${blockTokens}`);
  }
  const parent = named['parent_block_hash'] ?? null;
  const kind = named['kv_cache_spec_kind'] ?? null;
  return {
    type: 'stored',
    hashes,
    parent: parent === null ? null : hashOf(parent),
    ids,
    blockTokens,
    plainBlocks: plainBlocks(named, hashes.length),
    group,
    kind: typeof kind === 'string' ? kind : null,
  };
}

function plainBlocks(named: Fields, blocks: number): number {
  if ((named['lora_id'] ?? null) !== null || (named['lora_name'] ?? null) !== null) return 0;
  const extra = named['extra_keys'] ?? null;
  if (extra === null) return blocks;
  const first = listOf(extra, 'extra_keys').findIndex(
    (keys) => keys !== null && !(Array.isArray(keys) && keys.length === 0),
  );
  return first === -1 ? blocks : Math.min(first, blocks);
}

function namedFields(value: unknown): Fields {
  if (!Array.isArray(value)) {
    if (typeof value !== 'object' || value === null) throw new Error('an event is a list or a map');
    return value as Fields;
  }
  const names = fields[String(value[0])] ?? ['type'];
  return Object.fromEntries(names.map((name, i) => [name, (value as unknown[])[i]]));
}

function hashesOf(value: unknown): string[] {
  return listOf(value, 'block_hashes').map(hashOf);
}

/** Bytes, or integers of 64 bits in older versions. */
function hashOf(value: unknown): string {
  if (value instanceof Uint8Array && value.length > 0 && value.length <= 64) {
    return Buffer.from(value.buffer, value.byteOffset, value.byteLength).toString('latin1');
  }
  if (typeof value === 'bigint' || Number.isSafeInteger(value)) return `i${String(value)}`;
  throw new Error('a block hash is bytes or an integer');
}

function listOf(value: unknown, name: string): unknown[] {
  if (Array.isArray(value)) return value as unknown[];
  throw new Error(`${name} is no list`);
}

function whole(value: unknown, name: string): number {
  if (typeof value === 'number' && Number.isInteger(value) && value >= 0 && value <= 0xffffffff) return value;
  throw new Error(`${name} is no number of 32 bits`);
}

function wholeOrNull(value: unknown, name: string): number | null {
  return value === undefined || value === null ? null : whole(value, name);
}
