/** TrafficManager: what an inference engine embeds at the base level. */
export type { CopyFacts, CopyOptions, CopyWay } from './copies.js';
export type { BlockTable } from './block-table.js';
export { Interruption, type CallOptions } from './interruption.js';
export { KeyChain } from './key-chain.js';
export { LoadError, LoadOperation, type LoadOptions, type LoadResult } from './load.js';
export { SaveOperation, type SaveOptions, type SaveResult } from './save.js';
export { ShardedLookup, ShardedTraffic, type RankPlaces } from './shards.js';
export {
  TrafficManager,
  type LinkOptions,
  type Links,
  type TrafficManagerOptions,
} from './traffic-manager.js';
export type { OpenTransport, Transport, TransportFacts } from './transport.js';
