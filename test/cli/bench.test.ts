import { describe, expect, it } from 'vitest';
import { dualpath } from './support.js';

describe('dualpath bench ring', () => {
  it('prints one document with the figures people compare', async () => {
    const { code, stdout } = await dualpath(['bench', 'ring', '--json']);
    expect(code).toBe(0);
    expect(JSON.parse(stdout)).toMatchObject({
      descriptors_per_s: expect.any(Number),
      program_submit_us: expect.any(Number),
      program_submit_warm_us: expect.any(Number),
      heap_growth_bytes: expect.any(Number),
      transport: 'loopback',
      device: 'emulated-hbm',
    });
  }, 120_000);
});

describe('dualpath bench lookup', () => {
  it('prints a document with a result for each size and case', async () => {
    const { code, stdout } = await dualpath([
      ...['bench', 'lookup', '--blocks', '64,128', '--samples', '5', '--json'],
    ]);
    expect(code).toBe(0);
    const { results } = JSON.parse(stdout) as { results: object[] };
    expect(results).toHaveLength(14);
    expect(results[8]).toMatchObject({
      case: 'warm',
      blocks: 128,
      block_tokens: 64,
      tokens_in: 'ArrayBuffer',
      stored_blocks: 128,
      samples: 5,
      total_us: { p50: expect.any(Number), p99: expect.any(Number) },
      javascript_us: { p50: expect.any(Number), p99: expect.any(Number) },
      javascript_cpu_us: expect.any(Number),
      index_us: expect.any(Number),
    });
  });

  it('prints a table for people', async () => {
    const { code, stdout } = await dualpath(['bench', 'lookup', '--blocks', '64', '--samples', '5', '-q']);
    expect(code).toBe(0);
    expect(stdout).toContain('warm, shared');
  });
});

describe('dualpath bench storage', () => {
  const small = ['bench', 'storage', '--size', '64KiB', '--file-size', '2MiB', '--slice', '0.05'];

  it('prints one document with the figures of each size', async () => {
    const { code, stdout } = await dualpath([...small, '--compare', 'fio', '--max-pairs', '2', '--json']);
    expect(code).toBe(0);
    const { results } = JSON.parse(stdout) as { results: object[] };
    expect(results).toEqual([
      expect.objectContaining({
        size_bytes: 65536,
        ratio: expect.any(Number),
        ratio_half_width: expect.any(Number),
        converged: expect.any(Boolean),
        cpu_ns_per_byte: expect.any(Number),
        cpu_ratio: expect.any(Number),
        checksum_ns_per_byte: expect.any(Number),
        store: expect.objectContaining({ bytes_per_s: expect.any(Number) }),
      }),
    ]);
  });

  it('prints a table with the columns of fio', async () => {
    const { code, stdout, stderr } = await dualpath(small);
    expect(code).toBe(0);
    expect(stdout).toMatch(/IOPS.*BW.*lat avg.*p99.*CPU ns\/B/);
    expect(stdout).toContain('registered buffers');
    expect(stderr).toContain('measuring: 64 KiB');
  });

  it('refuses what it cannot measure', async () => {
    const { code, stderr } = await dualpath(['bench', 'storage', '--size', '5000']);
    expect(code).toBe(2);
    expect(stderr).toContain('a multiple of 4096');
  });
});

describe('dualpath bench scheduler', () => {
  it('prints a document with the figures of each size, and the worst of them', async () => {
    const argv = ['bench', 'scheduler', '--engines', '8,24', '--seconds', '0.02', '--json'];
    const { code, stdout, stderr } = await dualpath(argv);
    expect(code).toBe(0);
    expect(JSON.parse(stdout)).toMatchObject({
      sizes: [{ engines: 8 }, { engines: 24 }],
      assignments_per_s: expect.any(Number),
      fetch_p99_us: expect.any(Number),
      bytes_per_waiting_request: expect.any(Number),
    });
    expect(stderr).toContain('24 engines');
  }, 60_000);

  it('refuses engines that are no number', async () => {
    expect((await dualpath(['bench', 'scheduler', '--engines', '8,x'])).code).toBe(2);
  });
});

describe('the model in virtual time', () => {
  it('dualpath bench balance: even links against round robin, and the quota at work', async () => {
    const size = ['--prefill', '2', '--decode', '4', '--agents', '700', '--seconds', '60'];
    const { code, stdout } = await dualpath(['bench', 'balance', ...size, '--quiet', '--json']);
    expect(code).toBe(0);
    const result = JSON.parse(stdout) as {
      links: { scheduler: string; excess_ratio: number[] }[];
      attention: { tokens: string; quota_s: number | null; max_over_mean: number }[];
      slow_link: object[];
    };
    expect(result.slow_link).toHaveLength(4);
    const byName = new Map(result.links.map((link) => [link.scheduler, link]));
    // Deterministic: virtual time, seeded. The published figures come from 16 nodes and 300 s.
    for (const ratio of byName.get('shorter-queue, computed tokens')!.excess_ratio)
      expect(ratio).toBeLessThan(0.6);
    const [withQuota, , without] = result.attention;
    expect([withQuota!.tokens, withQuota!.quota_s, without!.quota_s]).toEqual(['prompt', 0.3, null]);
    expect(withQuota!.max_over_mean).toBeLessThan(without!.max_over_mean);
  }, 60_000);

  it('dualpath bench tail: a shorter tail at equal throughput', async () => {
    const size = ['--prefill', '2', '--decode', '2', '--seconds', '60', '--loads', '0.8'];
    const { code, stdout } = await dualpath(['bench', 'tail', ...size, '--quiet', '--json']);
    expect(code).toBe(0);
    const { runs } = JSON.parse(stdout) as { runs: { policy: string; ttft_p99_s: number }[] };
    const p99 = new Map(runs.map((run) => [run.policy, run.ttft_p99_s]));
    expect(p99.get('tail')! / p99.get('paper')!).toBeLessThan(0.8);
    expect((await dualpath(['bench', 'tail', '--loads', '1.2'])).code).toBe(2);
  }, 60_000);
});
