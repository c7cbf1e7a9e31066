/**
 * `qos apply`, `check` and `remove` where there is a soft-RoCE device, and what the queues keep from the inference class;
 * `doctor --peer` between two hosts.
 */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { cli, runOnHosts, type HostsRun } from './hosts.js';

const bench = `${cli} bench qos --rate-mbit 20 --samples 200 --samples-without-classes 15 --rounds 1 --compare none --json`;
const peer = '10.77.0.2';
const steps = [
  `${cli} doctor --peer ${peer} --json >$DUALPATH_OUT/peer.json; echo "peer: $?"`,
  `${cli} qos check --json >$DUALPATH_OUT/before.json; echo "before: $?"`,
  `${cli} qos apply --dev eth0 --rate-mbit 80 --json >$DUALPATH_OUT/apply.json`,
  `${cli} qos check --json >$DUALPATH_OUT/applied.json; echo "applied: $?"`,
  `${cli} qos apply --dev eth0; echo "again: $?"`,
  `tc filter delete dev eth0 parent da1: protocol ip prio 1`,
  `${cli} qos check --json >$DUALPATH_OUT/damaged.json; echo "damaged: $?"`,
  `${cli} qos remove --dev eth0 --json >$DUALPATH_OUT/remove.json`,
  `tc qdisc add dev eth0 root handle 7: tbf rate 80mbit burst 16k limit 8m`,
  `${cli} qos apply --dev eth0; echo "foreign: $?"`,
  `tc qdisc delete dev eth0 root`,
];

interface Check {
  readonly looked: readonly string[];
  readonly differences: readonly { what: string; wanted: string; found: string }[];
  readonly unknown: readonly object[];
}

let run: HostsRun;
beforeAll(async () => {
  run = await runOnHosts([
    [...steps, `${bench} >$DUALPATH_OUT/qos.json`].join('\n'),
    `${cli} doctor --serve --bind ${peer}; ${bench}`,
  ]);
  expect(run.statuses, run.output.join('\n')).toEqual([0, 0]);
});
afterAll(() => run.remove());

const check = (name: string): Check => run.json(`${name}.json`) as Check;

describe('qos on soft-RoCE', () => {
  it('finds no queues before apply, and everything as described after it', () => {
    expect(run.output[0]).toContain('before: 1');
    expect(check('before').differences).toMatchObject([{ what: 'queues', wanted: 'one for each class' }]);
    expect(run.output[0]).toContain('applied: 0');
    expect(check('applied')).toEqual({ looked: ['eth0'], differences: [], unknown: [] });
  });

  it('applies again over its own, refuses what somebody else has set, removes what it made', () => {
    expect(run.output[0]).toContain('again: 0');
    expect(run.output[0]).toContain('foreign: 2');
    expect(run.output[0]).toMatch(/'tbf' that this command did not make/);
    expect(run.json('remove.json')).toEqual({ netdev: 'eth0', removed: true });
  });

  it('finds filters that have gone', () => {
    expect(run.output[0]).toContain('damaged: 1');
    expect(check('damaged').differences.map(({ what }) => what)).toEqual([
      'queue of class inference (DSCP 26)',
      'queue of class kv (DSCP 10)',
      'queue of class control (DSCP 46)',
    ]);
  });

  // On idle machines some 30; a busy one delays both cases by its own work.
  it('keeps a flood of KV-Cache from the inference class, and KV-Cache has the rest of the link', () => {
    const figures = run.json('qos.json') as Record<string, Record<string, number>> & {
      link_bytes_per_s: number;
    };
    const p50 = (name: string): number => figures[name]!['p50_us']!;
    expect(p50('flood_without_classes') / p50('flood_with_classes')).toBeGreaterThan(3);
    expect(figures['flood_with_classes']!['kv_bytes_per_s']).toBeGreaterThan(0.5 * figures.link_bytes_per_s);
  });
});

describe('doctor --peer', () => {
  it('compares both hosts, moves bytes and finds no error', () => {
    const report = run.json('peer.json') as {
      findings: readonly { id: string; severity: string; found: string }[];
      peer: { counts: Record<string, number> };
    };
    expect(run.output[0], JSON.stringify(report)).toContain('peer: 0');
    const between = report.findings.filter(({ id }) => id.startsWith('peer-'));
    // Two emulated hosts of one core each lose and repeat packets: the counters may say so, and clocks may differ.
    const certain = between.filter(({ id }) => id !== 'peer-counters' && id !== 'peer-clock');
    expect(certain.map(({ id, severity }) => `${id} ${severity}`)).toEqual([
      'peer-version ok',
      'peer-link-layer ok',
      'peer-gid ok',
      'peer-mtu ok',
      'peer-rate ok',
      'peer-classes ok',
      'peer-probe ok',
    ]);
    expect(between.find(({ id }) => id === 'peer-probe')!.found).toMatch(/^rxe0 moved [1-9]\d+ bytes/);
    expect(between.some(({ id }) => id === 'peer-counters')).toBe(true);
    expect(report.peer.counts['error']).toBe(0);
  });
});
