/** Engines for tests, each with a runtime of its own, closed when the test ends. */
import { onTestFinished } from 'vitest';
import { DualPathError } from '../../src/errors/index.js';
import { Arena } from '../../src/memory/index.js';
import type { NativeGeometry } from '../../src/binding/index.js';
import { Runtime, TransferEngine, type TransferEngineOptions } from '../../src/transfer/index.js';

let named = 0;

export function openRuntime(): Runtime {
  const runtime = new Runtime();
  onTestFinished(() => runtime.close());
  return runtime;
}

export function openEngine(options: Partial<TransferEngineOptions> = {}): TransferEngine {
  const runtime = options.runtime ?? openRuntime();
  const engine = new TransferEngine({ name: `engine-${named++}`, ...options, runtime });
  onTestFinished(() => engine.close());
  return engine;
}

/** Memory of `slots` blocks of 4 tokens, 2 layers with one plane of 16 bytes a token, and all of its bytes. */
export function plainMemory(slots: number): { geometry: NativeGeometry; bytes: Uint8Array } {
  const arena = new Arena({ name: 'test', bytes: slots * 128, hugePages: false, lock: 'none' });
  const layers = [0, 64].map((offsetBytes) => ({
    offsetBytes,
    planes: [{ offsetBytes: 0, bytesPerToken: 16 }],
  }));
  return {
    geometry: { arena: arena.handle, offsetBytes: 0, slotStrideBytes: 128, slots, blockTokens: 4, layers },
    bytes: new Uint8Array(arena.buffer),
  };
}

/** The error that a promise rejects with, or that a call throws. */
export async function errorOf(what: Promise<unknown> | (() => unknown)): Promise<DualPathError> {
  try {
    await (typeof what === 'function' ? what() : what);
  } catch (error) {
    if (error instanceof DualPathError) return error;
    throw error;
  }
  throw new Error('no error came');
}

export const turn = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));

export const sleep = (ms: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, ms));
