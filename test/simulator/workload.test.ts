import { expect, it } from 'vitest';
import { dataSetWorkload, frozenDataSets, hashOf, meansOf } from '../../src/simulator/workload.js';

it.each(['32k', '48k', '64k'] as const)('%s is what it was before calibration', (dataSet) => {
  expect(hashOf(dataSetWorkload(dataSet))).toBe(frozenDataSets[dataSet].sha256);
});

it('cuts scaled trajectories at the data set length', () => {
  const means = meansOf(dataSetWorkload('32k', { append: 4, output: 2 }));
  expect(means.largestTokens).toBeLessThanOrEqual(32_768);
  expect(means.turns).toBeLessThan(meansOf(dataSetWorkload('32k')).turns);
});
