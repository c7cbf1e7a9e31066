import { mkdtempSync, readFileSync, readdirSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { dualpath } from './support.js';

const sample = 'examples/traces/agent-sessions-sample.jsonl';
const small = [
  ...['--sessions', '4', '--turns', '3', '--scale', '0.004', '--snic-rate', '200MB/s'],
  ...[
    '--prefill-buffer',
    '8MiB',
    '--decode-buffer',
    '16MiB',
    '--prefill-hbm',
    '8MiB',
    '--decode-hbm',
    '16MiB',
  ],
];

describe('dualpath replay', () => {
  it('prints one document with the figures of each mode', async () => {
    const store = mkdtempSync(join(tmpdir(), 'dualpath-cli-'));
    const { code, stdout } = await dualpath([
      'replay',
      sample,
      ...small,
      '--mode',
      'basic,layerwise,dualpath,split,oracle',
      '--store',
      store,
      ...['--json', '--report', join(store, 'made/page.html')],
    ]);
    expect(code).toBe(0);
    const page = readFileSync(join(store, 'made/page.html'), 'utf8');
    for (const id of [
      'ttft',
      'layers-basic',
      'layers-split',
      'storage-split',
      'compute-split',
      'storage-oracle',
    ])
      expect(page.includes(`<div class="plot" id="${id}">`)).toBe(true);
    const document = JSON.parse(stdout) as Record<string, never>;
    expect(Object.keys(document['modes']!)).toEqual(['basic', 'layerwise', 'dualpath', 'split', 'oracle']);
    expect(document).toMatchObject({
      modes: {
        split: {
          mismatched_bytes: 0,
          verified_bytes: expect.any(Number),
          prompt_tokens_per_s: expect.any(Number),
          ttft_ms: { p50: expect.any(Number), p90: expect.any(Number), p99: expect.any(Number) },
          storage_read_bytes: { 'prefill-node-0': expect.any(Number), 'decode-node-0': expect.any(Number) },
        },
      },
      speedup_baseline: 'layerwise',
      speedup: { layerwise: 1, split: expect.any(Number) },
      cpu_percent: expect.any(Number),
      valid: expect.any(Boolean),
    });
    expect(readdirSync(store)).toEqual(['made']);
  }, 60_000);

  it('prints a table and what was emulated', async () => {
    const { code, stdout, stderr } = await dualpath([
      'replay',
      sample,
      ...small,
      '--mode',
      'layerwise,split',
    ]);
    expect(code).toBe(0);
    expect(stderr).toContain('loopback');
    expect(stdout).toMatch(/layerwise.*1\.00x/);
    expect(stdout).toContain('emulated HBM');
  });

  it.each([
    [['--mode', 'fast'], /'fast' is no mode/],
    [['--model', 'nonesuch'], /nonesuch.*demo/s],
    [['--prefill', '0'], /prefill/],
    [['--snic-rate', 'quick'], /snic-rate/],
    [['--decode-hbm', '1TiB'], /available on this machine/],
    [['--decode-buffer', '64KiB'], /--decode-buffer|decode buffer/],
    [['--block-size', '100000'], /block/],
  ])('refuses %j, saying what would do', async (extra, message) => {
    const { code, stderr } = await dualpath(['replay', sample, ...small, ...extra]);
    expect(code).not.toBe(0);
    expect(stderr).toMatch(message);
  });

  it('takes one token, one layer, and a block larger than the context', async () => {
    const directory = mkdtempSync(join(tmpdir(), 'dualpath-cli-'));
    const model = join(directory, 'one-layer.json');
    writeFileSync(
      model,
      JSON.stringify({
        name: 'one-layer',
        revision: '1',
        dtype: 'u8',
        layers: 1,
        groups: [
          { name: 'kv', layers: 'all', planes: [{ name: 'kv', bytes_per_token: 3 }], sharding: 'replicated' },
        ],
      }),
    );
    const trace = join(directory, 'tiny.jsonl');
    const turns = [
      { append: 1, output: 1 },
      { append: 1, output: 0 },
      { append: 5, output: 3 },
    ];
    writeFileSync(trace, `${JSON.stringify({ format: 'dualpath', version: 1, id: 'tiny', turns })}\n`);
    for (const size of ['1', '4', '512']) {
      const { code, stdout, stderr } = await dualpath([
        'replay',
        trace,
        '--scale',
        '1',
        '--model',
        model,
        '--block-size',
        size,
        '--decode-hbm',
        '1MiB',
        '--prefill-buffer',
        '1MiB',
        '--decode-buffer',
        '1MiB',
        '--prefill-hbm',
        '1MiB',
        '--mode',
        'layerwise,split',
        '--json',
      ]);
      expect({ size, code, stderr: code === 0 ? '' : stderr }).toEqual({ size, code: 0, stderr: '' });
      const { modes } = JSON.parse(stdout) as {
        modes: Record<string, { mismatched_bytes: number; turns: number }>;
      };
      expect(modes['split']).toMatchObject({ mismatched_bytes: 0, turns: 3 });
    }
  });

  it('names file and line of a malformed trace', async () => {
    const trace = join(mkdtempSync(join(tmpdir(), 'dualpath-cli-')), 'bad.jsonl');
    writeFileSync(
      trace,
      '{"format": "dualpath", "version": 1, "id": "a", "turns": [{"append": -1, "output": 1}]}\n',
    );
    const { code, stderr } = await dualpath(['replay', trace]);
    expect(code).toBe(2);
    expect(stderr).toMatch(/bad\.jsonl.*1.*append/s);
  });
});
