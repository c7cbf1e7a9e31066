/** An engine's way into RDMA: which device, port and GIDs, and the transport over them. */
import { callNative, native, type NativeStubFabric } from '../binding/index.js';
import { DualPathError } from '../errors/index.js';
import type { OpenTransport } from '../traffic/index.js';
import { trafficClasses, type TrafficClass } from './classes.js';
import type { ConnectionTableOptions } from './connection-table.js';
import { findRdmaDevices, selectDevice, type RdmaDevice } from './discovery.js';
import { gidAt } from './gid.js';
import type { PathExchange } from './path-messages.js';
import { RdmaTransport } from './transport.js';
import type { OutageEnded } from './outage-watch.js';

export interface RdmaPlace {
  readonly device: string;
  readonly port: number;
  /** Best first; none: InfiniBand within a subnet. */
  readonly gidIndexes: readonly number[];
}

export interface RdmaOptions {
  /** Left out: the first device with an active port. */
  readonly device?: string;
  /** Left out: the first active one. */
  readonly port?: number;
  /** Left out: the GIDs by rank, the next one where one does not work. */
  readonly gidIndex?: number;
}

/** @throws RDMA_UNAVAILABLE, INVALID_ARGUMENT (names what there is) */
export function findRdmaPlace(options: RdmaOptions = {}): RdmaPlace {
  const found = findRdmaDevices();
  const isActive = ({ usable, ports }: RdmaDevice): boolean =>
    usable && ports.some(({ state }) => state === 'active');
  const name = options.device ?? found.devices.find(isActive)?.name;
  if (name === undefined) {
    throw new DualPathError('RDMA_UNAVAILABLE', `no RDMA: ${found.problem}`);
  }
  const device = selectDevice(found, name);
  const port =
    options.port === undefined
      ? (device.ports.find(({ state }) => state === 'active') ?? device.ports[0])
      : device.ports.find((candidate) => candidate.port === options.port);
  if (port === undefined) {
    throw new DualPathError(
      'INVALID_ARGUMENT',
      `RDMA device '${name}' has no port ${options.port}; it has ${device.ports.map((one) => one.port).join(', ')}`,
    );
  }
  if (options.gidIndex !== undefined) {
    return { device: name, port: port.port, gidIndexes: [gidAt(port.gids, options.gidIndex).index] };
  }
  const usable = port.gids.filter(({ rank }) => rank !== null).map(({ index }) => index);
  if (usable.length === 0 && port.linkLayer !== 'infiniband') {
    throw new DualPathError(
      'RDMA_UNAVAILABLE',
      `port ${port.port} of RDMA device '${name}' has no usable GID; give its network device an address`,
    );
  }
  return { device: name, port: port.port, gidIndexes: usable };
}

export interface RdmaTransportSettings {
  readonly place: RdmaPlace;
  readonly name: string;
  readonly identity: string;
  readonly exchange: PathExchange;
  readonly classes?: Readonly<Record<string, Partial<TrafficClass>>>;
  /** No other engine of this host may have the port; default true. */
  readonly exclusive?: boolean;
  readonly connections?: Omit<ConnectionTableOptions, 'passive'>;
  readonly onOutage?: OutageEnded;
  /** Emulated devices, for tests. */
  readonly provider?: NativeStubFabric;
}

/** For TrafficManager. @throws when it is opened: RDMA_UNAVAILABLE, MEMORY_LIMIT, CAPACITY_EXHAUSTED (a port that is taken) */
export function rdmaTransport(settings: RdmaTransportSettings): OpenTransport {
  const { place, name, identity, exchange, exclusive = true, connections, onOutage, provider } = settings;
  const classes = trafficClasses(settings.classes);
  const { device, port, gidIndexes } = place;
  const [gidIndex] = gidIndexes;
  return (engine) => {
    const verbs = callNative(
      () =>
        new (native().VerbsTransport)({
          ...{ engine: engine.handle, device, port, exclusive },
          ...(gidIndex === undefined ? {} : { gidIndex }),
          ...(provider === undefined ? {} : { provider }),
          ...(connections?.maxConnections === undefined
            ? {}
            : { maxConnections: connections.maxConnections }),
        }),
    );
    return new RdmaTransport({
      ...{ name, identity, exchange, classes, gidIndexes },
      runtime: engine.runtime,
      native: verbs,
      call: callNative,
      namePeer: (id, peer) => engine.namePeer(id, `'${peer}' over verbs, ${device}/${port}, class kv`),
      ...(connections === undefined ? {} : { connections }),
      ...(onOutage === undefined ? {} : { onOutage }),
    });
  };
}
