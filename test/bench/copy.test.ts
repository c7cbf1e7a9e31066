import { afterAll, describe, expect, it } from 'vitest';
import { benchCopy } from '../../src/bench/index.js';
import { makeStandInCuda } from '../cuda/support.js';

const standIn = makeStandInCuda();
afterAll(standIn.remove);

describe('bench copy', () => {
  it('moves every case by every way, and each way carried what it says', async () => {
    const { results, emulated, provider, cuda } = await benchCopy({
      ...{ rounds: 1, roundBytes: 1 << 20, cudaLibrary: standIn.library },
    });
    expect(emulated).toBe(true);
    expect(provider).toMatch(/emulated/);
    expect(cuda).toMatch(/stand-in .*no GPU/);
    expect(results.map(({ model, layout }) => `${model} ${layout}`)).toEqual([
      ...['ds-v3.2 contiguous', 'ds-v3.2 scattered', 'gqa contiguous', 'gqa scattered', 'gqa heads'],
    ]);
    for (const { ways, nic, blockBytes } of results) {
      expect(Object.keys(ways)).toEqual(['nic', 'memcpy', 'cuda']);
      for (const way of Object.values(ways)) {
        expect(way).toMatchObject({ carriedShare: 1, mismatchedBlocks: 0 });
        expect(way.bytesPerS).toBeGreaterThan(0);
      }
      expect(nic).toMatchObject({ postCallsPerChain: 1, completionsPerChain: 1 });
      expect(blockBytes % 64).toBe(0);
    }
    expect(results[4]!.piecesPerBlock).toBe(64 * 16);
  });

  it('says why there is no CUDA', async () => {
    const { cuda, results } = await benchCopy({
      ...{ rounds: 1, roundBytes: 1 << 20, cudaLibrary: 'libnowhere-cuda.so' },
    });
    expect(cuda).toMatch(/libnowhere-cuda.so not found/);
    expect(results[0]!.ways.cuda).toBeUndefined();
  });
});
