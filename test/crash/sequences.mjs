/**
 * What the crash tests store: sequences whose tokens and KV bytes follow from (seed, number), so that whoever reads
 * them later knows every byte. Four in a row share their first four blocks.
 */
import { blockLayout } from '../../dist/index.js';

export const blockTokens = 16;
const sharedBlocks = 4;
const family = 4;
export const mostBlocks = 12;

const bytesPerToken = 256;
const layers = 2;
const model = {
  name: 'crash',
  revision: '1',
  dtype: 'u8',
  layers,
  groups: [
    {
      name: 'kv',
      layers: [0, 1],
      planes: [{ name: 'kv', bytesPerToken }],
      windowTokens: 0,
      sharding: 'replicated',
    },
  ],
};
export const layout = blockLayout(model, { blockTokens });

/** A generator of 32-bit words (xorshift32) that never stands at zero. */
export function words(seed) {
  let x = Math.imul(seed ^ (seed >>> 16), 0x7feb352d) | 1;
  return () => {
    x ^= x << 13;
    x ^= x >>> 17;
    x ^= x << 5;
    return x >>> 0;
  };
}

export const blocksOf = (seed, n) => sharedBlocks + 1 + (words(seed + n)() % (mostBlocks - sharedBlocks));

/** The same for blocks that share everything before and in them. */
function blockSeed(seed, n, block) {
  const owner = block < sharedBlocks ? n - (n % family) : n;
  const draw = words(seed ^ Math.imul(owner + 1, 0x9e3779b1));
  for (let i = 0; i < 4; i++) draw();
  return draw() ^ Math.imul(block + 1, 0x85ebca6b);
}

/** One token more than the blocks hold, so that all of them count as hits. */
export function tokensOf(seed, n) {
  const blocks = blocksOf(seed, n);
  const tokens = new Uint32Array(blocks * blockTokens + 1);
  for (let block = 0; block < blocks; block++) {
    const draw = words(blockSeed(seed, n, block));
    for (let i = 0; i < blockTokens; i++) tokens[block * blockTokens + i] = draw();
  }
  return tokens;
}

/** @param target Uint32Array of one Full Block */
export function fillBlock(target, seed, n, block) {
  const draw = words(~blockSeed(seed, n, block));
  for (let i = 0; i < target.length; i++) target[i] = draw();
}
