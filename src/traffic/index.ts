/** TrafficManager: what an inference engine embeds at the base level. */
export { KeyChain } from './key-chain.js';
export { LoadError, LoadOperation, type LoadOptions, type LoadResult } from './load.js';
export { SaveOperation, type SaveOptions, type SaveResult } from './save.js';
export {
  TrafficManager,
  type LinkOptions,
  type Links,
  type TrafficManagerOptions,
} from './traffic-manager.js';
