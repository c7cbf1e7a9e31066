import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, describe, expect, it } from 'vitest';
import type { Address, ControlNode } from '../../src/control/index.js';
import type { EngineHostOptions } from '../../src/hosts/index.js';
import { replayMode, summarize, type ReplayMode } from '../../src/replay/index.js';
import { cluster, workload } from '../replay/support.js';
import { Fleet } from './fleet.js';

const fleets: Fleet[] = [];
afterEach(async () => {
  for (const fleet of fleets.splice(0)) await fleet.close();
});

function open(): Fleet {
  const fleet = new Fleet(cluster().layout);
  fleets.push(fleet);
  return fleet;
}

describe('a replay on engines behind control connections', () => {
  it.each(['layerwise', 'dualpath', 'split', 'basic'] as ReplayMode[])(
    '%s: the same bytes are checked and right as in one process',
    async (mode) => {
      const fleet = open();
      const { engines, open: openCluster } = await fleet.drive([
        await fleet.engine('p0', 'prefill'),
        await fleet.engine('d0', 'decode'),
      ]);
      expect(engines.map(({ name, role }) => `${name} ${role}`)).toEqual(['p0 prefill', 'd0 decode']);
      const load = await workload(4, 3);
      const options = cluster({ storePath: join(fleet.folder, 'run'), concurrency: 1 });
      const here = summarize(await replayMode(load, cluster({ concurrency: 1 }), mode), 2);
      const there = summarize(await replayMode(load, options, mode, { openCluster }), 2);
      expect(there).toMatchObject({
        turns: here.turns,
        hitRate: here.hitRate,
        verified: here.verified,
        ...{ mismatchedBytes: 0, lostBlocks: 0, persistError: null, retries: 0, transport: 'loopback' },
      });
      expect(there.canaries!.checkedBytes).toBeGreaterThan(0);
      expect(there.canaries!.mismatchedBytes).toBe(0);
      const read = Object.values(there.storageReadBytes).reduce((sum, bytes) => sum + bytes, 0);
      expect(read).toBe(Object.values(here.storageReadBytes).reduce((sum, bytes) => sum + bytes, 0));
      expect(existsSync(options.storePath)).toBe(false);
      expect(fleet.notes.at(-1)).toContain('its driver is through with it');
    },
  );

  it('counts each run of the same engines from its own beginning', async () => {
    const fleet = open();
    const { open: openCluster } = await fleet.drive([
      await fleet.engine('p0', 'prefill'),
      await fleet.engine('d0', 'decode'),
    ]);
    const load = await workload(2, 2);
    const options = cluster({ storePath: join(fleet.folder, 'run'), concurrency: 1 });
    const run = async (): Promise<unknown> =>
      summarize(await replayMode(load, options, 'layerwise', { openCluster }), 2).storageReadBytes;
    expect(await run()).toEqual(await run());
  });

  it('goes on with the other decode engine when one is killed, its requests tried once more', async () => {
    const fleet = open();
    const addresses = [
      await fleet.engine('p0', 'prefill'),
      await fleet.engine('d0', 'decode'),
      await fleet.engine('d1', 'decode'),
    ];
    const { open: openCluster } = await fleet.drive(addresses);
    const load = await workload(6, 4);
    let killed = false;
    const result = await replayMode(load, cluster({ storePath: join(fleet.folder, 'run') }), 'dualpath', {
      openCluster,
      onTurn: (turns) => {
        if (turns < 4 || killed) return;
        killed = true;
        const { host, node } = fleet.members.get('d1')!;
        void node.close().then(() => host.close());
      },
    });
    const summary = summarize(result, 2);
    expect(summary.turns).toBe(load.sessions.reduce((sum, { turns }) => sum + turns.length, 0));
    expect(summary.mismatchedBytes + summary.canaries!.mismatchedBytes).toBe(0);
    expect(Object.keys(summary.storageReadBytes)).toHaveLength(2);
  });

  it.each([
    ['prefilled', 'p1'],
    ['ended', 'd1'],
  ])(
    'goes on when an engine dies that has told the scheduler, and not the replay: %s',
    async (event, name) => {
      const fleet = open();
      const addresses = [];
      for (const prefill of ['p0', 'p1']) addresses.push(await fleet.engine(prefill, 'prefill'));
      for (const decode of ['d0', 'd1']) addresses.push(await fleet.engine(decode, 'decode'));
      const { host, node } = fleet.members.get(name)!;
      const send = node.send.bind(node);
      let silenced = 0;
      node.send = (to, channel, body) => {
        if ((body as { event?: string }).event !== event) return send(to, channel, body);
        if (silenced++ === 0) setImmediate(() => void node.close().then(() => host.close()));
        return true;
      };
      const { open: openCluster } = await fleet.drive(addresses);
      const load = await workload(6, 4);
      const storePath = join(fleet.folder, 'run');
      const result = await replayMode(load, cluster({ storePath }), 'dualpath', { openCluster });
      expect(silenced).toBeGreaterThan(0);
      const { turns, mismatchedBytes, lostEngines } = summarize(result, 2);
      expect(turns).toBe(load.sessions.reduce((sum, { turns: all }) => sum + all.length, 0));
      expect([mismatchedBytes, lostEngines]).toEqual([0, [name]]);
    },
  );

  it('begins without an engine that dies while the run is opened, unless it is the last of its role', async () => {
    const dying = ({ node }: { node: ControlNode }): Partial<EngineHostOptions> => ({
      note: (text) => {
        if (text.startsWith('run by')) void node.close();
      },
    });
    const load = await workload(2, 2);
    const run = async (others: readonly Address[], fleet: Fleet): Promise<unknown> => {
      const { open: openCluster } = await fleet.drive([
        await fleet.engine('p0', 'prefill'),
        await fleet.engine('d1', 'decode', dying),
        ...others,
      ]);
      const options = cluster({ storePath: join(fleet.folder, 'run') });
      return summarize(await replayMode(load, options, 'dualpath', { openCluster }), 2);
    };
    const [one, two] = [open(), open()];
    const summary = await run([await one.engine('d0', 'decode')], one);
    expect(summary).toMatchObject({ mismatchedBytes: 0, lostEngines: ['d1'] });
    await expect(run([], two)).rejects.toMatchObject({ code: 'PEER_LOST' });
  });

  it('ends with the cause when the last engine of a role is gone, and the others are free for the next', async () => {
    const fleet = open();
    const addresses = [await fleet.engine('p0', 'prefill'), await fleet.engine('d0', 'decode')];
    const first = await fleet.drive(addresses);
    const load = await workload(6, 4);
    const storePath = join(fleet.folder, 'run');
    const running = replayMode(load, cluster({ storePath }), 'dualpath', {
      openCluster: first.open,
      onTurn: (turns) => {
        if (turns === 3) void fleet.members.get('d0')!.node.close();
      },
    });
    await expect(running).rejects.toMatchObject({ code: 'PEER_LOST' });
    await fleet.members.get('d0')!.host.close();
    await fleet.driver.close();
    const again = await fleet.drive([addresses[0]!, await fleet.engine('d2', 'decode')]);
    const result = await replayMode(load, cluster({ storePath }), 'split', { openCluster: again.open });
    expect(summarize(result, 2).mismatchedBytes).toBe(0);
  });

  it('says what is wrong: no decode engine, an engine that is taken, too much memory', async () => {
    const fleet = open();
    const p0 = await fleet.engine('p0', 'prefill');
    await expect(fleet.drive([p0])).rejects.toThrow('none of the engines is a decode engine: p0 (prefill)');
    await fleet.driver.close();
    const d0 = await fleet.engine('d0', 'decode', { memoryLimitBytes: 1000 });
    const { open: openCluster } = await fleet.drive([p0, d0]);
    const load = await workload(1, 1);
    const storePath = join(fleet.folder, 'run');
    await expect(replayMode(load, cluster({ storePath }), 'split', { openCluster })).rejects.toThrow(
      /are asked of engine 'd0', its limit is 1000/,
    );
  });
});
