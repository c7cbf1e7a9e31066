/** RDMA's control plane: which device, port, GID and traffic class, and when to connect. */
export {
  classShares,
  guaranteedShares,
  laneShares,
  paperArbitration,
  portArbitration,
  type Arbitration,
  type ClassShares,
  type LaneWeight,
  type PortArbitration,
} from './arbitration.js';
export {
  addressFields,
  defaultTrafficClasses,
  trafficClasses,
  trafficClassNames,
  type TrafficClass,
  type TrafficClasses,
  type TrafficClassName,
} from './classes.js';
export {
  Connection,
  type Blame,
  type ConnectionAction,
  type ConnectionOptions,
  type ConnectionState,
} from './connection.js';
export { ConnectionTable, type ConnectionTableOptions, type TableAction } from './connection-table.js';
export {
  findRdmaDevices,
  selectDevice,
  type DiscoveryOptions,
  type RdmaDevice,
  type RdmaDevices,
  type RdmaPort,
} from './discovery.js';
export {
  askLibrary,
  type LibraryAnswer,
  type LibraryDevice,
  type LibraryGid,
  type LibraryPort,
} from './libibverbs.js';
export { readSysfs, type SysfsDevice, type SysfsPort } from './sysfs.js';
export { gidAt, rankGids, type Gid, type GidType, type LinkLayer, type RankedGid } from './gid.js';
export { CopyNic, type CopyNicOptions } from './copy-nic.js';
export { findCopyPlace, type CopyPlace, type CopyPlaceOptions } from './copy-place.js';
export { pairedNic, pciHops, pciPath, type PairedNic } from './pairing.js';
export { agreePath, rdmaProtocolVersion, type PathHello, type PathParameters } from './path.js';
export type { ConnectionHalf, NativeEvent, NativeHalf } from './native-half.js';
export { PathExchange, type PathMessage } from './path-messages.js';
export { RdmaTransport, type RdmaTransportOptions } from './transport.js';
export {
  findRdmaPlace,
  rdmaTransport,
  type RdmaOptions,
  type RdmaPlace,
  type RdmaTransportSettings,
} from './open.js';
