import { expect, it } from 'vitest';
import type { EngineCapacity } from '../../src/scheduler/index.js';
import { RoundRobin } from '../../src/simulator/round-robin.js';

const engine = (name: string, role: 'prefill' | 'decode'): EngineCapacity => ({
  engine: name,
  node: name,
  group: name,
  role,
  bufferBlocks: 10,
  hbmBlocks: role === 'prefill' ? 0 : 100,
  readRateBytesPerS: 1,
});
const engines = [
  engine('p0', 'prefill'),
  engine('p1', 'prefill'),
  engine('d0', 'decode'),
  engine('d1', 'decode'),
];
const request = (name: string, hits = 4): Parameters<RoundRobin['submit']>[0] => ({
  request: name,
  promptTokens: 10 * hits + 10,
  hitTokens: 10 * hits,
  maxNewTokens: 5,
});

it('gives every engine and side its turn, and waits where there is no room', () => {
  const scheduler = new RoundRobin({ engines, blockTokens: 10, decodeSpareBlocks: 0, sides: 'in turn' });
  for (let i = 0; i < 6; i++) scheduler.submit(request(`r${i}`));
  const first = scheduler.admit();
  // Two prompts of five blocks fill a DE.
  expect(first.map((each) => [each.request, each.prefillEngine, each.decodeEngine, each.side])).toEqual([
    ['r0', 'p0', 'd0', 'prefill'],
    ['r2', 'p0', 'd0', 'decode'],
    ['r1', 'p1', 'd1', 'decode'],
    ['r3', 'p1', 'd1', 'prefill'],
  ]);
  expect(scheduler.waiting).toBe(2);
  scheduler.complete('r1', 'decode-buffer');
  expect(scheduler.admit().map((each) => each.request)).toEqual(['r5']);
});

it('reads on the prefill side only where that is asked for', () => {
  const scheduler = new RoundRobin({ engines, blockTokens: 10, decodeSpareBlocks: 0, sides: 'prefill' });
  for (let i = 0; i < 4; i++) scheduler.submit(request(`r${i}`));
  expect(scheduler.admit().map(({ prefillReadBlocks }) => prefillReadBlocks)).toEqual([4, 4, 4, 4]);
});
