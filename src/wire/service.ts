import { fileURLToPath } from 'node:url';
import type { MethodDefinition, ServiceDefinition } from '@grpc/grpc-js';
import { loadSync } from '@grpc/proto-loader';
import type {
  Description,
  EngineCommand,
  EngineMessage,
  ExplainRequest,
  Explanation,
  RequestEvent,
  RequestMessage,
} from './messages.js';

export interface SchedulerService extends ServiceDefinition {
  readonly Engines: MethodDefinition<EngineMessage, EngineCommand>;
  readonly Requests: MethodDefinition<RequestMessage, RequestEvent>;
  readonly Describe: MethodDefinition<object, Description>;
  readonly Explain: MethodDefinition<ExplainRequest, Explanation>;
}

/** The package's copy of the public definition. */
export const protoFile = fileURLToPath(
  new URL('../../proto/dualpath/scheduler/v1/scheduler.proto', import.meta.url),
);
export const serviceName = 'dualpath.scheduler.v1.Scheduler';

export const schedulerService = loadSync(protoFile, { longs: Number })[
  serviceName
] as unknown as SchedulerService;

/** Versions of the protocol that this package speaks. */
export const protocolVersions = { min: 1, max: 1 } as const;

/** Of a message in either direction; a request's payload is far below it. */
export const maxMessageBytes = 64 << 20;
