import { createHash } from 'node:crypto';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import {
  dataSets,
  dataSetStatistics,
  generateTrace,
  loadWorkload,
  type DataSetName,
  type DataSetStatistics,
  type GeneratedSession,
  type GenerateOptions,
} from '../../src/trace/index.js';

const names = Object.keys(dataSets) as DataSetName[];

function generate(changes: Partial<GenerateOptions> = {}): GeneratedSession[] {
  return [...generateTrace({ dataSet: '64k', trajectories: 20, seed: 1, ...changes })];
}

function lines(sessions: readonly GeneratedSession[]): string {
  return sessions.map((session) => `${JSON.stringify(session)}\n`).join('');
}

describe('generated traces', () => {
  // Results are compared over versions: a change of a generator must be meant, and then changes these.
  it.each([
    ['32k', '9bf639e88394644b'],
    ['48k', 'a3608a5b50b1d7b9'],
    ['64k', 'df894890cbfc8789'],
  ] as const)('%s are frozen', (dataSet, hash) => {
    const text = lines(generate({ dataSet, trajectories: 50, agents: 60, agentsPerS: 0.5 }));
    expect(createHash('sha256').update(text).digest('hex').slice(0, 16)).toBe(hash);
  });

  it.each(names)("%s have the table's statistics", (dataSet) => {
    const { published } = dataSets[dataSet];
    const generated = dataSetStatistics(generateTrace({ dataSet, trajectories: 5000, seed: 2 }));
    for (const name of Object.keys(published) as (keyof DataSetStatistics)[]) {
      expect(Math.abs(generated[name] / published[name] - 1), name).toBeLessThan(0.03);
    }
  });

  it.each(names)('%s stay within the maximum length', (dataSet) => {
    for (const { turns } of generate({ dataSet, trajectories: 500, agents: 700 })) {
      const total = turns.reduce((sum, { append, output }) => sum + append + output, 0);
      expect(total).toBeLessThanOrEqual(dataSets[dataSet].maxTokens);
      expect(turns.every(({ append, output }) => append >= 1 && output >= 1)).toBe(true);
    }
  });

  it('have more agents than trajectories by a turn of random tokens in front', () => {
    const sessions = generate({ trajectories: 20, agents: 30 });
    expect(sessions).toHaveLength(30);
    const [first, again] = [sessions[3]!, sessions[23]!];
    expect(again.id).not.toBe(first.id);
    expect(again.turns[0]).toEqual({ append: 63, output: 1 }); // one block, so later blocks start where they did
    expect(again.turns.slice(1)).toEqual(first.turns.slice(0, again.turns.length - 1));
  });

  it('do not depend on how many are asked for', () => {
    expect(generate({ trajectories: 40 }).slice(0, 20)).toEqual(generate({ trajectories: 20 }));
    expect(generate({ seed: 2 })[0]!.turns).not.toEqual(generate()[0]!.turns);
  });

  it('arrive as a Poisson process of the rate asked for', () => {
    const sessions = generate({ trajectories: 4000, agentsPerS: 2 });
    const arrivalsMs = sessions.map(({ turns }) => turns[0]!.arrival_ms!);
    const gapsS = arrivalsMs.map((at, i) => (at - (arrivalsMs[i - 1] ?? 0)) / 1000);
    const mean = gapsS.reduce((sum, gap) => sum + gap, 0) / gapsS.length;
    const variance = gapsS.reduce((sum, gap) => sum + (gap - mean) ** 2, 0) / gapsS.length;
    expect(mean).toBeCloseTo(0.5, 1);
    expect(Math.sqrt(variance) / mean).toBeCloseTo(1, 1); // as exponential gaps have
  });

  it('are read by loadWorkload, session for session', async () => {
    const directory = mkdtempSync(join(tmpdir(), 'dualpath-generate-'));
    try {
      const path = join(directory, 'trace.jsonl');
      const sessions = generate({ agents: 25, agentsPerS: 1 });
      writeFileSync(path, lines(sessions));
      const workload = await loadWorkload(path);
      expect(workload).toMatchObject({ format: 'dualpath', clock: 'trace' });
      expect(workload.sessions.map(({ id }) => id)).toEqual(sessions.map(({ id }) => id));
      const { turns } = workload.sessions[0]!;
      const total = sessions[0]!.turns.reduce((sum, { append, output }) => sum + append + output, 0);
      expect(turns.at(-1)!.promptTokens + turns.at(-1)!.outputTokens).toBe(total);
    } finally {
      rmSync(directory, { recursive: true, force: true });
    }
  });

  it.each([
    [{ dataSet: '16k' as '32k' }, /dataset is 16k: give 32k, 48k, 64k/],
    [{ trajectories: 0 }, /trajectories is 0/],
    [{ agents: 1.5 }, /agents is 1.5/],
    [{ seed: -1 }, /seed is -1/],
    [{ agentsPerS: 0 }, /arrival rate is 0/],
  ])('refuse %j', (changes, message) => {
    expect(() => generate(changes)).toThrow(message);
  });
});
