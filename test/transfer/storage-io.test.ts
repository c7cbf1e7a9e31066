import { afterEach, describe, expect, it } from 'vitest';
import { Runtime } from '../../src/transfer/index.js';

describe('who carries storage', () => {
  let runtime: Runtime | undefined;
  afterEach(() => runtime?.close());

  it('is said, and can be chosen', () => {
    runtime = new Runtime({ storageIo: 'thread_pool' });
    expect(runtime.facts).toEqual({
      storageIo: 'thread_pool',
      storageIoRefused: '', // it was asked for
      registeredArenas: 0,
      unregisteredArenas: 0,
      registerErrno: 0,
    });
    runtime.close();
    runtime = new Runtime({ storageIo: 'io_uring' });
    expect(runtime.facts.storageIo).toBe('io_uring');
  });

  it('is one of two', () => {
    expect(() => new Runtime({ storageIo: 'aio' as never })).toThrow("'auto', 'io_uring' or 'thread_pool'");
  });
});
