import { describe, expect, it } from 'vitest';
import { requestHeaders, responseHeaders } from '../../src/proxy/headers.js';
import { RetryBudget } from '../../src/proxy/retry-budget.js';
import { ResponsePlaces } from '../../src/proxy/sticky.js';
import { ResponseWatch } from '../../src/proxy/watch-response.js';
import { checkReplica, Proxy } from '../../src/proxy/index.js';

describe('headers', () => {
  it('of one connection, and those named by it, go no further', () => {
    const raw = [
      'Host',
      'x',
      'Connection',
      'close, X-Private',
      'x-private',
      '1',
      'TE',
      'trailers',
      'X-Kept',
      'yes',
    ];
    const own = ['X-Data-Parallel-Rank', '3', 'Expect', '100-continue', 'Content-Length', '5'];
    const id = ['x-request-id', 'one'];
    expect(requestHeaders([...raw, ...own, 'X-Request-Id', 'two'], 'one')).toEqual([...id, 'X-Kept', 'yes']);
    const answer = ['Transfer-Encoding', 'chunked', 'Connection', 'X-A', 'X-A', '1', 'X-B', '2', ...id];
    const bytes = answer.map((each) => Buffer.from(each));
    expect(responseHeaders(bytes, 'one')).toEqual([...id, 'X-B', '2']);
  });
});

describe('RetryBudget', () => {
  it('is a tenth of the requests, after a reserve', () => {
    const budget = new RetryBudget();
    let reserve = 0;
    while (budget.spend()) reserve++;
    for (let i = 0; i < 1000; i++) budget.earn();
    let earned = 0;
    while (budget.spend()) earned++;
    expect([reserve, Math.round(earned / 10)]).toEqual([64, 10]);
  });
});

describe('ResponsePlaces', () => {
  it('keeps tenants apart and forgets the least recently used', () => {
    const places = new ResponsePlaces(2);
    places.remember('a', 'r1', 'one');
    places.remember('b', 'r1', 'two');
    expect([places.find('a', 'r1'), places.find('b', 'r1')]).toEqual(['one', 'two']);
    places.find('a', 'r1');
    places.remember('a', 'r2', 'three');
    expect([places.find('a', 'r1'), places.find('b', 'r1'), places.size]).toEqual(['one', undefined, 2]);
  });
});

describe('ResponseWatch', () => {
  const watched = (type: string, chunks: string[]): object => {
    const watch = new ResponseWatch(type, true);
    for (const chunk of chunks) watch.data(Buffer.from(chunk));
    return watch.end();
  };

  it('reads usage and ids wherever chunks end', () => {
    const whole = { cachedTokens: 5, promptTokens: 9, failed: false, responseId: 'resp_1' };
    const usage = '"usage":{"input_tokens":9,"input_tokens_details":{"cached_tokens":5}}';
    const json = `{"id":"resp_1",${usage},"error":null}`;
    expect(watched('application/json', [json])).toEqual(whole);
    const event = `event: response.completed\ndata: {"type":"response.completed","response":${json}}\n\n`;
    for (let cut = 0; cut < event.length; cut += 7) {
      expect(watched('text/event-stream', [event.slice(0, cut), event.slice(cut)].filter(Boolean))).toEqual(
        whole,
      );
    }
  });

  it('finds errors within streams, and none in text about errors', () => {
    const event = (value: object): string => `data: ${JSON.stringify(value)}\n\n`;
    expect(watched('text/event-stream', [event({ error: { message: 'x' } })])).toMatchObject({
      failed: true,
    });
    expect(watched('text/event-stream', ['event: error\ndata: {}\n\n'])).toMatchObject({ failed: true });
    const talk = event({ choices: [{ delta: { content: '{"error": "event"}', word: 'error' } }] });
    expect(watched('text/event-stream', [talk])).toMatchObject({ failed: false });
  });
});

describe('options', () => {
  it.each([
    [{ url: 'nonsense' }, /no URL/],
    [{ url: 'http://h:1/v1' }, /without a path/],
    [{ url: 'ftp://h' }, /http or https/],
    [{ url: 'http://h:1', ranks: 0 }, /ranks/],
    [{ url: 'http://h:1', weight: -1 }, /above 0/],
    [{ url: 'http://h:1', name: 'a b' }, /no name/],
  ])('refuse the replica %j', (config, message) => {
    expect(() => checkReplica(config)).toThrow(message);
  });

  it('refuse unknown policies, and an admin API that anybody can reach', () => {
    expect(() => new Proxy({ policy: 'best' })).toThrow(/no policy best/);
    expect(() => new Proxy({ adminPort: 1, adminHost: '0.0.0.0' })).toThrow(/token/);
  });
});
