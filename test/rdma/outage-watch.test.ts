import { describe, expect, it } from 'vitest';
import { OutageWatch, stalledMs, type WayNow } from '../../src/rdma/outage-watch.js';

const moving: WayNow = {
  peer: 'p',
  ready: true,
  held: true,
  connection: 1,
  completions: 0,
  inFlightBytes: 100,
  cause: undefined,
};

/** Outages, given what was seen every 100 ms. */
function outages(steps: readonly Partial<WayNow>[]): number[] {
  const heard: number[] = [];
  const watch = new OutageWatch((_, outageMs) => heard.push(outageMs));
  steps.forEach((step, i) => watch.look(i * 100, [{ ...moving, ...step }]));
  return heard;
}

describe('an outage', () => {
  it('is when requests are in flight and none completes', () => {
    const stuck = Array.from({ length: 5 }, () => ({ completions: 3 }));
    expect(outages([...stuck, { completions: 4 }])).toEqual([500]);
    expect(stalledMs).toBeLessThan(500);
  });

  it('says why the connection broke, where it did', () => {
    const heard: (string | undefined)[] = [];
    const watch = new OutageWatch((_peer, _outageMs, cause) => heard.push(cause));
    const look = (atMs: number, step: Partial<WayNow>): void =>
      watch.look(atMs, [{ ...moving, cause: 'of long ago', ...step }]);
    look(0, {});
    look(500, {});
    look(600, { completions: 1 });
    look(700, { completions: 1, ready: false, cause: 'no answer' });
    look(1200, { connection: 2, completions: 0, cause: 'no answer' });
    look(1300, { connection: 2, completions: 1, cause: 'no answer' });
    expect(heard).toEqual([undefined, 'no answer']);
  });

  it('is not when they complete, nor when there is nothing to send', () => {
    expect(outages(Array.from({ length: 9 }, (_, i) => ({ completions: i })))).toEqual([]);
    expect(outages(Array.from({ length: 9 }, () => ({ inFlightBytes: 0 })))).toEqual([]);
  });

  it('is when the connection is broken and wanted; it lasts until the new one has carried something', () => {
    const broken = Array.from({ length: 4 }, () => ({ ready: false }));
    const rebuilt = { connection: 2, completions: 0 };
    expect(
      outages([{ completions: 7 }, ...broken, rebuilt, rebuilt, { ...rebuilt, completions: 1 }]),
    ).toEqual([700]);
    expect(outages([{ completions: 7 }, ...broken, { ...rebuilt, inFlightBytes: 0 }])).toEqual([500]);
  });

  it('nobody waits for is none', () => {
    const unwanted = { ready: false, held: false };
    expect(outages([{}, { ready: false }, ...Array.from({ length: 5 }, () => unwanted), {}])).toEqual([]);
  });
});
