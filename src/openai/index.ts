/** What the router, the emulated replica and the load generator share of the OpenAI-style API: prompts, keys, errors, SSE. */
export { ApiError, errorBody, type ApiErrorOptions } from './error.js';
export { SseLines } from './sse.js';
export { apiOf, type Api } from './paths.js';
export { canonicalPrompt, type CanonicalPrompt } from './canonical.js';
export { PromptKeys, type KeyedPrompt, type PromptKeyOptions } from './keys.js';
export { parseBody } from './body.js';
export { memberRanges, withMember, withoutMember } from './members.js';
