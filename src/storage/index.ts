export { BlockStore, type BlockStoreOptions } from './block-store.js';
export {
  StoreAdmin,
  type AdminOptions,
  type DeleteReport,
  type GcOptions,
  type GcReport,
  type StoreNamespace,
  type StoreReport,
  type VerifyOptions,
  type VerifyReport,
} from './admin.js';
