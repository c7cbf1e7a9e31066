/** Hashes for places on a ring and for tables in memory. Not for keys that leave the process: those are cryptographic. */

/** A u32 from 64 bits (two u32) and a seed; different seeds give independent functions. */
export function hash32(low: number, high: number, seed: number): number {
  let h = Math.imul(low ^ seed, 0x85ebca6b);
  h = Math.imul(h ^ (h >>> 15) ^ high, 0xc2b2ae35);
  h = Math.imul(h ^ (h >>> 13) ^ seed, 0x27d4eb2f);
  h = Math.imul(h ^ (h >>> 16), 0x85ebca6b);
  return (h ^ (h >>> 13)) >>> 0;
}

/** A u32 of a name (FNV-1a over its UTF-16 units), so that an instance's place depends on nothing but its name. */
export function hashName(name: string, seed: number): number {
  let h = 0x811c9dc5;
  for (let i = 0; i < name.length; i++) h = Math.imul(h ^ name.charCodeAt(i), 0x01000193);
  return hash32(h, name.length, seed);
}
