import { describe, expect, it } from 'vitest';
import { Admission, type EngineCapacity } from '../../../src/scheduler/index.js';
import { ClusterModel, type ClusterOptions } from '../../../src/bench/model/cluster.js';
import { EventQueue } from '../../../src/bench/model/events.js';
import { StorageLink } from '../../../src/bench/model/link.js';
import { RoundRobin } from '../../../src/bench/model/round-robin.js';

describe('EventQueue', () => {
  it('runs events by time, equals in order, and stops in between', () => {
    const events = new EventQueue();
    const seen: string[] = [];
    const times = [5, 1, 3, 1, 4, 1, 2];
    times.forEach((time, i) => events.after(time, () => seen.push(`${time}.${i}`)));
    events.after(2, () => events.after(0, () => seen.push('nested')));
    events.runUntil(3);
    expect(seen).toEqual(['1.1', '1.3', '1.5', '2.6', 'nested', '3.2']);
    events.runUntil(10);
    expect(seen.slice(-2)).toEqual(['4.4', '5.0']);
    expect(events.nowS).toBe(5);
  });
});

describe('StorageLink', () => {
  it('serves in order at its rate, and counts bytes by the second', () => {
    const events = new EventQueue();
    const link = new StorageLink(events, 100);
    const ends: number[] = [];
    for (const bytes of [150, 100]) link.read(bytes, () => ends.push(events.nowS));
    events.after(4, () => link.read(50, () => ends.push(events.nowS)));
    events.runUntil(10);
    expect(ends).toEqual([1.5, 2.5, 4.5]);
    expect([link.bytes(0, 1), link.bytes(2, 3), link.bytes(3, 5), link.bytes(0, 9)]).toEqual([
      100, 50, 50, 300,
    ]);
  });
});

const engine = (role: 'prefill' | 'decode', name: string): EngineCapacity => ({
  engine: name,
  node: `n-${name}`,
  group: `g-${name}`,
  role,
  bufferBlocks: 1000,
  hbmBlocks: role === 'prefill' ? 0 : 1000,
  readRateBytesPerS: 1000,
});
const engines = [
  engine('prefill', 'p0'),
  engine('prefill', 'p1'),
  engine('decode', 'd0'),
  engine('decode', 'd1'),
];

const options: ClusterOptions = {
  engines,
  blockTokens: 10,
  blockBytes: 100,
  timeModel: {
    predict: (batch) => {
      const newTokens = batch.reduce((sum, part) => sum + part.newTokens, 0);
      return { attentionS: 0.01 * newTokens, totalS: 0.1 * newTokens };
    },
  },
  quotaS: 0.5,
  fetchS: 0.5,
  decodeStepS: 0.1,
  decodeStepPerSequenceS: 0,
};

const request = (name: string, hitTokens: number, newTokens: number) => ({
  request: name,
  promptTokens: hitTokens + newTokens,
  hitTokens,
  maxNewTokens: 10,
});

describe('ClusterModel', () => {
  it('takes fetch, read, forward and decoding one after the other', () => {
    const admission = new Admission({
      engines,
      policy: 'prefill',
      blockTokens: 10,
      blockBytes: 100,
      decodeSpareBlocks: 1,
      maxWaiting: 10,
      seed: 1,
    });
    const seen: [string, number][] = [];
    const model: ClusterModel = new ClusterModel(options, admission, {
      prefilled: (_, ttftS) => seen.push(['prefilled', ttftS]),
      ended: () => seen.push(['ended', model.events.nowS]),
      forward: (attentionS) => seen.push(['attention', attentionS[0]!]),
    });
    model.submit(request('a', 200, 70));
    model.events.runUntil(100);
    // A PE group has fetched at 0 s and the DE's at 0.25 or 0.375 s. 20 blocks: 2 s. 70 tokens: 50 and 20 by the quota.
    expect(seen.map(([name]) => name)).toEqual(['attention', 'attention', 'prefilled', 'ended']);
    expect(seen[0]![1]).toBeCloseTo(0.5, 9);
    expect(seen[1]![1]).toBeCloseTo(0.2, 9);
    const assignedS = seen[2]![1] - 2 - 7;
    expect([0.25, 0.375]).toContain(Math.round(assignedS * 1e9) / 1e9);
    expect(seen[3]![1]).toBeCloseTo(assignedS + 9 + 1, 9);
    expect(admission.statistics()).toMatchObject({ completed: 1, running: 0, waiting: 0 });
    expect(admission.engine('p0').bufferBlocks + admission.engine('d0').bufferBlocks).toBe(0);
  });

  it('under round robin gives every engine and side its turn, within memory', () => {
    const scheduler = new RoundRobin(engines, 10);
    const model = new ClusterModel(options, scheduler, { ended: () => undefined });
    for (let i = 0; i < 8; i++) model.submit(request(`r${i}`, 100, 10));
    model.events.runUntil(100);
    expect([...model.links.values()].map((link) => link.bytes(0, 100))).toEqual([2000, 2000, 2000, 2000]);
    scheduler.submit(request('large', 9_000, 0));
    scheduler.submit(request('small', 10, 10));
    const [first] = scheduler.fetch('g-d0', []);
    expect(first).toMatchObject({ request: 'large', promptBlocks: 900 });
    scheduler.submit(request('larger', 9_990, 10));
    expect(scheduler.fetch('g-d0', []).map(({ request: name }) => name)).toEqual([]);
  });
});
