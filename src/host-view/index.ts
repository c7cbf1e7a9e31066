/** A host as its files, commands and system calls show it: what doctor and qos look at. */
export {
  FileView,
  liveView,
  networkOf,
  pciAddressOf,
  readNumber,
  type CommandAnswer,
  type HostView,
  type NetworkOfDevice,
  type Reading,
} from './view.js';
export { liveProbes, type HostProbes } from './probes.js';
export type { DirectIoAnswer, FileSystemAnswer } from './direct-io.js';
export type { IoUringAnswer } from './io-uring.js';
export { askArbitration, type ArbitrationAnswer, type PortTables } from './umad.js';
