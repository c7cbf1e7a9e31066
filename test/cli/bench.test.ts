import { describe, expect, it } from 'vitest';
import { dualpath } from './support.js';

describe('dualpath bench ring', () => {
  it('prints one document with the figures people compare', async () => {
    const { code, stdout } = await dualpath(['bench', 'ring', '--json']);
    expect(code).toBe(0);
    expect(JSON.parse(stdout)).toMatchObject({
      descriptors_per_s: expect.any(Number),
      program_submit_us: expect.any(Number),
      program_submit_warm_us: expect.any(Number),
      heap_growth_bytes: expect.any(Number),
      transport: 'loopback',
      device: 'emulated-hbm',
    });
  }, 120_000);
});
