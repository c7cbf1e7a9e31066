import { SpanKind, type Span, type Tracer } from '@opentelemetry/api';
import { DualPathError } from '../errors/index.js';
import { TokenLog } from '../leases/index.js';
import type { Assignment, Stage } from '../scheduler/index.js';
import { endSpan, parentOf } from '../tracing/index.js';
import {
  assignmentMessage,
  failureMessage,
  stageNumber,
  type AssignmentMessage,
  type HeldMessage,
} from '../wire/index.js';

/** What comes with an assignment besides. */
export interface AssignmentDetails {
  readonly assignment: Assignment;
  readonly promptTokens: number;
  readonly hitTokens: number;
  readonly maxNewTokens: number;
  readonly payload: Uint8Array;
  /** Delivered by an earlier attempt: the request goes on after them. */
  readonly resumeTokens: Uint32Array;
  readonly traceparent: string;
  readonly attempt: number;
}

export interface EngineLease {
  readonly engine: string;
  readonly assignment: Assignment;
  readonly details: AssignmentDetails;
  readonly done: Set<Stage>;
  readonly tokens: TokenLog;
  failure: DualPathError | undefined;
  /** The scheduler has taken it back: that it ends is no failure of the engine's, whichever scheduler hears of it. */
  revoked: boolean;
  /** For the engine; kept until the scheduler has acknowledged the message that says so. */
  over: boolean;
  /** Where somebody records spans. */
  readonly span: Span | undefined;
}

export function leaseOf(
  engine: string,
  assignment: Assignment,
  message: AssignmentMessage,
  tracer: Tracer | undefined,
): EngineLease {
  const tokens = logOf(message.resumeTokens);
  const details = detailsOf(assignment, message);
  return {
    engine,
    assignment,
    details,
    done: new Set(),
    tokens,
    failure: undefined,
    revoked: false,
    over: false,
    span: tracer && spanOf(tracer, engine, details),
  };
}

/** From the assignment to the last stage: of a decode engine that is when the last block has been stored. */
function spanOf(
  tracer: Tracer,
  engine: string,
  { assignment, attempt, traceparent }: AssignmentDetails,
): Span {
  const { request, admission, prefillEngine, prefillReadBlocks, decodeReadBlocks, side } = assignment;
  const prefills = engine === prefillEngine;
  const attributes = {
    ...{ 'dualpath.request': request, 'dualpath.admission': admission, 'dualpath.attempt': attempt },
    ...{ 'dualpath.engine': engine, 'dualpath.side': side },
    'dualpath.read_blocks': prefills ? prefillReadBlocks : decodeReadBlocks,
  };
  const name = prefills ? 'dualpath prefill' : 'dualpath decode';
  return tracer.startSpan(name, { kind: SpanKind.CONSUMER, attributes }, parentOf(traceparent));
}

export function stageDone({ done, span }: EngineLease, stage: Stage): void {
  done.add(stage);
  span?.addEvent(stage);
}

export function leaseOver(lease: EngineLease, error: Error | undefined): void {
  if (!lease.over && lease.span) endSpan(lease.span, error);
  lease.over = true;
}

/** What an engine's giving up is to the scheduler. */
export function failureOf({ revoked, assignment }: EngineLease, error: Error): DualPathError {
  if (revoked) return new DualPathError('PEER_LOST', `request ${assignment.request} was taken back`);
  return error instanceof DualPathError ? error : new DualPathError('INTERNAL', error.message);
}

/** What the engine says of it in a hello; that it has ended well is said again when its tokens have been. */
export function heldMessage({ engine, assignment, details, done, failure }: EngineLease): {
  engine: string;
  held: HeldMessage;
} {
  const { promptTokens, hitTokens, maxNewTokens, attempt } = details;
  const own = { promptTokens, hitTokens, maxNewTokens, attempt };
  return {
    engine,
    held: {
      assignment: { ...assignmentMessage(assignment, assignment.epoch), ...own },
      done: [...done].filter((stage) => stage !== 'request').map((stage) => stageNumber[stage]),
      ...(failure ? { failure: failureMessage(failure) } : {}),
    },
  };
}

/** A typed array costs a microsecond to make. */
const noBytes = new Uint8Array();
const noTokens = new Uint32Array();

function detailsOf(assignment: Assignment, message: AssignmentMessage): AssignmentDetails {
  const { promptTokens = 0, hitTokens = 0, maxNewTokens = 0, attempt = 0, traceparent = '' } = message;
  return {
    ...{ assignment, promptTokens, hitTokens, maxNewTokens, attempt, traceparent },
    payload: message.payload ? Uint8Array.from(message.payload) : noBytes,
    resumeTokens: message.resumeTokens ? Uint32Array.from(message.resumeTokens) : noTokens,
  };
}

function logOf(tokens: readonly number[] | undefined): TokenLog {
  const log = new TokenLog();
  if (tokens) log.append(0, Uint32Array.from(tokens));
  return log;
}
