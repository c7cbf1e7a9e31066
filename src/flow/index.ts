/** The flows, one file each; programs are put together from their descriptors. */
export { BatchCounters } from './batch-counters.js';
export { announceFreeStaging, decodeBufferToStaging } from './de-read.js';
export { mergedToHbm, persistGenerated, persistMisses } from './decode-persist.js';
export { bufferToStaging, readBlocks, stagingToDecodeBuffer } from './pe-read.js';
export { hitParts, type HitParts } from './split-read.js';
