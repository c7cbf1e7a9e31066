/** What the kernel says of RDMA devices in sysfs. No PCI path is needed: soft-RoCE has none. */
import { existsSync, readFileSync, readdirSync, readlinkSync } from 'node:fs';
import { basename, join } from 'node:path';
import type { Gid, GidType, LinkLayer } from './gid.js';

export const sysfsRoot = '/sys/class/infiniband';

export interface SysfsPort {
  readonly port: number;
  readonly state: string;
  readonly linkLayer: LinkLayer;
  readonly lid: number;
  readonly gids: readonly Gid[];
}

export interface SysfsDevice {
  readonly name: string;
  readonly guid: string | null;
  /** Of the NIC, such as 0000:3b:00.0; null where there is none. */
  readonly pciAddress: string | null;
  readonly ports: readonly SysfsPort[];
}

const maxDevices = 64;
const maxGids = 256;

/** null: the kernel has no RDMA subsystem. */
export function readSysfs(root: string = sysfsRoot): SysfsDevice[] | null {
  if (!existsSync(root)) return null;
  return readdirSync(root)
    .sort()
    .slice(0, maxDevices)
    .map((name) => {
      const folder = join(root, name);
      return {
        name,
        guid: text(join(folder, 'node_guid')),
        pciAddress: pciAddress(folder),
        ports: numbered(join(folder, 'ports')).map((port) =>
          readPort(join(folder, 'ports', String(port)), port),
        ),
      };
    });
}

function readPort(folder: string, port: number): SysfsPort {
  const layer = text(join(folder, 'link_layer'))?.toLowerCase();
  const linkLayer = layer === 'infiniband' || layer === 'ethernet' ? layer : 'unknown';
  return {
    port,
    // "4: ACTIVE"
    state: (text(join(folder, 'state')) ?? 'unknown').replace(/^\d+: */, '').toLowerCase(),
    linkLayer,
    lid: Number(text(join(folder, 'lid')) ?? 0),
    gids: readGids(folder, linkLayer),
  };
}

function readGids(folder: string, linkLayer: LinkLayer): Gid[] {
  const gids: Gid[] = [];
  for (const index of numbered(join(folder, 'gids')).slice(0, maxGids)) {
    const gid = text(join(folder, 'gids', String(index)));
    if (gid === null || /^[0:]*$/.test(gid)) continue;
    const netdev = text(join(folder, 'gid_attrs/ndevs', String(index)));
    const type = text(join(folder, 'gid_attrs/types', String(index)));
    gids.push({ index, gid, type: linkLayer === 'infiniband' ? 'ib' : typeOf(type), netdev });
  }
  return gids;
}

function typeOf(kernelName: string | null): GidType {
  if (kernelName === 'RoCE v2') return 'roce-v2';
  return kernelName === 'IB/RoCE v1' ? 'roce-v1' : 'unknown';
}

/** Numbers that are names in the folder, ascending. */
function numbered(folder: string): number[] {
  if (!existsSync(folder)) return [];
  return readdirSync(folder)
    .filter((name) => /^\d+$/.test(name))
    .map(Number)
    .sort((a, b) => a - b);
}

/** The first line, or null: unset entries of the GID table cannot be read. */
function text(path: string): string | null {
  try {
    return readFileSync(path, 'utf8').trim();
  } catch {
    return null;
  }
}

function pciAddress(folder: string): string | null {
  try {
    const name = basename(readlinkSync(join(folder, 'device')));
    return /^[0-9a-f]{4,}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]$/.test(name) ? name : null;
  } catch {
    return null;
  }
}
