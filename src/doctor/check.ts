/** What a check is and what it finds. */
import { networkOf, pciAddressOf, type HostView } from '../host-view/index.js';
import type { QosDescription } from '../qos/index.js';
import { rankGids, readSysfs, type LibraryPort, type RankedGid, type SysfsPort } from '../rdma/index.js';

/** 'error': does not work; 'warning': slower or less safe than it could be; 'unknown': could not be seen from here. */
export const severities = ['ok', 'note', 'warning', 'error', 'unknown'] as const;
export type Severity = (typeof severities)[number];

export interface Problem {
  readonly severity: Exclude<Severity, 'ok'>;
  readonly found: string;
  /** A command or setting, or how to see what could not be seen. */
  readonly remedy: string;
}

export interface Finding {
  /** The check's. */
  readonly id: string;
  readonly severity: Severity;
  readonly found: string;
  readonly why: string;
  /** null where nothing is to be done. */
  readonly remedy: string | null;
}

export interface Check {
  readonly id: string;
  /** What it looks at. */
  readonly looksAt: string;
  /** Why it matters. */
  readonly why: string;
  /** In general, for the documentation; a problem has the exact one. */
  readonly remedy: string;
  readonly run: (host: Host) => readonly Problem[];
}

/** An RDMA device of the kernel, with what the library adds. */
export interface HostDevice {
  readonly name: string;
  /** Soft-RoCE: no firmware, no PCI, no queues of its own. */
  readonly isSoftware: boolean;
  readonly pciAddress: string | null;
  readonly netdevs: readonly string[];
  readonly folder: string;
  readonly ports: readonly HostPort[];
}

export interface HostPort extends Omit<SysfsPort, 'gids'> {
  readonly folder: string;
  /** Best first. */
  readonly gids: readonly RankedGid[];
  /** Active path MTU; null: only the library knows. */
  readonly mtuBytes: number | null;
}

/** What checks look at: the view, and what most of them need of it. */
export interface Host {
  readonly view: HostView;
  readonly devices: readonly HostDevice[];
  readonly kernel: readonly [major: number, minor: number];
  readonly description: QosDescription;
  /** Folder of a block store; without one its checks are left out. */
  readonly store: string | undefined;
}

export interface HostOptions {
  readonly description: QosDescription;
  readonly store?: string;
}

export function lookAt(view: HostView, { description, store }: HostOptions): Host {
  const [, major = '0', minor = '0'] =
    /^(\d+)\.(\d+)/.exec(view.read('/proc/sys/kernel/osrelease').text ?? '') ?? [];
  return { view, devices: devicesOf(view), kernel: [Number(major), Number(minor)], description, store };
}

export const isOlder = ([major, minor]: Host['kernel'], than: readonly [number, number]): boolean =>
  major < than[0] || (major === than[0] && minor < than[1]);

function devicesOf(view: HostView): HostDevice[] {
  const { devices: opened } = view.probes.library();
  return (readSysfs(`${view.root}/sys/class/infiniband`) ?? []).map(({ name, ports }) => {
    const folder = `/sys/class/infiniband/${name}`;
    const { netdevs, isSoftware } = networkOf(view, name);
    const asked = opened?.find((device) => device.name === name)?.ports ?? [];
    return {
      ...{ name, netdevs, isSoftware, folder },
      pciAddress: pciAddressOf(view, folder),
      ports: ports.map((port) => portOf(port, folder, asked)),
    };
  });
}

function portOf(port: SysfsPort, folder: string, asked: readonly LibraryPort[]): HostPort {
  const known = asked.find((one) => one.port === port.port);
  return {
    ...port,
    folder: `${folder}/ports/${port.port}`,
    gids: rankGids(port.gids, port.linkLayer),
    mtuBytes: known?.mtuBytes ?? null,
  };
}

export const isActive = ({ state }: HostPort): boolean => state === 'active';
export const hardwareOf = ({ devices }: Host): HostDevice[] => devices.filter((one) => !one.isSoftware);
