import { execFileSync } from 'node:child_process';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { cli, runOnHosts, type HostsRun } from './hosts.js';

const nativeTests = 'build-native/dualpath_rxe_tests';

/** Suite.Name of each GoogleTest test of the executable. */
function listNativeTests(): string[] {
  const list = execFileSync(nativeTests, ['--gtest_list_tests'], { encoding: 'utf8' });
  let suite = '';
  return list.split('\n').flatMap((line) => {
    if (/^\w.*\.$/.test(line)) suite = line;
    return line.startsWith('  ') ? [`${suite}${line.trim().split(' ')[0]}`] : [];
  });
}

interface NativeReport {
  readonly testsuites: readonly {
    readonly testsuite: readonly {
      readonly classname: string;
      readonly name: string;
      readonly result: string;
      readonly failures?: readonly { readonly failure: string }[];
    }[];
  }[];
}

let run: HostsRun;

beforeAll(async () => {
  run = await runOnHosts([
    [
      `${nativeTests} --gtest_brief=1 --gtest_output=json:$DUALPATH_OUT/native.json`,
      `${cli} devices --json >$DUALPATH_OUT/devices.json`,
      `${cli} bench rdma --test write,read,read-latency --size 4KiB --pairs 2 --slice 0.3 ` +
        '--compare perftest --json >$DUALPATH_OUT/rdma.json',
      `${cli} bench copy --rounds 1 --json >$DUALPATH_OUT/copy.json`,
      `${cli} replay examples/traces/agent-sessions-sample.jsonl --sessions 2 --turns 2 --scale 0.0078125 ` +
        '--mode split --copy nic --copy-device rxe0 --json >$DUALPATH_OUT/replay.json',
      `${cli} bench rdma --device rxe1; echo "wrong device: $?"`,
      `${cli} bench rdma --gid-index 99; echo "wrong GID: $?"`,
      `${cli} bench qos; echo "one host: $?"`,
    ].join('\n'),
  ]);
});
afterAll(() => run.remove());

describe('native tests over soft-RoCE', () => {
  it.each(listNativeTests())('%s', (name) => {
    const { testsuites } = run.json('native.json') as NativeReport;
    const found = testsuites
      .flatMap(({ testsuite }) => testsuite)
      .find((test) => `${test.classname}.${test.name}` === name);
    expect(found?.failures ?? []).toEqual([]);
    expect(found?.result).toBe('COMPLETED');
  });
});

describe('the device', () => {
  it('is found, active, with a routable GID first', () => {
    const { devices, problem } = run.json('devices.json') as {
      devices: {
        name: string;
        usable: boolean;
        ports: { state: string; gids: { gid: string; rank: number }[] }[];
      }[];
      problem: string | null;
    };
    expect(problem).toBeNull();
    expect(devices).toMatchObject([{ name: 'rxe0', usable: true, ports: [{ state: 'active' }] }]);
    expect(devices[0]?.ports[0]?.gids[0]).toMatchObject({
      rank: 1,
      gid: '0000:0000:0000:0000:0000:ffff:0a4d:0001',
    });
  });

  it('by another name is refused, naming the near one; so is a GID index that is not there', () => {
    expect(run.output[0]).toMatch(/no RDMA device is named 'rxe1' \(did you mean rxe0\?\)/);
    expect(run.output[0]).toContain('wrong device: 2');
    expect(run.output[0]).toMatch(/GID index 99 is empty or out of range; usable ones, best first: 1/);
    expect(run.output[0]).toContain('wrong GID: 2');
  });
});

describe('bench rdma', () => {
  interface Rdma {
    results: Record<string, number | string>[];
    latency: { samples: number; p50_us: number; perftest: { p50_us: number } }[];
    batching: { gain: number };
  }

  it('moves bytes with one post and one completion a chain, beside perftest', () => {
    const { results, batching } = run.json('rdma.json') as Rdma;
    expect(results, run.output[0]).toBeDefined();
    expect(results.map((row) => [row['test'], row['size_bytes']])).toEqual([
      ['write', 4096],
      ['read', 4096],
    ]);
    for (const row of results) {
      expect(row['chains']).toBeGreaterThan(0);
      expect([row['post_calls'], row['completions']]).toEqual([row['chains'], row['chains']]);
      expect(row['perftest_bytes_per_s']).toBeGreaterThan(0);
      expect(row['ratio']).toBeGreaterThan(0);
    }
    expect(batching.gain).toBeGreaterThan(0);
  });

  it('measures latencies by both', () => {
    const { latency } = run.json('rdma.json') as Rdma;
    expect(latency).toHaveLength(1);
    for (const { samples, p50_us: ours, perftest } of latency) {
      expect(samples).toBe(1000);
      expect(Math.min(ours, perftest.p50_us)).toBeGreaterThan(0);
    }
  });

  it('says that classes need a wire', () => {
    expect(run.output[0]).toMatch(/packets to oneself never reach a queue: this needs two hosts/);
    expect(run.output[0]).toContain('one host: 2');
  });
});

describe('copies through the NIC', () => {
  it('are measured beside memcpy', () => {
    interface Way {
      readonly bytes_per_s: number;
      readonly carried_share: number;
      readonly mismatched_blocks: number;
    }
    const { results } = run.json('copy.json') as {
      results: { ways: Record<'nic' | 'memcpy', Way>; nic: { post_calls_per_chain: number } }[];
    };
    expect(results.length).toBeGreaterThan(0);
    for (const { ways, nic } of results) {
      for (const way of [ways.nic, ways.memcpy]) {
        expect(way.bytes_per_s).toBeGreaterThan(0);
        expect(way).toMatchObject({ carried_share: 1, mismatched_blocks: 0 });
      }
      expect(nic.post_calls_per_chain).toBe(1);
    }
  });

  it('carry all of a replay, every byte right', () => {
    const { modes } = run.json('replay.json') as {
      modes: Record<
        string,
        {
          verified_bytes: number;
          mismatched_bytes: number;
          copies: { bytes: Record<string, number>; nic: string };
        }
      >;
    };
    const { verified_bytes, mismatched_bytes, copies } = modes['split']!;
    expect(verified_bytes).toBeGreaterThan(0);
    expect(mismatched_bytes).toBe(0);
    expect(copies.bytes['nic']).toBeGreaterThan(0);
    expect(copies.bytes).toMatchObject({ memcpy: 0, cuda: 0 });
    expect(copies.nic).toContain('rxe0');
  });
});
