import { createHash } from 'node:crypto';

/** Two u32 that select one token sequence; 64 bits, so that distinct sequences do not share a key by chance. */
export type MixKey = readonly [number, number];

/** The finalizer of MurmurHash3 (32 bit): a bijection of u32 in which every input bit moves every output bit. */
export function fmix32(value: number): number {
  let h = value | 0;
  h = Math.imul(h ^ (h >>> 16), 0x85ebca6b);
  h = Math.imul(h ^ (h >>> 13), 0xc2b2ae35);
  return (h ^ (h >>> 16)) >>> 0;
}

/** Key of a named sequence under a seed. The kind keeps apart names that are used for different things. */
export function namedKey(seed: number, kind: string, name: string): MixKey {
  const digest = createHash('sha256').update(`${seed}\0${kind}\0${name}`).digest();
  return [digest.readUInt32LE(0), digest.readUInt32LE(4)];
}

/** Key of sequence `index` (u32) of a family; distinct for distinct indices, without a cryptographic hash each. */
export function indexedKey(family: MixKey, index: number): MixKey {
  return [fmix32(index ^ family[0]), fmix32((index + family[1]) | 0)];
}

/** target[from, to) = tokens firstIndex, firstIndex + 1, ... of the key's sequence; distinct within 2^32 of them. */
export function fillTokens(
  target: Uint32Array,
  from: number,
  to: number,
  key: MixKey,
  firstIndex: number,
): void {
  const [k0, k1] = key;
  // fmix32 by hand: this loop makes every token of a replay.
  for (let i = from, n = firstIndex; i < to; i++, n++) {
    let h = n ^ k0;
    h = Math.imul(h ^ (h >>> 16), 0x85ebca6b);
    h = Math.imul(h ^ (h >>> 13), 0xc2b2ae35);
    h = ((h ^ (h >>> 16)) + k1) | 0;
    h = Math.imul(h ^ (h >>> 16), 0x85ebca6b);
    h = Math.imul(h ^ (h >>> 13), 0xc2b2ae35);
    target[i] = h ^ (h >>> 16);
  }
}
