/** RDMA devices of this machine, from libibverbs where it can be asked and from sysfs for the rest. */
import { DualPathError } from '../errors/index.js';
import { closest } from '../layout/index.js';
import { rankGids, type LinkLayer, type RankedGid } from './gid.js';
import { askLibrary, libraryName, type LibraryDevice, type LibraryPort } from './libibverbs.js';
import { readSysfs, sysfsRoot, type SysfsDevice, type SysfsPort } from './sysfs.js';

export interface RdmaPort {
  readonly port: number;
  readonly state: string;
  readonly linkLayer: LinkLayer;
  /** Active; null: only the library knows it. */
  readonly mtuBytes: number | null;
  readonly lid: number;
  /** Best first. */
  readonly gids: readonly RankedGid[];
}

export interface RdmaDevice {
  readonly name: string;
  readonly guid: string | null;
  readonly pciAddress: string | null;
  /** Whether libibverbs can open it; why not stands in `problem`. */
  readonly usable: boolean;
  readonly problem: string | null;
  readonly ports: readonly RdmaPort[];
}

export interface RdmaDevices {
  /** The name of the library when it was asked, null when it could not be. */
  readonly library: string | null;
  /** Whether the kernel has an RDMA subsystem. */
  readonly kernel: boolean;
  readonly devices: readonly RdmaDevice[];
  /** Why RDMA cannot be used here; null when at least one device has an active port and can be opened. */
  readonly problem: string | null;
}

export interface DiscoveryOptions {
  /** For tests: a stand-in for libibverbs, and another root than /sys/class/infiniband. */
  readonly library?: string;
  readonly sysfs?: string;
}

/** Never throws: what is missing is named in the result. */
export function findRdmaDevices(options: DiscoveryOptions = {}): RdmaDevices {
  const library = options.library ?? libraryName;
  const answer = askLibrary(library);
  const kernel = readSysfs(options.sysfs ?? sysfsRoot);
  const names = new Set([
    ...(answer.devices ?? []).map(({ name }) => name),
    ...(kernel ?? []).map(({ name }) => name),
  ]);
  const devices = [...names].sort().map((name) =>
    merge(
      name,
      answer.problem,
      answer.devices?.find((device) => device.name === name),
      kernel?.find((device) => device.name === name),
    ),
  );
  return {
    library: answer.devices === null ? null : library,
    kernel: kernel !== null,
    devices,
    problem: problemOf(answer.problem, kernel !== null, devices),
  };
}

/**
 * The device with this name, or, without a name, the first that is usable and has an active port.
 * @throws RDMA_UNAVAILABLE when there is none, INVALID_ARGUMENT for a name that is not there (with the nearest that is)
 */
export function selectDevice({ devices, problem }: RdmaDevices, name?: string): RdmaDevice {
  if (name === undefined) {
    const found = devices.find(isReady);
    if (found !== undefined) return found;
    throw new DualPathError('RDMA_UNAVAILABLE', `no RDMA: ${problem ?? 'no device'}`);
  }
  const found = devices.find((device) => device.name === name);
  if (found === undefined) {
    const names = devices.map((device) => device.name);
    if (names.length === 0) throw new DualPathError('RDMA_UNAVAILABLE', `no RDMA: ${problem ?? 'no device'}`);
    const near = closest(name, names);
    throw new DualPathError(
      'INVALID_ARGUMENT',
      `no RDMA device is named '${name}'${near === undefined ? '' : ` (did you mean ${near}?)`}; ` +
        `there are ${names.join(', ')}`,
      { device: name },
    );
  }
  if (!found.usable) throw new DualPathError('RDMA_UNAVAILABLE', `RDMA device '${name}': ${found.problem}`);
  return found;
}

function isReady({ usable, ports }: RdmaDevice): boolean {
  return usable && ports.some(({ state }) => state === 'active');
}

function problemOf(library: string | null, kernel: boolean, devices: readonly RdmaDevice[]): string | null {
  if (library !== null) return library;
  if (devices.length === 0) {
    return kernel
      ? "there is no RDMA device; load its driver (soft-RoCE: 'rdma link add rxe0 type rxe netdev eth0')"
      : 'the kernel has no RDMA subsystem (no /sys/class/infiniband); load ib_uverbs and the driver of the NIC';
  }
  if (devices.some(isReady)) return null;
  const [device] = devices.filter(({ usable }) => usable);
  if (device === undefined) return `no device can be opened: ${devices[0]?.problem}`;
  return `no port is active: port ${device.ports[0]?.port} of ${device.name} is ${device.ports[0]?.state}; check its cable and link`;
}

function merge(
  name: string,
  libraryProblem: string | null,
  opened: LibraryDevice | undefined,
  kernel: SysfsDevice | undefined,
): RdmaDevice {
  const ports = new Set([
    ...(opened?.ports ?? []).map(({ port }) => port),
    ...(kernel?.ports ?? []).map(({ port }) => port),
  ]);
  const missing =
    libraryProblem ?? "libibverbs has no provider for it; install the driver's (Debian: ibverbs-providers)";
  return {
    name,
    guid: opened?.guid ?? kernel?.guid ?? null,
    pciAddress: kernel?.pciAddress ?? null,
    usable: opened !== undefined && opened.ports !== null,
    problem: opened === undefined ? missing : opened.openError,
    ports: [...ports]
      .sort((a, b) => a - b)
      .map((port) =>
        mergePort(
          port,
          opened?.ports?.find((candidate) => candidate.port === port),
          kernel?.ports.find((candidate) => candidate.port === port),
        ),
      ),
  };
}

/** The library knows best, but only sysfs names the network devices. */
function mergePort(port: number, opened: LibraryPort | undefined, kernel: SysfsPort | undefined): RdmaPort {
  const linkLayer = opened?.linkLayer ?? kernel?.linkLayer ?? 'unknown';
  const gids =
    opened?.gids?.map(({ index, gid, type }) => ({
      index,
      gid,
      type,
      netdev: kernel?.gids.find((candidate) => candidate.index === index)?.netdev ?? null,
    })) ??
    kernel?.gids ??
    [];
  return {
    port,
    state: opened?.state ?? kernel?.state ?? 'unknown',
    linkLayer,
    mtuBytes: opened?.mtuBytes ?? null,
    lid: opened?.lid ?? kernel?.lid ?? 0,
    gids: rankGids(gids, linkLayer),
  };
}
