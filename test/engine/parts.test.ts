import { describe, expect, it } from 'vitest';
import { EarlyEvents } from '../../src/engine/early-events.js';
import { FetchLoop, type FetchHooks } from '../../src/engine/fetch-loop.js';
import { Mailbox } from '../../src/engine/mailbox.js';
import type { EngineOptions } from '../../src/engine/index.js';
import { Tasks } from '../../src/engine/tasks.js';
import { DualPathError } from '../../src/errors/index.js';
import type { SchedulerClient } from '../../src/scheduler/index.js';

async function all<T>(mailbox: AsyncIterable<T>): Promise<T[]> {
  const items: T[] = [];
  for await (const item of mailbox) items.push(item);
  return items;
}

describe('Mailbox', () => {
  it('gives what is there before and after the reader came, in order, then ends', async () => {
    const mailbox = new Mailbox<number>();
    mailbox.push(1);
    const read = all(mailbox);
    await Promise.resolve();
    mailbox.push(2);
    mailbox.push(3);
    mailbox.close();
    mailbox.close(new Error('too late'));
    expect(await read).toEqual([1, 2, 3]);
  });

  it('ends with an error, after what was there', async () => {
    const mailbox = new Mailbox<number>();
    mailbox.push(1);
    mailbox.close(new Error('no more work'));
    const reader = mailbox[Symbol.asyncIterator]();
    expect(await reader.next()).toEqual({ done: false, value: 1 });
    await expect(reader.next()).rejects.toThrow('no more work');
  });
});

describe('Tasks', () => {
  it('waits for work that work has added, and for failures', async () => {
    const tasks = new Tasks();
    const order: string[] = [];
    const inner = async (): Promise<void> => {
      await new Promise((resolve) => setImmediate(resolve));
      order.push('inner');
    };
    const outer = async (): Promise<void> => {
      await Promise.resolve();
      tasks.add(inner());
      order.push('outer');
      throw new Error('its own business');
    };
    tasks.add(outer());
    await tasks.settled();
    expect(order).toEqual(['outer', 'inner']);
  });
});

describe('EarlyEvents', () => {
  it('delivers once, in order, to the right request', () => {
    const early = new EarlyEvents<string[]>();
    early.keep('a', (request) => request.push('first'));
    early.keep('b', (request) => request.push('other'));
    early.keep('a', (request) => request.push('second'));
    const request: string[] = [];
    early.deliver('a', request);
    early.deliver('a', request);
    expect(request).toEqual(['first', 'second']);
  });

  it('keeps so many requests and so many events of each', () => {
    const early = new EarlyEvents<number[]>();
    for (let i = 0; i < 20; i++) early.keep('many', (request) => request.push(i));
    const many: number[] = [];
    early.deliver('many', many);
    expect(many).toHaveLength(16);
    for (let i = 0; i < 4097; i++) early.keep(`${i}`, (request) => request.push(i));
    const kept: number[] = [];
    for (let i = 0; i < 4097; i++) early.deliver(`${i}`, kept);
    expect(kept).toHaveLength(4096);
    expect(kept[0]).toBe(1);
  });
});

describe('FetchLoop', () => {
  function run(fetch: SchedulerClient['fetch']): { loop: FetchLoop; failed: Promise<unknown> } {
    let failed: (error: unknown) => void;
    const promise = new Promise<unknown>((resolve) => {
      failed = resolve;
    });
    const hooks: FetchHooks = {
      load: () => ({ unfinishedRequests: 0, unfinishedTokens: 0 }),
      accept: () => undefined,
      failed: (error) => failed(error),
    };
    const options = { group: 'g', traffic: { name: 'e' }, scheduler: { fetch } };
    return { loop: new FetchLoop(options as unknown as EngineOptions, hooks), failed: promise };
  }

  it('reports a scheduler that refuses work', async () => {
    const refusal = new DualPathError('INVALID_ARGUMENT', 'no such group');
    const { loop, failed } = run(() => Promise.reject(refusal));
    expect(await failed).toBe(refusal);
    await loop.stop();
  });

  it.each(['CLOSED', 'PEER_LOST', 'CANCELLED'] as const)('ends quietly with %s', async (code) => {
    const { loop, failed } = run(() => Promise.reject(new DualPathError(code, 'over')));
    await loop.stop();
    expect(await Promise.race([failed, Promise.resolve('quiet')])).toBe('quiet');
  });
});
