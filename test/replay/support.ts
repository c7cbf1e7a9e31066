import { mkdtempSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { blockLayout, loadModel } from '../../src/layout/index.js';
import type { ClusterOptions } from '../../src/replay/index.js';
import { LinearTimeModel } from '../../src/scheduler/index.js';
import { loadWorkload, type Workload } from '../../src/trace/index.js';

export const sample = 'examples/traces/agent-sessions-sample.jsonl';

/** A few short sessions of the sample. */
export function workload(sessions = 6, turns = 4, scale = 1 / 256): Promise<Workload> {
  return loadWorkload(sample, { sessions, turns, scale, maxContextTokens: 262_144 });
}

export function cluster(overrides: Partial<ClusterOptions> = {}): ClusterOptions {
  const directory = mkdtempSync(join(tmpdir(), 'dualpath-test-'));
  return {
    layout: blockLayout(loadModel('demo'), { blockTokens: 64 }),
    prefillNodes: 1,
    decodeNodes: 1,
    enginesPerNode: 1,
    snicBytesPerS: 200e6,
    cnicBytesPerS: 0,
    prefillBufferBytes: 16 << 20,
    decodeBufferBytes: 32 << 20,
    prefillHbmBytes: 16 << 20,
    decodeHbmBytes: 32 << 20,
    windowLayers: 4,
    timeModel: new LinearTimeModel({
      baseS: 0.0005,
      perNewTokenS: 1e-6,
      perAttentionTokenS: 0,
      perAttentionPairS: 0,
    }),
    quotaS: 0.3,
    decodeStepS: 0.0001,
    concurrency: Number.POSITIVE_INFINITY,
    storePath: join(directory, 'store'),
    seed: 1,
    ...overrides,
  };
}
