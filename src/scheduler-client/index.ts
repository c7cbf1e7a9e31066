/** Both sides of the scheduler's gRPC service as clients: front ends (RequestClient) and engines (EngineClient). */
export type { EndpointOptions } from './connection.js';
export { EngineClient, type EngineClientOptions } from './engine-client.js';
export { explainRequest } from './explain.js';
export type { AssignmentDetails } from './engine-lease.js';
export { RequestClient, type RequestClientOptions } from './request-client.js';
export {
  Submitted,
  type RequestOutcome,
  type RequestProgress,
  type SubmissionOptions,
  type TokenBatch,
} from './submitted.js';
