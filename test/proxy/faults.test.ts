/** Replicas that fail: no request is lost that had not begun to stream. The long version is `npm run test:router-faults`. */
import { describe, expect, it } from 'vitest';
import { completion, post, stage, until, type Stage } from './support.js';

/** Requests of different prefixes, so that they go everywhere; streamed ones, and every second one whole unless `step` is even. */
function ask(at: Stage, count: number, first = 0, step = 1): Promise<number[]> {
  const one = async (i: number): Promise<number> => {
    const prompt = `${i} `.repeat(600);
    const body = completion(prompt, { stream: i % 2 === 0, max_tokens: 4 });
    const { status, text } = await post(`${at.url}/v1/completions`, body);
    return status === 200 && i % 2 === 0 && !text.endsWith('data: [DONE]\n\n') ? 0 : status;
  };
  return Promise.all(Array.from({ length: count }, (_, i) => one(first + step * i)));
}

const all200 = (statuses: number[]): boolean => statuses.every((status) => status === 200);

/** What every fault test needs: short times. */
const times = { hungMs: 600, pollMs: 100, ejectMs: 400 };

const ejected = (at: Stage): (string | null)[] =>
  at.proxy.fleet.status().map(({ targets }) => targets[0]!.ejected);

describe('a replica that fails', () => {
  it.each([
    ['answers 500', { kind: 'error' }, 'failing'],
    ['sends garbage', { kind: 'garbage' }, 'failing'],
    ['dies before its first byte', { kind: 'die', after_tokens: 0 }, 'failing'],
    ['hangs', { kind: 'hang' }, 'hung'],
  ] as const)('%s: every request is answered by another', async (_what, fault, reason) => {
    await using at = await stage(4, { times });
    expect(all200(await ask(at, 16))).toBe(true);
    at.replicas[0]!.setFault(fault);
    // Whole answers do not die: that fault is for streams.
    const statuses = await ask(at, 32);
    expect(statuses.filter((status) => status !== 200)).toEqual([]);
    expect(ejected(at)[0] ?? reason).toBe(reason);
    at.replicas[0]!.setFault({ kind: 'none' });
    await until(() => ejected(at).every((each) => each === null), 'it takes requests again');
    expect(all200(await ask(at, 16))).toBe(true);
  });

  it('is gone: what had not begun is answered by another', async () => {
    await using at = await stage(4, { times });
    await ask(at, 8);
    const pending = ask(at, 32);
    await until(() => at.proxy.inFlight > 4, 'requests are under way');
    await at.replicas[1]!.close();
    const statuses = await pending.catch(() => [] as number[]);
    expect(statuses.filter((status) => status >= 500)).toEqual([]);
    await until(() => ejected(at)[1] === 'down', 'it is passed over');
    expect(all200(await ask(at, 16))).toBe(true);
  });

  it('dies in the midst of a stream: never a clean end', async () => {
    await using at = await stage(1, { times });
    at.replicas[0]!.setFault({ kind: 'die', after_tokens: 2 });
    const answer = post(`${at.url}/v1/completions`, completion('x', { stream: true, max_tokens: 10 }));
    await expect(answer).rejects.toThrow();
    await until(() => at.proxy.inFlight === 0, 'the flight has landed');
    expect(at.proxy.fleet.routing.groupOf('emulated').router.requests).toBe(0);
  });

  it('reports errors within responses of status 200: they count', async () => {
    await using at = await stage(1, { times });
    at.replicas[0]!.setFault({ kind: 'error-event', after_tokens: 1 });
    const { status, text } = await post(`${at.url}/v1/completions`, completion('x', { stream: true }));
    expect([status, text.includes('a fault that was asked for')]).toEqual([200, true]);
    expect((await at.proxy.metrics.streamErrors.get()).values[0]!.value).toBe(1);
  });

  it('is retried once and within the deadline only', async () => {
    await using at = await stage(2, { times });
    for (const replica of at.replicas) replica.setFault({ kind: 'error' });
    const { status } = await post(`${at.url}/v1/completions`, completion('x'));
    expect(status).toBe(500);
    expect((await at.proxy.metrics.retries.get()).values.reduce((sum, { value }) => sum + value, 0)).toBe(1);
    for (const replica of at.replicas) replica.setFault({ kind: 'hang' });
    const late = await post(`${at.url}/v1/completions`, completion('y'), { 'x-request-timeout-ms': '200' });
    expect([late.status, late.json<{ error: { code: string } }>().error.code]).toEqual([504, 'deadline']);
  });

  it('is slow: it is passed over', async () => {
    // Prefills that take long by themselves, at a quarter of what the replicas can take: the machine's own speed says little.
    // Streams, for how long the prefill of a whole answer took cannot be seen.
    const prefillSPerToken = 0.0005;
    const options = { prefillSPerToken, times: { ...times, hungMs: 60_000 } };
    await using at = await stage(4, options, { prefillSPerToken });
    await ask(at, 16, 0, 2);
    at.replicas[2]!.setFault({ kind: 'slow', factor: 20 });
    const pending: Promise<number[]>[] = [];
    for (let round = 0; ejected(at)[2] !== 'slow'; round++) {
      expect(round).toBeLessThan(450);
      // New prompts: those that are cached take no time, fast or slow.
      if (round % 10 === 0) pending.push(ask(at, 4, 100 + round, 2));
      await new Promise((resolve) => setTimeout(resolve, 100));
    }
    at.replicas[2]!.setFault({ kind: 'none' });
    for (const statuses of await Promise.all(pending)) expect(all200(statuses)).toBe(true);
  });
});
