import { expect, it } from 'vitest';
import { maxOverMean, StorageLink } from '../../src/simulator/storage-link.js';

it('serves reads in order at its rate and counts them by second', () => {
  const link = new StorageLink(100);
  expect(link.read(0.5, 100)).toBe(1.5);
  expect(link.read(0.6, 50)).toBe(2);
  expect(link.read(5000, 100)).toBe(5001);
  expect([0, 1, 2, 5000].map((second) => link.bytesBetween(second, second + 1))).toEqual([50, 100, 0, 100]);
  expect(link.totalBytes).toBe(250);
  expect(link.report(5000.5)).toEqual({ bytes: 200, busyS: 2 });
});

it('compares the busiest link with the mean', () => {
  const links = [new StorageLink(100), new StorageLink(100)];
  links[0]!.read(0, 300);
  links[1]!.read(0, 100);
  expect(maxOverMean(links, 0, 4, 4)).toBe(1.5);
  expect(maxOverMean(links, 10, 20, 5)).toBe(1);
});
