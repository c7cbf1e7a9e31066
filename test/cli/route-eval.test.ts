import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { dualpath } from './support.js';

const sample = join(import.meta.dirname, '../../examples/traces/conversation-sample.jsonl');
const quick = ['--quick', '--seeds', '2', '--threads', '1', '--warm-up', '20', '--qps', '8,2'];

describe('dualpath route-eval', () => {
  it('prints one document with every policy, and what is over the best baseline', async () => {
    const argv = ['route-eval', sample, ...quick, '--policies', 'dualmap,late-lane,least-loaded,max-hit'];
    const { code, stdout } = await dualpath([...argv, '--json']);
    expect(code).toBe(0);
    const document = JSON.parse(stdout) as { policies: { name: string; goodput_qps: object }[] };
    expect(document).toMatchObject({
      emulated: true,
      complete: true,
      grid_qps: [2, 8],
      goodput_over_best_baseline: expect.any(Array),
      capacity_over_best_baseline: expect.any(Array),
    });
    expect(document.policies.map(({ name }) => name)).toEqual([
      'dualmap',
      'late-lane',
      'least-loaded',
      'max-hit',
    ]);
    expect(document.policies[0]!.goodput_qps).toMatchObject({
      mean: expect.any(Number),
      low: expect.any(Number),
    });
  });

  it('prints tables for people', async () => {
    const { code, stdout, stderr } = await dualpath([
      'route-eval',
      'tool-agent',
      '--requests',
      '300',
      ...quick,
      '--policies',
      'dualmap,power-of-two,min-ttft',
      '--sections',
      'curves,stale',
    ]);
    expect(code).toBe(0);
    expect(stdout).toContain('published, on GPUs');
    expect(stdout).toContain('own dispatches not counted');
    expect(stderr).toContain('curves: 12 runs');
  });

  it('names what it does not know', async () => {
    const policy = await dualpath(['route-eval', sample, '--policies', 'random']);
    expect(policy.code).toBe(2);
    expect(policy.stderr).toContain('there is no policy random: use dualmap');
    const section = await dualpath(['route-eval', sample, '--sections', 'plots']);
    expect(section.stderr).toContain('there is no section plots: use curves');
    const agents = join(import.meta.dirname, '../../examples/traces/agent-sessions-sample.jsonl');
    const trace = await dualpath(['route-eval', agents, '--quick']);
    expect(trace.code).toBe(2);
    expect(trace.stderr).toContain('give a trace in the mooncake format, or tool-agent');
  });
});

describe('dualpath bench router', () => {
  it('prints one document with the figures people compare', async () => {
    const argv = [
      'bench',
      'router',
      '--json',
      '--replicas',
      '4,8',
      '--decisions',
      '200',
      '--prefixes',
      '20000',
    ];
    const { code, stdout } = await dualpath(argv);
    expect(code).toBe(0);
    const document = JSON.parse(stdout) as {
      results: { replicas: number }[];
      memory: object;
      rebalance: object;
    };
    expect(document.results.map(({ replicas }) => replicas)).toEqual([4, 8]);
    expect(document.results[0]).toMatchObject({ p50_us: expect.any(Number), p99_us: expect.any(Number) });
    expect(document.rebalance).toMatchObject({ queued_requests: 1000, p50_ms: expect.any(Number) });
    expect(document.memory).toMatchObject({
      distinct_prefixes: 20000,
      index_bytes_per_replica: expect.any(Number),
    });
  }, 60_000);
});
