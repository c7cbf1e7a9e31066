import { describe, expect, it } from 'vitest';
import { loadWorkload, traceStatistics } from '../../src/trace/index.js';
import { agentSample, conversationSample } from '../trace/support.js';
import { dualpath } from './support.js';

interface StatDocument {
  trace: { format: string; clock: string; seed: number; scale: number; left_out: Record<string, number> };
  statistics: Record<string, unknown> & {
    block_tokens: number;
    in_session_hit: { hit: number; rate: number };
    turns: { total: number };
    prompt_tokens: { total: number };
  };
}

async function stat(...argv: string[]): Promise<StatDocument> {
  const { code, stdout, stderr } = await dualpath(['trace', 'stat', ...argv, '--json']);
  expect([code, stderr]).toEqual([0, '']);
  return JSON.parse(stdout) as StatDocument;
}

describe('dualpath trace stat', () => {
  it('prints the statistics of the workload as one document with snake_case keys', async () => {
    const document = await stat(agentSample);
    const statistics = await traceStatistics(await loadWorkload(agentSample));
    expect(document.trace).toMatchObject({ format: 'claude-code', clock: 'session', seed: 0, scale: 1 });
    expect(document.statistics).toMatchObject({
      sessions: 20,
      block_tokens: 64,
      in_session_hit: statistics.inSessionHit,
      prompt_tokens: statistics.promptTokens,
      trace_duration_s: null,
      session_duration_s: statistics.sessionDurationS,
    });
    expect(JSON.stringify(document).match(/"[a-z_]*[A-Z]\w*":/g)).toBeNull();
  });

  it('passes every option on', async () => {
    const options = { sessions: 6, minTurns: 3, turns: 4, maxContextTokens: 60_000, scale: 0.5, seed: 11 };
    const workload = await loadWorkload(agentSample, options);
    const document = await stat(
      ...[agentSample, '--format', 'claude-code', '--sessions', '6', '--min-turns', '3', '--turns', '4'],
      ...[
        '--max-context',
        '60000',
        '--scale',
        '0.5',
        '--seed',
        '11',
        '--block-size',
        '16',
        '--include-duplicates',
      ],
    );
    expect(document.trace).toMatchObject({
      seed: 11,
      scale: 0.5,
      left_out: {
        oversized_sessions: workload.leftOut.oversizedSessions,
        short_sessions: workload.leftOut.shortSessions,
        unselected_sessions: workload.leftOut.unselectedSessions,
        turns_past_context: workload.leftOut.turnsPastContext,
        turns_past_cap: workload.leftOut.turnsPastCap,
      },
    });
    const { promptTokens, inSessionHit } = await traceStatistics(workload, { blockTokens: 16 });
    expect(document.statistics).toMatchObject({ prompt_tokens: promptTokens, in_session_hit: inSessionHit });
  });

  it("takes the trace's own block size for mooncake", async () => {
    expect((await stat(conversationSample)).statistics.block_tokens).toBe(512);
    expect((await stat(conversationSample, '--block-size', '64')).statistics.block_tokens).toBe(64);
  });

  it('prints tables for people', async () => {
    const { code, stdout, stderr } = await dualpath(['trace', 'stat', agentSample, '--sessions', '5']);
    expect([code, stderr]).toEqual([0, '']);
    expect(stdout).toContain('claude-code, 5 sessions, 160 turns');
    expect(stdout).toContain('left out: 15 sessions not chosen');
    expect(stdout).toMatch(/in-session, blocks of 64 tokens +│ +[\d,]+ │ +[\d,]+ │ +\d\d\.\d % │/);
    expect((await dualpath(['trace', 'stat', conversationSample])).stdout).toContain('trace duration: 72 s');
  });

  it('shows progress on a terminal only, and not when quiet', async () => {
    const loud = await dualpath(['trace', 'stat', agentSample, '--json'], { tty: true });
    expect(loud.stderr).toContain('walking sessions');
    expect(JSON.parse(loud.stdout)).toHaveProperty('statistics');
    const quiet = await dualpath(['trace', 'stat', agentSample, '--quiet'], { tty: true });
    expect(quiet.stderr).toBe('');
  });
});

describe('dualpath trace generate', () => {
  const options = ['--dataset', '48k', '--trajectories', '20', '--agents', '25', '--seed', '3'];

  it('writes a session a line, and the statistics beside the published ones to stderr', async () => {
    const { code, stdout, stderr } = await dualpath(['trace', 'generate', ...options, '--arrival-rate', '2']);
    expect(code).toBe(0);
    const lines = stdout
      .trimEnd()
      .split('\n')
      .map((line) => JSON.parse(line) as { id: string });
    expect(lines).toHaveLength(25);
    expect(lines[24]).toMatchObject({ format: 'dualpath', id: '48k-3-24', turns: expect.any(Array) });
    expect(stderr).toMatch(/published +│ +106 │ +474 │ +172 │ +42,607 │ +25,120/);
  });

  it('with --json prints the statistics alone', async () => {
    const { stdout } = await dualpath(['trace', 'generate', ...options, '--json', '--quiet']);
    expect(JSON.parse(stdout)).toMatchObject({
      dataset: '48k',
      agents: 25,
      generated: { total_tokens: expect.any(Number) },
      published: { total_tokens: 42_607 },
    });
  });

  it('refuses what it does not know', async () => {
    const { code, stderr } = await dualpath(['trace', 'generate', '--dataset', '16k']);
    expect(code).toBe(2);
    expect(stderr).toContain('32k, 48k, 64k');
  });
});
