export { BlockStore, type BlockStoreOptions } from './block-store.js';
