/** What inference engines hold in their prefix caches, by the KV events that they publish over ZMQ. */
export { BlockView, type BlockViewOptions, type KeyChain } from './block-view.js';
export { KvFeed, type FeedObserver } from './feed.js';
export { Sequence, type NumberedBatch, type SequenceSink } from './sequence.js';
export type { Endpoints } from './subscriber.js';
export { decodeBatch, type KvEvent } from './wire.js';
