import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { gidAt, rankGids, type Gid, type GidType } from '../../src/rdma/index.js';

const gid = (index: number, text: string, type: GidType): Gid => ({ index, gid: text, type, netdev: 'eth0' });
const linkLocal = 'fe80:0000:0000:0000:5054:00ff:fe12:3456';
const ipv4 = '0000:0000:0000:0000:0000:ffff:0a4d:0001';
const global = '2001:0db8:0000:0000:0000:0000:0000:0001';

describe('rankGids', () => {
  it('puts a routable RoCE v2 address before link-local ones and before RoCE v1, and says why', () => {
    const ranked = rankGids(
      [
        gid(0, linkLocal, 'roce-v1'),
        gid(1, linkLocal, 'roce-v2'),
        gid(2, ipv4, 'roce-v1'),
        gid(3, ipv4, 'roce-v2'),
        gid(4, global, 'roce-v2'),
      ],
      'ethernet',
    );
    expect(ranked.map(({ index }) => index)).toEqual([3, 4, 1, 2, 0]);
    expect(ranked.map(({ rank }) => rank)).toEqual([1, 2, 3, 4, 5]);
    expect(ranked[0]?.reason).toBe('RoCE v2, IPv4 10.77.0.1');
    expect(ranked[2]?.reason).toBe('RoCE v2, link-local IPv6: reaches its own link only');
    expect(ranked[3]?.reason).toBe('RoCE v1 (no IP header: no routing, no DSCP), IPv4 10.77.0.1');
  });

  it('takes an entry that does not say its type after RoCE v2 and before RoCE v1', () => {
    const ranked = rankGids(
      [gid(0, ipv4, 'roce-v1'), gid(1, ipv4, 'unknown'), gid(2, linkLocal, 'roce-v2')],
      'ethernet',
    );
    expect(ranked.map(({ index }) => index)).toEqual([2, 1, 0]);
  });

  it.each([
    ['0000:0000:0000:0000:0000:0000:0000:0000', 'empty'],
    ['0000:0000:0000:0000:0000:ffff:7f00:0001', "IPv4 127.0.0.1 is no host's address"],
    ['ff02:0000:0000:0000:0000:0000:0000:0001', 'multicast'],
    ['0000:0000:0000:0000:0000:0000:0000:0001', 'loopback'],
    ['10.0.0.1', 'malformed'],
  ])('does not use %s: %s', (text, reason) => {
    const ranked = rankGids([gid(0, text, 'roce-v2'), gid(1, linkLocal, 'roce-v2')], 'ethernet');
    expect(ranked.map(({ index }) => index)).toEqual([1, 0]);
    expect(ranked[1]).toMatchObject({ rank: null, reason });
    expect(() => gidAt(ranked, 0)).toThrow(/GID index 0 cannot be used: .*usable ones, best first: 1/);
  });

  it('takes the port GID on InfiniBand, link-local as it is', () => {
    const ranked = rankGids([gid(1, global, 'ib'), gid(0, linkLocal, 'ib')], 'infiniband');
    expect(ranked.map(({ index }) => index)).toEqual([0, 1]);
  });

  it('names the indices there are for one out of range', () => {
    const ranked = rankGids([gid(3, ipv4, 'roce-v2')], 'ethernet');
    expect(gidAt(ranked, 3).rank).toBe(1);
    expect(() => gidAt(ranked, 9)).toThrow(
      /GID index 9 is empty or out of range; usable ones, best first: 3/,
    );
  });

  it('keeps every entry once, whatever the order it is given in', () => {
    const entry = fc.record({
      gid: fc.constantFrom(linkLocal, ipv4, global, '0000:0000:0000:0000:0000:0000:0000:0000'),
      type: fc.constantFrom<GidType>('roce-v1', 'roce-v2', 'unknown'),
    });
    fc.assert(
      fc.property(fc.array(entry, { maxLength: 12 }), fc.infiniteStream(fc.nat()), (entries, numbers) => {
        const table = entries.map((each, index) => ({ ...each, index, netdev: null }));
        const shuffled = table
          .map((each) => ({ each, at: numbers.next().value }))
          .sort((a, b) => a.at - b.at)
          .map(({ each }) => each);
        const ranked = rankGids(shuffled, 'ethernet');
        expect(ranked).toEqual(rankGids(table, 'ethernet'));
        expect(ranked.map(({ index }) => index).sort((a, b) => a - b)).toEqual(
          table.map(({ index }) => index),
        );
        const usable = ranked.filter(({ rank }) => rank !== null);
        expect(usable.map(({ rank }) => rank)).toEqual(usable.map((_, i) => i + 1));
      }),
    );
  });
});
