import { describe, expect, it } from 'vitest';
import { EmulatedReplica } from '../../src/replica/index.js';
import { dualpath } from './support.js';

describe('dualpath route', () => {
  it('serves until it is interrupted', async () => {
    const replica = new EmulatedReplica({ port: 0 });
    await replica.start();
    try {
      const controller = new AbortController();
      const running = dualpath(['route', '--port', '0', '--json', '--replica', `${replica.url},name=one`], {
        signal: controller.signal,
      });
      setTimeout(() => controller.abort(), 300);
      const { code, stdout, stderr } = await running;
      expect([code, JSON.parse(stdout)]).toEqual([0, { requests: [] }]);
      expect(stderr).toMatch(/routing on http:\/\/127\.0\.0\.1:\d+ by dualmap[\s\S]*one: emulated/);
    } finally {
      await replica.close();
    }
  });

  it.each([
    [['route'], /no server to route to/],
    [['route', '--replica', 'http://a:1,speed=3'], /speed=3/],
    [['route', '--port', '0', '--replica', 'http://a:1/v1'], /without a path/],
    [['route', '--port', '0', '--replica', 'http://a:1', '--replica', 'http://a:1'], /there already/],
    [['route', '--port', '0', '--replica', 'http://a:1', '--policy', 'best'], /no policy best/],
    [['route', '--port', '0', '--replica', 'http://a:1', '--secret-file', '/dev/null'], /16 or more/],
    [['load', 'nothing.jsonl', '--url', 'http://a:1', '--qps', '0'], /above 0/],
  ])('%j is refused', async (argv, message) => {
    const { code, stderr } = await dualpath(argv);
    expect([code, stderr]).toEqual([2, expect.stringMatching(message)]);
  });
});

describe('dualpath replica and load', () => {
  it('go together', async () => {
    const replica = new EmulatedReplica({ port: 0, prefillSPerToken: 1e-6, tokenMs: 1 });
    await replica.start();
    try {
      const argv = [
        'load',
        'examples/traces/conversation-sample.jsonl',
        '--url',
        replica.url,
        '--qps',
        '200',
      ];
      const { code, stdout } = await dualpath([...argv, '--requests', '20', '--max-output', '4', '--json']);
      const summary = JSON.parse(stdout) as Record<string, unknown>;
      expect([code, summary['succeeded'], summary['complete']]).toEqual([0, 20, true]);
    } finally {
      await replica.close();
    }
  });

  it('serves emulated replicas until it is interrupted', async () => {
    const controller = new AbortController();
    const running = dualpath(['replica', '--port', '0', '--count', '2', '--json'], {
      signal: controller.signal,
    });
    setTimeout(() => controller.abort(), 200);
    const { code, stdout, stderr } = await running;
    expect([code, JSON.parse(stdout)]).toMatchObject([
      0,
      { emulated: true, replicas: [{ finished: 0 }, {}] },
    ]);
    expect(stderr.match(/emulated replica on/g)).toHaveLength(2);
  });
});
