import { expect } from 'vitest';
import type { Admission, AdmissionOptions, Assignment } from '../../src/scheduler/index.js';
import type { EngineCapacity, EngineRole, RequestDescription } from '../../src/scheduler/index.js';
import type { ErrorCode } from '../../src/errors/index.js';

export function engineOf(
  role: EngineRole,
  name: string,
  changes: Partial<EngineCapacity> = {},
): EngineCapacity {
  return {
    engine: name,
    node: `node-${name}`,
    group: `${role}-group`,
    role,
    bufferBlocks: 10,
    hbmBlocks: role === 'prefill' ? 0 : 20,
    readRateBytesPerS: 1000,
    ...changes,
  };
}

/** One PE `p` and one DE `d` on nodes of their own, blocks of 4 tokens and 100 bytes. */
export function optionsOf(changes: Partial<AdmissionOptions> = {}): AdmissionOptions {
  return {
    engines: [engineOf('prefill', 'p'), engineOf('decode', 'd')],
    policy: 'shorter-queue',
    blockTokens: 4,
    blockBytes: 100,
    decodeSpareBlocks: 1,
    maxWaiting: 100,
    seed: 1,
    ...changes,
  };
}

/** A request whose prompt is `promptBlocks` whole blocks of 4 tokens, `hitBlocks` of them stored. */
export function requestOf(
  request: string,
  promptBlocks: number,
  hitBlocks: number,
  maxNewTokens = 4,
): RequestDescription {
  return { request, promptTokens: promptBlocks * 4, hitTokens: hitBlocks * 4, maxNewTokens };
}

/** Expects `action` to throw a DualPathError of `code` whose message matches every pattern. */
export function expectError(action: () => unknown, code: ErrorCode, ...patterns: RegExp[]): void {
  let thrown: unknown;
  try {
    action();
  } catch (error) {
    thrown = error;
  }
  expect(thrown).toMatchObject({ name: 'DualPathError', code });
  for (const pattern of patterns) expect((thrown as Error).message).toMatch(pattern);
}

export function admitAll(admission: Admission, ...requests: ReturnType<typeof requestOf>[]): Assignment[] {
  for (const request of requests) admission.submit(request);
  return admission.admit();
}
