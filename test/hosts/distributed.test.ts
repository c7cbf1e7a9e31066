/** Engines in processes of their own, over shared memory; the built command is what is started. */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { ControlNode, Rpc } from '../../src/control/index.js';
import { EngineProcesses, findEngines, RemoteEngines } from '../../src/hosts/index.js';
import { replayMode, summarize, type OpenCluster } from '../../src/replay/index.js';
import { cluster, workload } from '../replay/support.js';

const folder = mkdtempSync(join(tmpdir(), 'dualpath-distributed-'));
/** Starting processes takes long on a loaded machine. */
const patienceMs = 60_000;

const { layout } = cluster();
let processes: EngineProcesses;
let node: ControlNode;
let openCluster: OpenCluster;

beforeAll(async () => {
  processes = await EngineProcesses.start({
    ...{ prefill: 2, decode: 1 },
    args: [
      ...['--model', layout.model.name, '--block-size', String(layout.blockTokens), '--store', folder],
      ...['--transport', 'shared-memory'],
    ],
  });
  const timing = { pingMs: 50, deadMs: 5000, goneMs: 300, firstRedialMs: 5 };
  node = await ControlNode.open({ name: 'driver', identity: layout.identity, timing });
  const rpc = new Rpc(node);
  const found = await findEngines(node, rpc, processes.addresses);
  expect(found.every(({ transport }) => transport === 'shared-memory')).toBe(true);
  const timeModel = { baseS: 0.0005, perNewTokenS: 1e-6, perAttentionTokenS: 0, perAttentionPairS: 0 };
  openCluster = new RemoteEngines(node, rpc, found, { timeModel, canaries: true }).open;
}, patienceMs);

afterAll(async () => {
  await (node as ControlNode | undefined)?.close();
  await (processes as EngineProcesses | undefined)?.close();
  rmSync(folder, { recursive: true, force: true });
}, patienceMs);

const sum = (bytes: Readonly<Record<string, number>>): number =>
  Object.values(bytes).reduce((total, one) => total + one, 0);

describe('a replay on engine processes of this host', () => {
  it.each(['dualpath', 'split'] as const)(
    '%s: verifies the same bytes as in one process',
    async (mode) => {
      const load = await workload(4, 3);
      const options = cluster({ storePath: join(folder, `run-${mode}`), concurrency: 1 });
      const here = summarize(await replayMode(load, cluster({ concurrency: 1 }), mode), 2);
      const there = summarize(await replayMode(load, options, mode, { openCluster }), 2);
      expect(there).toMatchObject({
        turns: here.turns,
        hitRate: here.hitRate,
        verified: here.verified,
        ...{ mismatchedBytes: 0, lostBlocks: 0, persistError: null, retries: 0 },
        transport: 'shared-memory',
      });
      expect(there.canaries!.mismatchedBytes).toBe(0);
      expect(sum(there.storageReadBytes)).toBe(sum(here.storageReadBytes));
      expect(sum(there.storageWriteBytes)).toBe(sum(here.storageWriteBytes));
    },
    patienceMs,
  );

  it(
    'goes on when an engine process is killed, and nothing is wrong',
    async () => {
      const load = await workload(6, 4);
      let killed: Promise<void> | undefined;
      const options = cluster({ storePath: join(folder, 'killed') });
      const result = await replayMode(load, options, 'split', {
        openCluster,
        onTurn: (done) => {
          if (done === 5) killed = processes.kill('prefill-0');
        },
      });
      expect(killed).toBeDefined();
      await killed;
      const summary = summarize(result, 2);
      expect(summary.turns).toBe(load.sessions.reduce((turns, session) => turns + session.turns.length, 0));
      expect(summary.mismatchedBytes).toBe(0);
      expect(summary.canaries!.mismatchedBytes).toBe(0);
    },
    patienceMs,
  );

  it('says what an engine said that does not come up', async () => {
    const starting = EngineProcesses.start({ prefill: 1, decode: 1, args: ['--model', 'nonesuch'] });
    await expect(starting).rejects.toMatchObject({
      code: 'PEER_LOST',
      message: expect.stringMatching(/before it came up.*nonesuch/s) as string,
    });
  });
});
