import { afterAll, describe, expect, it } from 'vitest';
import {
  comparePeers,
  counterDeltas,
  diagnosePeer,
  excesses,
  serveDoctor,
  summarise,
  type HostSummary,
  type PortSummary,
} from '../../src/doctor/index.js';
import { defaultQos, parseQos } from '../../src/qos/index.js';
import { HostTree, soundHost } from './host.js';

const tree = new HostTree();
afterAll(() => tree.close());

const roce = ({ ports, ...rest }: HostSummary): HostSummary => ({ ...rest, ports: ports.slice(1) });
const host = roce(summarise(tree.view(soundHost()), defaultQos));
const sameClock = { offsetMs: 0, uncertaintyMs: 1 };

const compared = (there: HostSummary, clock = sameClock): string[] =>
  comparePeers(host, there, clock)
    .filter(({ severity }) => severity !== 'ok')
    .map(({ id, severity, found }) => `${severity} ${id}: ${found}`);
const withPort = (changed: Partial<PortSummary>): HostSummary => ({
  ...host,
  ports: [{ ...host.ports[0]!, ...changed }],
});

describe('two hosts', () => {
  it('that are alike have nothing reported', () => {
    expect(host.ports).toMatchObject([{ device: 'mlx5_1', gid: { type: 'roce-v2' } }]);
    expect(compared(host)).toEqual([]);
  });

  const gid = (text: string, type = 'roce-v2'): Partial<PortSummary> => ({ gid: { gid: text, type } });
  const ipv6 = '2001:0db8:0000:0000:0000:0000:0000:0001';
  const ipv4 = '0000:0000:0000:0000:0000:ffff:0a00:0002';
  it.each([
    ['another release', { ...host, version: '9.9.9' }, /^error peer-version: .* here, 9\.9\.9 there$/],
    ['InfiniBand', withPort({ linkLayer: 'infiniband' }), /^error peer-link-layer: mlx5_1 ethernet here/],
    ['no active port', { ...host, ports: [] }, /^error peer-link-layer: there is no active port at /],
    [
      'RoCE v1',
      withPort(gid(ipv4, 'roce-v1')),
      /^error peer-gid: .*roce-v2 IPv4 here, .*roce-v1 IPv4 there$/,
    ],
    ['IPv6', withPort(gid(ipv6)), /^error peer-gid: .* roce-v2 IPv6 there$/],
    ['no GID', withPort({ gid: null }), /^error peer-gid: .*unknown there$/],
    ['a slower port', withPort({ rate: '100 Gb/sec (4X EDR)' }), /^warning peer-rate: .* 100 Gb\/sec/],
  ])('of which one has %s', (_what, there, message) => {
    expect(compared(there).join('\n')).toMatch(new RegExp(message.source, 'm'));
  });

  it('with other MTUs, where both are known', () => {
    const here = withPort({ mtuBytes: 4096 });
    const ids = (there: HostSummary): string[] =>
      comparePeers(here, there, sameClock).flatMap(({ id, severity }) => (severity === 'ok' ? [] : [id]));
    expect(ids(withPort({ mtuBytes: 1024 }))).toEqual(['peer-mtu']);
    expect(ids(withPort({ mtuBytes: null }))).toEqual([]);
  });

  it('with other classes', () => {
    const other = parseQos({ classes: { kv: { dscp: 8 } } }, 'test');
    const there = roce(summarise(tree.view(soundHost()), other));
    expect(compared(there)).toEqual(['error peer-classes: kv: SL 2, DSCP 10 here, SL 2, DSCP 8 there']);
  });

  it('with clocks that differ by more than a second, for certain', () => {
    expect(compared(host, { offsetMs: -4000, uncertaintyMs: 2 })).toEqual([
      'warning peer-clock: the clocks differ by -4000 ms (± 2)',
    ]);
    expect(compared(host, { offsetMs: 4000, uncertaintyMs: 3500 })).toEqual([]);
  });
});

describe('counters', () => {
  it('are too many beside packets, and a cleared one counts from 0', () => {
    const before = { out_of_sequence: 10, sent_pkts: 1000, rcvd_pkts: 0, rp_cnp_handled: 500 };
    const after = { out_of_sequence: 12, sent_pkts: 101_000, rcvd_pkts: 0, rp_cnp_handled: 3 };
    const deltas = counterDeltas(before, after);
    expect(deltas).toEqual({ out_of_sequence: 2, sent_pkts: 100_000, rcvd_pkts: 0, rp_cnp_handled: 3 });
    expect(excesses(deltas).map(({ name }) => name)).toEqual(['out_of_sequence']);
    expect(excesses({ ...deltas, out_of_sequence: 1 })).toEqual([]);
  });
});

describe('over TCP', () => {
  it('looks at the other host, and says why nothing could be sent', async () => {
    const [view, options] = [tree.view(soundHost()), { description: defaultQos }];
    const [port, { signal }] = [20_000 + (process.pid % 10_000), new AbortController()];
    const served = serveDoctor(view, { ...options, address: '127.0.0.1', port, signal });
    const device = 'mlx5_none';
    const both = await diagnosePeer(view, { ...options, peer: '127.0.0.1', controlPort: port, device });
    await served;
    expect(both.there.counts.error).toBe(0);
    expect(both.there.findings.length).toBeGreaterThan(25);
    const wrong = both.findings.filter(({ severity }) => severity !== 'ok');
    expect(wrong.map(({ id, severity }) => `${severity} ${id}`)).toEqual(['error peer-probe']);
    expect(wrong[0]!.found).toMatch(/no RDMA|mlx5_none/);
  });
});
