/** Which GID of a port to use, and why: a pure function of the table. */
import { DualPathError } from '../errors/index.js';

export type LinkLayer = 'infiniband' | 'ethernet' | 'unknown';
export type GidType = 'ib' | 'roce-v1' | 'roce-v2' | 'unknown';

export interface Gid {
  readonly index: number;
  /** Eight groups of four hexadecimal digits, as sysfs writes it. */
  readonly gid: string;
  readonly type: GidType;
  /** The network device behind it (RoCE). */
  readonly netdev: string | null;
}

export interface RankedGid extends Gid {
  /** 1 is the best; null: not to be used. */
  readonly rank: number | null;
  readonly reason: string;
}

type Scope = 'routable' | 'private' | 'link' | 'unusable';

interface Judged extends Gid {
  /** Less is better; null: not to be used. */
  readonly order: number | null;
  readonly reason: string;
}

/**
 * The table, best first, each entry with the reason for its place. On Ethernet RoCE v2 comes before what does not
 * say its type and before RoCE v1 (which has no IP header: no routing and no DSCP), and addresses that are
 * routed come before those of one link. Entries that cannot be used come last, without a rank. When a connection cannot be
 * made through one, the next is to be tried.
 */
export function rankGids(gids: readonly Gid[], linkLayer: LinkLayer): RankedGid[] {
  const judged = gids.map((gid) => (linkLayer === 'infiniband' ? judgeInfiniBand(gid) : judgeRoce(gid)));
  judged.sort((a, b) => (a.order ?? Infinity) - (b.order ?? Infinity) || a.index - b.index);
  return judged.map(({ order, ...gid }, place) => ({ ...gid, rank: order === null ? null : place + 1 }));
}

/** The entry with this index. INVALID_ARGUMENT names the indices there are. */
export function gidAt(ranked: readonly RankedGid[], index: number): RankedGid {
  const found = ranked.find((gid) => gid.index === index);
  if (found !== undefined && found.rank !== null) return found;
  const usable = ranked.filter(({ rank }) => rank !== null).map((gid) => gid.index);
  const why = found === undefined ? 'is empty or out of range' : `cannot be used: ${found.reason}`;
  throw new DualPathError(
    'INVALID_ARGUMENT',
    `GID index ${index} ${why}; usable ones, best first: ${usable.join(', ') || 'none'}`,
    { gid_index: index },
  );
}

function judgeInfiniBand(gid: Gid): Judged {
  const { scope } = scopeOf(gid.gid);
  if (scope === 'unusable') return { ...gid, order: null, reason: 'empty' };
  return gid.index === 0
    ? { ...gid, order: 0, reason: 'the port GID' }
    : { ...gid, order: 1, reason: 'an alias of the port GID' };
}

function judgeRoce(gid: Gid): Judged {
  const { scope, text } = scopeOf(gid.gid);
  if (scope === 'unusable') return { ...gid, order: null, reason: text };
  const scopes: Record<Exclude<Scope, 'unusable'>, number> = { routable: 0, private: 1, link: 2 };
  const within = scopes[scope];
  switch (gid.type) {
    case 'roce-v2':
      return { ...gid, order: within, reason: `RoCE v2, ${text}` };
    case 'unknown':
      return { ...gid, order: 10 + within, reason: `type unknown, ${text}` };
    case 'roce-v1':
    case 'ib':
      return {
        ...gid,
        order: 20 + within,
        reason: `RoCE v1 (no IP header: no routing, no DSCP), ${text}`,
      };
    default:
      throw new DualPathError('INTERNAL', 'a GID type that is not one');
  }
}

function scopeOf(gid: string): { scope: Scope; text: string } {
  const groups = gid.split(':').map((group) => parseInt(group, 16));
  if (groups.length !== 8 || groups.some((group) => !(group >= 0 && group <= 0xffff))) {
    return { scope: 'unusable', text: 'malformed' };
  }
  const [first = 0] = groups;
  if (groups.every((group) => group === 0)) return { scope: 'unusable', text: 'empty' };
  if (groups.slice(0, 5).every((group) => group === 0) && groups[5] === 0xffff) return ipv4Scope(groups);
  if (groups.slice(0, 7).every((group) => group === 0)) return { scope: 'unusable', text: 'loopback' };
  if (first >= 0xff00) return { scope: 'unusable', text: 'multicast' };
  if ((first & 0xffc0) === 0xfe80)
    return { scope: 'link', text: 'link-local IPv6: reaches its own link only' };
  if ((first & 0xfe00) === 0xfc00) return { scope: 'private', text: 'unique local IPv6' };
  return { scope: 'routable', text: 'global IPv6' };
}

function ipv4Scope(groups: readonly number[]): { scope: Scope; text: string } {
  const [high = 0, low = 0] = groups.slice(6);
  const bytes = [high >> 8, high & 0xff, low >> 8, low & 0xff];
  const address = bytes.join('.');
  if (bytes[0] === 127 || bytes[0] === 0 || (bytes[0] ?? 0) >= 224) {
    return { scope: 'unusable', text: `IPv4 ${address} is no host's address` };
  }
  if (bytes[0] === 169 && bytes[1] === 254) {
    return { scope: 'link', text: `link-local IPv4 ${address}: reaches its own link only` };
  }
  return { scope: 'routable', text: `IPv4 ${address}` };
}
