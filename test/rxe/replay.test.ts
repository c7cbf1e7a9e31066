/** A replay over two hosts, in small: the storage link of each is throttled by the emulator, the rest is as it is. */
import { mkdirSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { runOnHosts, type HostsRun } from './hosts.js';

interface Mode {
  readonly verified_bytes: number;
  readonly mismatched_bytes: number;
  readonly persist_error: string | null;
  readonly storage_read_bytes: Record<string, number>;
  readonly transport: string;
  readonly canaries: { readonly checked_bytes: number; readonly mismatched_bytes: number };
}

const memory = ['--prefill-buffer', '--decode-buffer', '--prefill-hbm', '--decode-hbm'].map(
  (option) => `${option} 16MiB`,
);

let folder: string;
let run: HostsRun;
let modes: Record<'layerwise' | 'dualpath', Mode>;

beforeAll(async () => {
  folder = mkdtempSync(join(tmpdir(), 'dualpath-store-'));
  const store = join(folder, 'store');
  mkdirSync(store);
  const line =
    `sh scripts/rxe/replay.sh ${store} ` +
    'examples/traces/agent-sessions-sample.jsonl --sessions 3 --turns 3 --scale 0.0078125 ' +
    `--mode layerwise,dualpath --canaries --json ${memory.join(' ')} >$DUALPATH_OUT/replay.json`;
  run = await runOnHosts([line, line], { shares: [{ path: store, readBytesPerS: 1_000_000 }] });
  expect(run.statuses, run.output.join('\n')).toEqual([0, 0]);
  ({ modes } = run.json('replay.json') as { modes: typeof modes });
});
afterAll(() => {
  run.remove();
  rmSync(folder, { recursive: true, force: true });
});

describe.each(['layerwise', 'dualpath'] as const)('a replay over two hosts, %s,', (name) => {
  it('has every byte right, at the engines and in the store that both write', () => {
    const { verified_bytes, mismatched_bytes, persist_error, transport, canaries } = modes[name];
    expect(verified_bytes).toBeGreaterThan(0);
    expect([mismatched_bytes, canaries.mismatched_bytes]).toEqual([0, 0]);
    expect(canaries.checked_bytes).toBeGreaterThan(0);
    expect(persist_error).toBeNull();
    expect(transport).toBe('verbs');
  });
});

it('reads on the prefill side alone, or on both', () => {
  const reads = (mode: Mode): number[] => Object.values(mode.storage_read_bytes);
  expect(reads(modes.layerwise)[1]).toBe(0);
  expect(Math.min(...reads(modes.dualpath))).toBeGreaterThan(0);
});
