/** Engines and a scheduler in processes of their own, over shared memory; the built command is what is started. */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { ControlNode, Rpc } from '../../src/control/index.js';
import { EngineProcesses, findEngines, RemoteEngines, SchedulerProcess } from '../../src/hosts/index.js';
import { replayMode, summarize, type OpenCluster } from '../../src/replay/index.js';
import { cluster, workload } from '../replay/support.js';

const folder = mkdtempSync(join(tmpdir(), 'dualpath-distributed-'));
/** Starting processes takes long on a loaded machine. */
const patienceMs = 60_000;

const { layout } = cluster();
let processes: EngineProcesses;
let node: ControlNode;
/** Of the run under way. */
let scheduler: SchedulerProcess;
let engines: RemoteEngines;
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
  engines = new RemoteEngines(node, rpc, found, {
    ...{ timeModel, canaries: true },
    serve: async (policy) => {
      const model = ['--model', layout.model.name, '--block-size', String(layout.blockTokens)];
      scheduler = await SchedulerProcess.start([
        ...model,
        '--policy',
        policy,
        '--grace',
        '0',
        '--lease',
        '2',
        '--max-tries',
        '9',
      ]);
      return scheduler;
    },
  });
  openCluster = engines.open;
}, patienceMs);

afterAll(async () => {
  await (node as ControlNode | undefined)?.close();
  await (processes as EngineProcesses | undefined)?.close();
  rmSync(folder, { recursive: true, force: true });
}, patienceMs);

const restart = async (name: string): Promise<void> =>
  engines.rejoin(name, await processes.killAndRestart(name));

const sum = (bytes: Readonly<Record<string, number>>): number =>
  Object.values(bytes).reduce((total, one) => total + one, 0);

describe('a replay on engine processes of this host, which join dualpath serve', () => {
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
    'goes on when the scheduler and engines are killed, one of them started again under its name; nothing is wrong',
    async () => {
      const load = await workload(6, 4);
      const killed: Promise<void>[] = [];
      const options = cluster({ storePath: join(folder, 'killed') });
      const result = await replayMode(load, options, 'split', {
        openCluster,
        onTurn: (done) => {
          if (done === 3) killed.push(scheduler.killAndRestart());
          if (done === 8) killed.push(restart('prefill-1'));
          if (done === 14) killed.push(killed[1]!.then(() => processes.kill('prefill-0')));
        },
      });
      expect(killed).toHaveLength(3);
      await Promise.all(killed);
      const summary = summarize(result, 2);
      expect(summary.turns).toBe(load.sessions.reduce((turns, session) => turns + session.turns.length, 0));
      expect(summary.mismatchedBytes).toBe(0);
      expect(summary.canaries!.mismatchedBytes).toBe(0);
    },
    patienceMs,
  );

  it(
    'ends when it is asked to, though its input goes on',
    async () => {
      const args = [
        'engine',
        '--role',
        'prefill',
        '--transport',
        'shared-memory',
        '--until-input-ends',
        '--json',
      ];
      const child = spawn(process.execPath, ['dist/cli/main.js', ...args], {
        stdio: ['pipe', 'pipe', 'pipe'],
      });
      child.stderr.once('data', () => child.kill('SIGTERM'));
      const document = JSON.parse(await text(child.stdout)) as object;
      expect(document).toMatchObject({ role: 'prefill', runs: 0 });
      expect(child.exitCode ?? (await once(child, 'exit'))[0]).toBe(0);
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
