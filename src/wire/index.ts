/** The scheduler's gRPC protocol: its definition, its messages, and what they are in TypeScript. */
export * from './convert.js';
export type * from './messages.js';
export { Sequence } from './sequence.js';
export {
  maxMessageBytes,
  protocolVersions,
  protoFile,
  schedulerService,
  serviceName,
  type SchedulerService,
} from './service.js';
export { Turn } from './turn.js';
