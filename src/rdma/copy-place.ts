/** Which NIC carries an engine's copies: the one configured, or the nearest to its GPU on PCI. */
import { DualPathError } from '../errors/index.js';
import { findRdmaDevices, selectDevice, type RdmaDevice, type RdmaDevices } from './discovery.js';
import type { LinkLayer } from './gid.js';
import { pairedNic, pciRoot } from './pairing.js';

export interface CopyPlace {
  readonly device: string;
  readonly port: number;
  /** Undefined on InfiniBand. */
  readonly gidIndex: number | undefined;
  readonly linkLayer: LinkLayer;
  /** Why this one. */
  readonly reason: string;
}

export interface CopyPlaceOptions {
  /** The NIC by name. */
  readonly device?: string;
  /** Of the GPU; left out: HBM is emulated, and is nowhere on PCI. */
  readonly gpuPciAddress?: string;
}

/** @throws RDMA_UNAVAILABLE: there is none that can be told to be the GPU's, or it cannot be used; INVALID_ARGUMENT */
export function findCopyPlace(
  { device, gpuPciAddress }: CopyPlaceOptions,
  found: RdmaDevices = findRdmaDevices(),
  pci: string = pciRoot,
): CopyPlace {
  if (found.problem !== null) throw new DualPathError('RDMA_UNAVAILABLE', `no NIC: ${found.problem}`);
  if (device !== undefined) return placeOn(selectDevice(found, device), 'as configured');
  if (gpuPciAddress === undefined) {
    throw new DualPathError(
      'RDMA_UNAVAILABLE',
      'no NIC: emulated HBM has no place on PCI that one could be near; name a device',
    );
  }
  const usable = found.devices.filter((one) => one.usable && one.ports.some(isActive));
  const nearest = pairedNic(gpuPciAddress, usable, pci);
  if (nearest !== null) return placeOn(selectDevice(found, nearest.device), nearest.reason);
  throw new DualPathError(
    'RDMA_UNAVAILABLE',
    `no NIC: sysfs shows none with a place on PCI beside GPU ${gpuPciAddress}; name a device`,
  );
}

const isActive = ({ state }: RdmaDevice['ports'][number]): boolean => state === 'active';

function placeOn({ name, ports }: RdmaDevice, reason: string): CopyPlace {
  const port = ports.find(isActive);
  if (port === undefined) {
    throw new DualPathError('RDMA_UNAVAILABLE', `no NIC: '${name}' has no active port; take its link up`);
  }
  const gid = port.gids.find(({ rank }) => rank !== null)?.index;
  const gidIndex = port.linkLayer === 'infiniband' ? undefined : gid;
  return { device: name, port: port.port, gidIndex, linkLayer: port.linkLayer, reason };
}
