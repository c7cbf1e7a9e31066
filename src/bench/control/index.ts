/** What the control plane carries: requests through gRPC on loopback, from front ends to engines and back. */
import { once } from 'node:events';
import { performance } from 'node:perf_hooks';
import { Worker } from 'node:worker_threads';
import { SchedulerServer } from '../../serve/index.js';
import type { ControlLoadOptions, ControlLoadResult } from './types.js';

export type { ControlLoadResult } from './types.js';

export interface ControlBenchOptions {
  /** A third of them prefill; default 144. */
  readonly engines?: number;
  readonly groupEngines?: number;
  readonly clients?: number;
  /** Requests under way where as many as go are measured; default 1,024. */
  readonly outstanding?: number;
  /** Of the open loop; default 5,000. */
  readonly perS?: number;
  readonly seconds?: number;
  readonly samples?: number;
  readonly signal?: AbortSignal;
  readonly onProgress?: (step: string) => void;
}

export interface ControlBenchResult {
  readonly engines: number;
  readonly groups: number;
  readonly clients: number;
  /** Median of the samples. */
  readonly requestsPerS: number;
  readonly samplesPerS: readonly number[];
  readonly atRate: readonly (ControlLoadResult & { readonly ratePerS: number })[];
  /** Median over the samples at the rate. */
  readonly p99Ms: number;
  readonly failed: number;
  /** Of the scheduler's thread at the highest rate, and at the set one. */
  readonly schedulerBusyShare: { readonly most: number; readonly atRate: number };
}

export async function benchControl(options: ControlBenchOptions = {}): Promise<ControlBenchResult> {
  const { engines = 144, groupEngines = 8, clients = 4, outstanding = 1024, perS = 5000 } = options;
  const { seconds = 3, samples = 5, signal, onProgress } = options;
  const model = 'bench';
  const server = await SchedulerServer.open({
    listen: { host: '127.0.0.1', port: 0 },
    leases: {
      ...{ model, policy: 'shorter-queue', blockTokens: 64, blockBytes: 64 * 48_068 },
      ...{ decodeSpareBlocks: 2, seed: 1, graceS: 0, leaseS: 30 },
    },
  });
  const endpoint = `127.0.0.1:${server.address.port}`;
  const workerData: ControlLoadOptions = { endpoint, model, engines, groupEngines, clients };
  const worker = new Worker(new URL('./load.js', import.meta.url), { workerData });
  const ask = async (what: object): Promise<ControlLoadResult> => {
    worker.postMessage(what);
    const [{ result, error }] = (await once(worker, 'message')) as [
      { result: ControlLoadResult; error?: string },
    ];
    if (error !== undefined) throw new Error(error);
    return result;
  };
  const busy = async <T>(run: () => Promise<T>): Promise<{ readonly value: T; readonly share: number }> => {
    const before = performance.eventLoopUtilization();
    const value = await run();
    return { value, share: performance.eventLoopUtilization(before).utilization };
  };
  try {
    const most: { readonly value: ControlLoadResult; readonly share: number }[] = [];
    const atRate: typeof most = [];
    for (let i = 0; i < samples; i++) {
      signal?.throwIfAborted();
      onProgress?.(`sample ${i + 1} of ${samples}`);
      most.push(await busy(() => ask({ outstanding, seconds })));
      atRate.push(await busy(() => ask({ perS, seconds })));
    }
    const groups = server.ledger?.statistics().groups ?? 0;
    await ask({ end: true, seconds: 0 });
    return {
      ...{ engines, groups, clients },
      requestsPerS: median(most.map(({ value }) => value.perS)),
      samplesPerS: most.map(({ value }) => value.perS),
      atRate: atRate.map(({ value }) => ({ ratePerS: perS, ...value })),
      p99Ms: median(atRate.map(({ value }) => value.p99Ms)),
      failed: [...most, ...atRate].reduce((sum, { value }) => sum + value.failed, 0),
      schedulerBusyShare: {
        most: median(most.map(({ share }) => share)),
        atRate: median(atRate.map(({ share }) => share)),
      },
    };
  } finally {
    await worker.terminate();
    await server.close();
  }
}

function median(values: readonly number[]): number {
  return [...values].sort((a, b) => a - b)[Math.floor(values.length / 2)] ?? NaN;
}
