import { describe, expect, it } from 'vitest';
import { checkWorkload, storeBytesNeeded } from '../../src/replay/index.js';
import { cluster, workload } from './support.js';

describe('checkWorkload', () => {
  it('takes what fits', async () => {
    const load = await workload();
    expect(() => checkWorkload(load, cluster(), ['layerwise', 'split'])).not.toThrow();
    expect(storeBytesNeeded(load, cluster())).toBeGreaterThan(0);
  });

  it.each(['prefillBufferBytes', 'decodeBufferBytes', 'prefillHbmBytes', 'decodeHbmBytes'] as const)(
    'names the prompt and the option when %s is too small',
    async (size) => {
      const load = await workload();
      const check = (): void => checkWorkload(load, cluster({ [size]: 200_000 }), ['dualpath']);
      expect(check).toThrowError(
        /session trace_\d+, turn \d+ has \d+ tokens.*--(prefill|decode)-(buffer|hbm).*raise it to \d+/,
      );
    },
  );

  it('asks for all layers of HBM where a mode is not layerwise', async () => {
    const load = await workload();
    const options = cluster({ windowLayers: 1, prefillHbmBytes: 256 << 10 });
    expect(() => checkWorkload(load, options, ['layerwise'])).not.toThrow();
    expect(() => checkWorkload(load, options, ['layerwise', 'basic'])).toThrowError(/--prefill-hbm/);
  });

  it('says so before a disk fills up', async () => {
    const load = await workload(20, 40, 1024);
    const huge = 2 ** 40;
    const options = cluster({
      prefillBufferBytes: huge,
      decodeBufferBytes: huge,
      prefillHbmBytes: huge,
      decodeHbmBytes: huge,
    });
    expect(() => checkWorkload(load, options, ['split'])).toThrowError(/would store \d+ bytes, \d+ are free/);
  });
});
