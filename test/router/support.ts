import fc from 'fast-check';
import { hash32, type RequestInput } from '../../src/router/index.js';

/** Keys of a prompt whose blocks have these ids: each key stands for its id and all before it. */
export function keysOf(ids: readonly number[]): Uint32Array {
  const keys = new Uint32Array(2 * ids.length);
  let chain = 17;
  for (const [i, id] of ids.entries()) {
    chain = hash32(chain, id, 0x9e3779b9);
    keys[2 * i] = chain;
    keys[2 * i + 1] = hash32(chain, id, 0x85ebca6b);
  }
  return keys;
}

let requests = 0;

export function input(ids: readonly number[], blockTokens = 512, extraTokens = 10): RequestInput {
  return {
    id: requests++,
    keys: keysOf(ids),
    firstBlock: 0,
    blocks: ids.length,
    promptTokens: ids.length * blockTokens + extraTokens,
  };
}

/** Prompts over few ids, so that they share prefixes. */
export const prompts = fc.array(fc.integer({ min: 0, max: 2 }), { minLength: 1, maxLength: 6 });
