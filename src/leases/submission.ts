import { DualPathError } from '../errors/index.js';
import type { CheckedOptions } from './options.js';
import type { LeaseSubmission } from './types.js';

const maxKeyLength = 512;

/** What the scheduler's queue does not look at. @throws INVALID_ARGUMENT, REQUEST_TOO_LARGE */
export function checkSubmission(submission: LeaseSubmission, options: CheckedOptions): void {
  const { key, model, deadlineS, payload, received, maxNewTokens } = submission;
  if (key === '' || key.length > maxKeyLength) {
    throw new DualPathError(
      'INVALID_ARGUMENT',
      `a key of ${key.length} characters; give every request one of 1 to ${maxKeyLength}`,
      { key_length: key.length, limit: maxKeyLength },
    );
  }
  if (model !== options.model) {
    throw new DualPathError(
      'INVALID_ARGUMENT',
      `request ${key} is for model '${model}'; this scheduler serves '${options.model}' only: name it, or another scheduler`,
      { model, serves: options.model },
    );
  }
  if (deadlineS !== undefined && !(Number.isFinite(deadlineS) && deadlineS > 0)) {
    throw new DualPathError(
      'INVALID_ARGUMENT',
      `deadline of request ${key} is ${deadlineS} s from now; give more than 0, or none`,
      { deadline_s: deadlineS },
    );
  }
  if (payload !== undefined && payload.length > options.maxPayloadBytes) {
    throw new DualPathError(
      'REQUEST_TOO_LARGE',
      `payload of request ${key} has ${payload.length} bytes, the limit is ${options.maxPayloadBytes}: ` +
        'send a reference that the engines understand',
      { payload_bytes: payload.length, limit_bytes: options.maxPayloadBytes },
    );
  }
  if (received !== undefined && received.length > maxNewTokens) {
    throw new DualPathError(
      'INVALID_ARGUMENT',
      `request ${key} may generate ${maxNewTokens} tokens, but ${received.length} are said to have been received`,
    );
  }
}

export function keyReused(name: string): DualPathError {
  return new DualPathError(
    'INVALID_ARGUMENT',
    `the key of request ${name} is in use by a request of other lengths: give every request its own key`,
    { request: name },
  );
}

export function queueFull(name: string, waiting: number, limit: number): DualPathError {
  return new DualPathError(
    'CAPACITY_EXHAUSTED',
    `request ${name} cannot wait: ${waiting} requests already do, the limit is ${limit}; submit it again later`,
    { request: name, waiting, limit },
  );
}

export function payloadsFull(name: string, bytes: number, limit: number): DualPathError {
  return new DualPathError(
    'CAPACITY_EXHAUSTED',
    `request ${name} cannot wait: payloads of others take ${bytes} bytes, the limit is ${limit}; submit it again later`,
    { request: name, bytes, limit_bytes: limit },
  );
}
