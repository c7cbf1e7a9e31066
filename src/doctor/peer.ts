/** Two hosts beside each other: what would keep them from joining, or slow what they send. */
import { readFileSync } from 'node:fs';
import { hostname } from 'node:os';
import type { HostView } from '../host-view/index.js';
import { qosClassNames, type QosDescription } from '../qos/index.js';
import { isActive, lookAt, type Finding, type HostPort, type Severity } from './check.js';
import { readCounters, type Counters } from './counters.js';

/** Of one RDMA port; JSON. */
export interface PortSummary {
  readonly device: string;
  readonly port: number;
  readonly linkLayer: string;
  readonly mtuBytes: number | null;
  /** "400 Gb/sec (4X NDR)". */
  readonly rate: string | null;
  /** The best one. */
  readonly gid: { readonly gid: string; readonly type: string } | null;
}

export interface HostSummary {
  readonly name: string;
  readonly version: string;
  readonly timeMs: number;
  /** Active ones. */
  readonly ports: readonly PortSummary[];
  readonly classes: Readonly<Record<string, { readonly serviceLevel: number; readonly dscp: number }>>;
}

export function summarise(view: HostView, description: QosDescription): HostSummary {
  const { devices } = lookAt(view, { description });
  const text = readFileSync(new URL('../../package.json', import.meta.url), 'utf8');
  const classes = qosClassNames.map((name) => {
    const { serviceLevel, dscp } = description.classes[name];
    return [name, { serviceLevel, dscp }] as const;
  });
  return {
    name: hostname(),
    version: (JSON.parse(text) as { version: string }).version,
    timeMs: Date.now(),
    ports: devices.flatMap(({ name, ports }) =>
      ports.filter(isActive).map((port) => portSummary(view, name, port)),
    ),
    classes: Object.fromEntries(classes),
  };
}

function portSummary(view: HostView, device: string, port: HostPort): PortSummary {
  const [best] = port.gids;
  return {
    ...{ device, port: port.port, linkLayer: port.linkLayer, mtuBytes: port.mtuBytes },
    rate: view.read(`${port.folder}/rate`).text,
    gid: best === undefined || best.rank === null ? null : { gid: best.gid, type: best.type },
  };
}

/** Counters of a device's ports, added up. */
export function deviceCounters(view: HostView, description: QosDescription, device: string): Counters {
  const sum: Record<string, number> = {};
  for (const { name, ports } of lookAt(view, { description }).devices) {
    if (name !== device) continue;
    for (const port of ports)
      for (const [counter, value] of Object.entries(readCounters(view, port.folder)))
        sum[counter] = (sum[counter] ?? 0) + value;
  }
  return sum;
}

export const peerChecks = [
  {
    id: 'peer-version',
    why: 'Engines of different releases may not speak the same protocol; the handshake then refuses.',
    remedy: 'The same release on both hosts',
  },
  {
    id: 'peer-link-layer',
    why: 'InfiniBand and RoCE ports cannot reach each other.',
    remedy: 'Choose devices of one fabric on both hosts (`device` of the transport)',
  },
  {
    id: 'peer-gid',
    why: 'Both sides must use the same kind of GID: RoCE v1 and v2, IPv4 and IPv6 do not mix.',
    remedy: 'Addresses of one family on both network devices, or `gidIndex` by hand',
  },
  {
    id: 'peer-mtu',
    why: 'The smaller path MTU is used by both; where a side takes the larger by hand, every large packet is lost.',
    remedy: 'The same MTU on both network devices and every switch between',
  },
  {
    id: 'peer-rate',
    why: 'The slower side fills its switch’s buffers when the faster one sends: pauses spread to others.',
    remedy: 'The same link speed; see link-width and link-speed of the slower host',
  },
  {
    id: 'peer-classes',
    why: 'A class that has another service level or DSCP on one side is in another queue on its way back.',
    remedy: 'One description (`--classes`) on all hosts',
  },
  {
    id: 'peer-clock',
    why: 'Ages of blocks in a shared store are times of files: a host whose clock is behind has its blocks evicted first.',
    remedy: 'chrony or PTP on both hosts (`chronyc tracking`)',
  },
  {
    id: 'peer-probe',
    why: 'A second of writes and reads in class kv shows whether the path works.',
    remedy: 'By its message: the checks of both hosts, routes and firewalls (UDP port 4791)',
  },
  {
    id: 'peer-counters',
    why: 'Error counters that grow during the probe are of this path, now, whatever they were since boot.',
    remedy: 'By counter: cable, PFC, congestion, a slow receiver',
  },
] as const satisfies readonly { id: string; why: string; remedy: string }[];

export type PeerCheckId = (typeof peerChecks)[number]['id'];

export function peerFinding(id: PeerCheckId, severity: Severity, found: string, remedy?: string): Finding {
  const check = peerChecks.find((one) => one.id === id)!;
  return { id, severity, found, why: check.why, remedy: severity === 'ok' ? null : (remedy ?? check.remedy) };
}

export interface ClockOffset {
  readonly offsetMs: number;
  /** Half of the round trip that it was measured with. */
  readonly uncertaintyMs: number;
}

const mostClockOffsetMs = 1000;

/** The ports of both sides that an engine takes without being told: the first active ones. */
export function comparePeers(here: HostSummary, there: HostSummary, clock: ClockOffset): Finding[] {
  const [a, b] = [here.ports[0], there.ports[0]];
  return [
    judged(
      'peer-version',
      here.version !== there.version,
      `${here.version} here, ${there.version} there`,
      'error',
    ),
    ...(a === undefined || b === undefined ? [withoutPort(a === undefined, there)] : comparePorts(a, b)),
    compareClasses(here, there),
    compareClocks(clock),
  ];
}

function withoutPort(isHere: boolean, there: HostSummary): Finding {
  return peerFinding(
    'peer-link-layer',
    'error',
    `there is no active port ${isHere ? 'here' : `at ${there.name}`}`,
  );
}

function judged(id: PeerCheckId, isWrong: boolean, found: string, severity: Severity): Finding {
  return peerFinding(id, isWrong ? severity : 'ok', found);
}

function comparePorts(here: PortSummary, there: PortSummary): Finding[] {
  type Fact = (port: PortSummary) => string | number | null;
  const both = (of: Fact): string =>
    `${here.device} ${of(here) ?? 'unknown'} here, ${there.device} ${of(there) ?? 'unknown'} there`;
  const differ = (of: Fact): boolean => {
    const [a, b] = [of(here), of(there)];
    return a !== null && b !== null && a !== b;
  };
  const kind = ({ gid, linkLayer }: PortSummary): string | null =>
    gid === null ? null : linkLayer === 'infiniband' ? 'ib' : `${gid.type} ${familyOf(gid.gid)}`;
  const layer = ({ linkLayer }: PortSummary): string => linkLayer;
  const mtu = ({ mtuBytes }: PortSummary): number | null => mtuBytes;
  const rate = (port: PortSummary): string | null => port.rate;
  const noGid = here.gid === null || there.gid === null;
  return [
    judged('peer-link-layer', differ(layer), both(layer), 'error'),
    judged('peer-gid', noGid || differ(kind), both(kind), 'error'),
    judged('peer-mtu', differ(mtu), `path MTU: ${both(mtu)}`, 'warning'),
    judged('peer-rate', differ(rate), both(rate), 'warning'),
  ];
}

const familyOf = (gid: string): string =>
  /^(0000:){5}ffff:/i.test(gid) ? 'IPv4' : /^fe[89ab]/i.test(gid) ? 'link-local IPv6' : 'IPv6';

function compareClasses(here: HostSummary, there: HostSummary): Finding {
  const names = [...new Set([...Object.keys(here.classes), ...Object.keys(there.classes)])];
  const text = (summary: HostSummary, name: string): string => {
    const one = summary.classes[name];
    return one === undefined ? 'none' : `SL ${one.serviceLevel}, DSCP ${one.dscp}`;
  };
  const different = names.filter((name) => text(here, name) !== text(there, name));
  if (different.length === 0) return peerFinding('peer-classes', 'ok', 'the same classes on both sides');
  const found = different.map((name) => `${name}: ${text(here, name)} here, ${text(there, name)} there`);
  return peerFinding('peer-classes', 'error', found.join('; '));
}

function compareClocks({ offsetMs, uncertaintyMs }: ClockOffset): Finding {
  const certain = Math.abs(offsetMs) - uncertaintyMs;
  const found = `the clocks differ by ${offsetMs.toFixed(0)} ms (± ${uncertaintyMs.toFixed(0)})`;
  return judged('peer-clock', certain > mostClockOffsetMs, found, 'warning');
}
