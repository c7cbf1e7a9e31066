import { describe, expect, it } from 'vitest';
import { DualPathError } from '../../src/errors/index.js';
import {
  LocalScheduler,
  type AdmissionOptions,
  type EngineLoad,
  type RequestFailure,
} from '../../src/scheduler/index.js';
import { engineOf, optionsOf, requestOf } from './support.js';

function open(changes: Partial<AdmissionOptions> = {}): {
  scheduler: LocalScheduler;
  failures: RequestFailure[];
} {
  const failures: RequestFailure[] = [];
  const scheduler = new LocalScheduler(optionsOf(changes), (failure) => failures.push(failure));
  return { scheduler, failures };
}

const loadOf = (engine: string, sequence: number): EngineLoad => ({
  engine,
  sequence,
  unfinishedRequests: 0,
  unfinishedTokens: 0,
  nodeReadQueueBlocks: 0,
});

const PE = 'prefill-group';
const DE = 'decode-group';

describe('LocalScheduler', () => {
  it('wakes a fetch of the PE group and one of the DE group with the same assignment', async () => {
    const { scheduler } = open();
    const prefill = scheduler.fetch(PE, [loadOf('p', 1)]);
    const decode = scheduler.fetch(DE, [loadOf('d', 1)]);
    await scheduler.submit(requestOf('a', 3, 2));
    const [[forPrefill], [forDecode]] = await Promise.all([prefill, decode]);
    expect(forPrefill).toMatchObject({ request: 'a', prefillEngine: 'p', decodeEngine: 'd', epoch: 1 });
    expect(forDecode).toEqual(forPrefill);
  });

  it('keeps assignments for a fetch that comes later, each once', async () => {
    const { scheduler } = open();
    for (const name of ['a', 'b', 'c']) await scheduler.submit(requestOf(name, 1, 0));
    const names = (await scheduler.fetch(PE, [])).map(({ request }) => request);
    expect(names).toEqual(['a', 'b', 'c']);
    await scheduler.submit(requestOf('d', 1, 0));
    expect((await scheduler.fetch(PE, [])).map(({ request }) => request)).toEqual(['d']);
    expect(await scheduler.fetch(DE, [])).toHaveLength(4);
  });

  it('delivers to the groups of the chosen engines only', async () => {
    const engines = [
      engineOf('prefill', 'p'),
      engineOf('decode', 'small', { group: 'small', hbmBlocks: 1 }),
      engineOf('decode', 'd'),
    ];
    const { scheduler } = open({ engines });
    const abort = new AbortController();
    const other = scheduler.fetch('small', [], abort.signal);
    await scheduler.submit(requestOf('a', 3, 0));
    expect(await scheduler.fetch(DE, [])).toHaveLength(1);
    abort.abort();
    await expect(other).rejects.toMatchObject({ code: 'CANCELLED' });
  });

  it('admits what waits when room is given back', async () => {
    const { scheduler } = open();
    await scheduler.submit(requestOf('a', 7, 0));
    await scheduler.submit(requestOf('b', 7, 0));
    expect(await scheduler.fetch(DE, [])).toMatchObject([{ request: 'a' }]);
    const next = scheduler.fetch(DE, []);
    scheduler.complete('a', 'decode-buffer');
    expect(await next).toMatchObject([{ request: 'b' }]);
    expect(scheduler.statistics()).toMatchObject({ admitted: 2, headWaits: { 'decode-buffer': 1 } });
  });

  it('turns refusals into rejections', async () => {
    const { scheduler } = open();
    await expect(scheduler.submit(requestOf('a', 100, 0))).rejects.toMatchObject({
      code: 'REQUEST_TOO_LARGE',
    });
    await expect(scheduler.fetch('nobody', [])).rejects.toMatchObject({ code: 'INVALID_ARGUMENT' });
    await expect(scheduler.fetch(PE, [loadOf('d', 1)])).rejects.toThrow(
      /engine d is not of group prefill-group/,
    );
  });

  it('takes one fetch of a group at a time', async () => {
    const { scheduler } = open();
    const first = scheduler.fetch(PE, []);
    await expect(scheduler.fetch(PE, [])).rejects.toMatchObject({ code: 'CAPACITY_EXHAUSTED' });
    await scheduler.submit(requestOf('a', 1, 0));
    expect(await first).toHaveLength(1);
  });

  it('loses no assignment to an aborted fetch', async () => {
    const { scheduler } = open();
    const abort = new AbortController();
    const first = scheduler.fetch(PE, [], abort.signal);
    abort.abort();
    await expect(first).rejects.toMatchObject({ code: 'CANCELLED' });
    await expect(scheduler.fetch(PE, [], abort.signal)).rejects.toMatchObject({ code: 'CANCELLED' });
    await scheduler.submit(requestOf('a', 1, 0));
    expect(await scheduler.fetch(PE, [])).toMatchObject([{ request: 'a' }]);
  });

  it('does not act on a signal aborted after the fetch has resolved', async () => {
    const { scheduler } = open();
    const abort = new AbortController();
    const first = scheduler.fetch(PE, [], abort.signal);
    await scheduler.submit(requestOf('a', 1, 0));
    expect(await first).toHaveLength(1);
    const second = scheduler.fetch(PE, []);
    abort.abort();
    await scheduler.submit(requestOf('b', 1, 0));
    expect(await second).toMatchObject([{ request: 'b' }]);
  });

  it('withdraws what was cancelled before it was fetched, and says so', async () => {
    const { scheduler, failures } = open();
    await scheduler.submit(requestOf('a', 1, 0));
    await scheduler.submit(requestOf('b', 1, 0));
    scheduler.cancel('a');
    scheduler.cancel('a');
    expect(failures).toMatchObject([
      { request: 'a', assignment: { decodeEngine: 'd' }, error: { code: 'CANCELLED' } },
    ]);
    expect(await scheduler.fetch(PE, [])).toMatchObject([{ request: 'b' }]);
    expect(scheduler.statistics()).toMatchObject({ failed: 1, ignoredReports: 1 });
  });

  it('withdraws what has ended before it was fetched', async () => {
    const { scheduler } = open();
    await scheduler.submit(requestOf('a', 1, 0));
    await scheduler.fetch(PE, []);
    scheduler.complete('a', 'request');
    const next = scheduler.fetch(DE, []);
    await scheduler.submit(requestOf('b', 1, 0));
    expect(await next).toMatchObject([{ request: 'b' }]);
  });

  it('hands on the error an engine reports', async () => {
    const { scheduler, failures } = open();
    await scheduler.submit(requestOf('a', 1, 0));
    const error = new Error('disk');
    scheduler.fail('a', error, 9);
    expect(failures).toEqual([]);
    scheduler.fail('a', error, 1);
    expect(failures[0]?.error).toBe(error);
  });

  it('after the loss of an engine ends its requests and the fetches of groups without engines', async () => {
    const { scheduler, failures } = open();
    await scheduler.submit(requestOf('a', 1, 0));
    await scheduler.fetch(DE, []);
    const idle = scheduler.fetch(DE, []);
    scheduler.engineLost('d');
    await expect(idle).rejects.toMatchObject({ code: 'PEER_LOST' });
    await expect(scheduler.fetch(DE, [])).rejects.toMatchObject({ code: 'PEER_LOST' });
    expect(failures).toMatchObject([{ request: 'a', error: { code: 'PEER_LOST' } }]);
    expect(scheduler.epoch()).toBe(2);
    await expect(scheduler.submit(requestOf('b', 1, 0))).rejects.toMatchObject({ code: 'PEER_LOST' });
  });

  it('ends everything with CLOSED when closed', async () => {
    const { scheduler, failures } = open();
    await scheduler.submit(requestOf('a', 7, 0));
    await scheduler.submit(requestOf('b', 7, 0));
    await scheduler.fetch(PE, []);
    const idle = scheduler.fetch(PE, []);
    scheduler.close();
    scheduler.close();
    await expect(idle).rejects.toMatchObject({ code: 'CLOSED' });
    expect(failures).toMatchObject([
      { request: 'a', assignment: { request: 'a' }, error: { code: 'CLOSED' } },
      { request: 'b', assignment: undefined, error: { code: 'CLOSED' } },
    ]);
    await expect(scheduler.submit(requestOf('c', 1, 0))).rejects.toMatchObject({ code: 'CLOSED' });
    await expect(scheduler.fetch(PE, [])).rejects.toMatchObject({ code: 'CLOSED' });
    scheduler.complete('a', 'request');
    expect([...scheduler.engines()].every(({ bufferBlocks }) => bufferBlocks === 0)).toBe(true);
  });

  describe('with retries', () => {
    function retrying(changes: Partial<AdmissionOptions> = {}): {
      scheduler: LocalScheduler;
      failures: RequestFailure[];
      retries: RequestFailure[];
    } {
      const failures: RequestFailure[] = [];
      const retries: RequestFailure[] = [];
      const scheduler = new LocalScheduler(
        optionsOf(changes),
        (failure) => failures.push(failure),
        (failure) => retries.push(failure),
      );
      return { scheduler, failures, retries };
    }
    const lost = new DualPathError('PEER_LOST', 'the connection broke');

    it.each(['prefill', 'shorter-queue', 'round-robin'] as const)(
      'tries a request again, once, on the other side (%s)',
      async (policy) => {
        const { scheduler, failures, retries } = retrying({ policy });
        await scheduler.submit(requestOf('a', 3, 2));
        const [first] = await scheduler.fetch(PE, []);
        scheduler.fail('a', lost, first!.admission);
        expect(retries).toEqual([{ request: 'a', assignment: first, error: lost }]);
        const [second] = await scheduler.fetch(PE, []);
        expect(second!.admission).not.toBe(first!.admission);
        expect([first!.side, second!.side].sort()).toEqual(['decode', 'prefill']);
        scheduler.fail('a', lost, first!.admission); // the other engine's word about the first
        expect(failures).toEqual([]);
        scheduler.fail('a', lost, second!.admission);
        expect(failures).toEqual([{ request: 'a', assignment: second, error: lost }]);
        expect(retries).toHaveLength(1);
        expect(scheduler.statistics()).toMatchObject({ running: 0, waiting: 0 });
      },
    );

    it('does not try again what its user or another fault ended, what waits, or what nobody is left for', async () => {
      const { scheduler, failures, retries } = retrying();
      await scheduler.submit(requestOf('a', 3, 2));
      scheduler.cancel('a');
      await scheduler.submit(requestOf('b', 3, 2));
      scheduler.fail('b', new DualPathError('STORAGE_IO', 'a disk'));
      await scheduler.submit(requestOf('c', 3, 2));
      scheduler.engineLost('d');
      expect(failures.map(({ error }) => (error as DualPathError).code)).toEqual([
        'CANCELLED',
        'STORAGE_IO',
        'PEER_LOST',
      ]);
      expect(retries).toEqual([]);
    });

    it('tries the requests of a lost engine again on the others', async () => {
      const engines = [engineOf('prefill', 'p'), engineOf('decode', 'd'), engineOf('decode', 'e')];
      const { scheduler, failures, retries } = retrying({ engines });
      await scheduler.submit(requestOf('a', 3, 2));
      const [first] = await scheduler.fetch(PE, []);
      scheduler.engineLost(first!.decodeEngine);
      const [second] = await scheduler.fetch(PE, []);
      expect(new Set([first!.decodeEngine, second!.decodeEngine])).toEqual(new Set(['d', 'e']));
      expect([failures.length, retries.length]).toEqual([0, 1]);
    });
  });
});
