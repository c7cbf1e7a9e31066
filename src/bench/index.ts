/** Benchmarks that `dualpath bench` runs. */
export { benchPost, type PostChainResult, type PostOptions, type PostResult } from './post.js';
export { benchRing, type RingOptions, type RingResult } from './ring.js';
