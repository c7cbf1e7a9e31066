import { describe, expect, it } from 'vitest';
import { Admission, type ReadPolicy } from '../../src/scheduler/index.js';
import { admitAll, engineOf, optionsOf, requestOf } from './support.js';

describe('the read side', () => {
  const wide = [
    engineOf('prefill', 'p', { bufferBlocks: 12 }),
    engineOf('decode', 'd', { bufferBlocks: 1000, hbmBlocks: 1000 }),
  ];
  const sides = (policy: ReadPolicy, ...requests: ReturnType<typeof requestOf>[]): unknown[] =>
    admitAll(new Admission(optionsOf({ engines: wide, policy })), ...requests).map(
      ({ side, prefillReadBlocks, decodeReadBlocks }) => [side, prefillReadBlocks, decodeReadBlocks],
    );

  it('prefill: always, and waits for PE buffer', () => {
    expect(sides('prefill', requestOf('a', 8, 8), requestOf('b', 8, 4), requestOf('c', 8, 1))).toEqual([
      ['prefill', 8, 0],
      ['prefill', 4, 0],
    ]);
  });

  it('round-robin: in turns among requests that read, and waits for the side whose turn it is', () => {
    const requests = [8, 1, 0, 1, 1, 5, 1].map((hits, i) => requestOf(`r${i}`, 8, hits));
    expect(sides('round-robin', ...requests)).toEqual([
      ['prefill', 8, 0],
      ['decode', 0, 1],
      ['prefill', 0, 0],
      ['prefill', 1, 0],
      ['decode', 0, 1],
    ]);
  });

  it('shorter-queue: the side that would finish first; equal queues alternate', () => {
    const requests = [3, 2, 2, 1, 1].map((hits, i) => requestOf(`r${i}`, 8, hits));
    expect(sides('shorter-queue', ...requests)).toEqual([
      ['prefill', 3, 0],
      ['decode', 0, 2],
      ['decode', 0, 2],
      ['prefill', 1, 0],
      ['decode', 0, 1],
    ]);
  });

  it('shorter-queue: the decode side when PE buffer is short', () => {
    const admission = new Admission(optionsOf({ engines: wide }));
    admitAll(admission, requestOf('a', 10, 10));
    admission.complete('a', 'prefill-read');
    const [next] = admitAll(admission, requestOf('b', 4, 3));
    expect(next).toMatchObject({ side: 'decode', decodeReadBlocks: 3 });
  });

  it('split: both at once, within PE buffer', () => {
    expect(sides('split', requestOf('a', 9, 9), requestOf('b', 9, 9), requestOf('c', 9, 9))).toEqual([
      ['split', 5, 4],
      ['split', 4, 5],
      ['split', 3, 6],
    ]);
  });

  it('none: nothing', () => {
    expect(sides('none', requestOf('a', 9, 9))).toEqual([['prefill', 0, 0]]);
  });
});
