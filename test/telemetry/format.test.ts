import { describe, expect, it } from 'vitest';
import {
  formatBytes,
  formatBytesPerSecond,
  formatCount,
  formatDuration,
  formatPercent,
} from '../../src/telemetry/index.js';

describe('formatBytes', () => {
  it.each([
    [0, '0 B'],
    [1023, '1023 B'],
    [1024, '1 KiB'],
    [1024 * 1023.7, '1 MiB'],
    [64 * 2 ** 20, '64 MiB'],
    [1.5 * 2 ** 30, '1.5 GiB'],
    [123456789n, '118 MiB'],
    [2 ** 62, '4096 PiB'],
    [-2048, '-2 KiB'],
  ])('%s is %s', (bytes, text) => expect(formatBytes(bytes)).toBe(text));
});

describe('formatBytesPerSecond', () => {
  it.each([
    [0, '0 B/s'],
    [999.6, '1 KB/s'],
    [64e6, '64 MB/s'],
    [1.254e9, '1.25 GB/s'],
  ])('%s is %s', (rate, text) => expect(formatBytesPerSecond(rate)).toBe(text));
});

describe('formatDuration', () => {
  it.each([
    [0, '0 s'],
    [2e-9, '2 ns'],
    [999.7e-9, '1 us'],
    [12.5e-6, '12.5 us'],
    [0.34, '340 ms'],
    [9.871, '9.87 s'],
    [99.4, '99.4 s'],
    [99.96, '1 min 40 s'],
    [125, '2 min 05 s'],
    [3599.7, '1 h 00 min'],
    [7500, '2 h 05 min'],
    [7175104, '1,993 h 05 min'],
    [-0.002, '-2 ms'],
  ])('%s is %s', (seconds, text) => expect(formatDuration(seconds)).toBe(text));
});

describe('counts and shares', () => {
  it('set thousands apart and keep one decimal of small fractions', () => {
    expect([0, 12031, 65.812, 119379.8, 2n ** 63n].map(formatCount)).toEqual([
      '0',
      '12,031',
      '65.8',
      '119,380',
      '9,223,372,036,854,775,808',
    ]);
    expect([0, 0.96284, 1].map(formatPercent)).toEqual(['0.0 %', '96.3 %', '100.0 %']);
  });
});
