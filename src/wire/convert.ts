/** Between the messages of the wire and the scheduler's own types. */
import { status } from '@grpc/grpc-js';
import { DualPathError, errorCodes, type ErrorCode } from '../errors/index.js';
import type { Assignment, EngineLoad, EngineRole, ReadSide, Stage } from '../scheduler/index.js';
import type {
  AssignmentMessage,
  EngineMessageEntry,
  FailureMessage,
  LoadMessage,
  VersionRangeMessage,
} from './messages.js';
import { protocolVersions } from './service.js';

const roles: readonly (EngineRole | undefined)[] = [undefined, 'prefill', 'decode'];
const sides: readonly (ReadSide | undefined)[] = [undefined, 'prefill', 'decode', 'split'];
const stageList: readonly (Stage | undefined)[] = [
  undefined,
  'prefill-read',
  'decode-read',
  'prefill',
  'decode-buffer',
  'request',
];

export const stageNumber = Object.fromEntries(
  stageList.flatMap((stage, number) => (stage ? [[stage, number]] : [])),
) as Readonly<Record<Stage, number>>;

export function stageOf(number: number): Stage {
  return stageList[number] ?? unknown('stage', number);
}

export function stagesOf(numbers: readonly number[] = []): Stage[] {
  return numbers.map(stageOf);
}

/** The gRPC status that comes closest to each code; the others are INTERNAL. */
const statuses: Partial<Record<ErrorCode, number>> = {
  INVALID_ARGUMENT: status.INVALID_ARGUMENT,
  REQUEST_TOO_LARGE: status.OUT_OF_RANGE,
  CAPACITY_EXHAUSTED: status.RESOURCE_EXHAUSTED,
  UNAUTHENTICATED: status.UNAUTHENTICATED,
  PEER_LOST: status.UNAVAILABLE,
  CLOSED: status.UNAVAILABLE,
  CANCELLED: status.CANCELLED,
  DEADLINE: status.DEADLINE_EXCEEDED,
};

export function statusOf(code: ErrorCode): number {
  return statuses[code] ?? status.INTERNAL;
}

const maxMessageLength = 4096;

export function failureMessage(error: Error): Required<FailureMessage> {
  const code = error instanceof DualPathError ? error.code : 'INTERNAL';
  return { code, message: error.message.slice(0, maxMessageLength), status: statusOf(code) };
}

export function errorOf({ code = '', message = '' }: FailureMessage): DualPathError {
  const known = Object.hasOwn(errorCodes, code) ? (code as ErrorCode) : 'INTERNAL';
  return new DualPathError(known, message === '' ? `no more is said than ${code}` : message);
}

export function assignmentMessage(assignment: Assignment, epoch: number): AssignmentMessage & object {
  const { side, ...rest } = assignment;
  return { ...rest, epoch, side: sides.indexOf(side) };
}

export function assignmentOf(message: AssignmentMessage): Assignment {
  return {
    request: message.request ?? '',
    epoch: count('epoch', message.epoch),
    admission: count('admission', message.admission),
    prefillEngine: message.prefillEngine ?? '',
    decodeEngine: message.decodeEngine ?? '',
    side: sides[message.side ?? 0] ?? unknown('side', message.side ?? 0),
    prefillReadBlocks: count('prefill_read_blocks', message.prefillReadBlocks),
    decodeReadBlocks: count('decode_read_blocks', message.decodeReadBlocks),
    promptBlocks: count('prompt_blocks', message.promptBlocks),
    prefillHbmBlocks: count('prefill_hbm_blocks', message.prefillHbmBlocks),
    decodeHbmBlocks: count('decode_hbm_blocks', message.decodeHbmBlocks),
  };
}

export interface EngineEntryParts {
  readonly capacity: {
    readonly engine: string;
    readonly node: string;
    readonly group: string;
    readonly role: EngineRole;
    readonly bufferBlocks: number;
    readonly hbmBlocks: number;
    readonly readRateBytesPerS: number;
  };
  readonly incarnation: number;
  readonly addresses: Readonly<Record<string, string>>;
}

export function engineMessage({ capacity, incarnation, addresses }: EngineEntryParts): EngineMessageEntry {
  const { engine: name, role, ...rest } = capacity;
  return { name, ...rest, role: roles.indexOf(role), incarnation, addresses };
}

export function engineOf(message: EngineMessageEntry): EngineEntryParts {
  const role =
    roles[message.role ?? 0] ?? unknown(`role of engine '${message.name ?? ''}'`, message.role ?? 0);
  return {
    capacity: {
      engine: message.name ?? '',
      node: message.node ?? '',
      group: message.group ?? '',
      role,
      bufferBlocks: message.bufferBlocks ?? 0,
      hbmBlocks: message.hbmBlocks ?? 0,
      readRateBytesPerS: message.readRateBytesPerS ?? 0,
    },
    incarnation: message.incarnation ?? 0,
    addresses: { ...message.addresses },
  };
}

export function loadMessage(load: EngineLoad): LoadMessage {
  const { nodeRead, ...rest } = load;
  return { ...rest, nodeReadBytes: nodeRead?.bytes ?? 0, nodeReadBusyS: nodeRead?.busyS ?? 0 };
}

/** As it was said; whoever uses it looks whether it makes sense. */
export function loadOf(message: LoadMessage): EngineLoad {
  const { nodeReadBytes = 0, nodeReadBusyS = 0, lastAdmission = 0 } = message;
  return {
    engine: message.engine ?? '',
    sequence: message.sequence ?? 0,
    unfinishedRequests: message.unfinishedRequests ?? 0,
    unfinishedTokens: message.unfinishedTokens ?? 0,
    nodeReadQueueBlocks: message.nodeReadQueueBlocks ?? 0,
    ...(lastAdmission === 0 ? {} : { lastAdmission }),
    ...(nodeReadBytes === 0 && nodeReadBusyS === 0
      ? {}
      : { nodeRead: { bytes: nodeReadBytes, busyS: nodeReadBusyS } }),
  };
}

/** The highest version that both speak. @throws INVALID_ARGUMENT */
export function chooseVersion({ min = 0, max = 0 }: VersionRangeMessage = {}): number {
  const version = Math.min(max, protocolVersions.max);
  if (version >= min && version >= protocolVersions.min) return version;
  throw new DualPathError(
    'INVALID_ARGUMENT',
    `the other side speaks versions ${min} to ${max} of the protocol, this one ${protocolVersions.min} to ` +
      `${protocolVersions.max}; run releases that overlap`,
    { min, max },
  );
}

export function count(name: string, value = 0): number {
  if (Number.isSafeInteger(value) && value >= 0) return value;
  throw new DualPathError(
    'INVALID_ARGUMENT',
    `${name} is ${value}, but must be an integer from 0 to 2^53 - 1`,
    {
      name,
      value,
    },
  );
}

function unknown(what: string, value: number): never {
  throw new DualPathError('INVALID_ARGUMENT', `${what} ${value} does not exist; see scheduler.proto`, {
    value,
  });
}
