import { join } from 'node:path';
import { afterEach, describe, expect, it } from 'vitest';
import { native, type NativeStubFabric } from '../../src/binding/index.js';
import { PathExchange, rdmaTransport } from '../../src/rdma/index.js';
import type { CopyOptions } from '../../src/traffic/index.js';
import { replayMode, summarize, type ReplayMode } from '../../src/replay/index.js';
import { cluster, workload } from '../replay/support.js';
import { Fleet } from './fleet.js';

const fleets: Fleet[] = [];
afterEach(async () => {
  for (const fleet of fleets.splice(0)) await fleet.close();
});

let fabrics = 0;

/** A prefill and a decode engine, each on a port of an emulated RDMA device of its own. */
async function open(
  copies?: CopyOptions,
  provided = true,
): Promise<{
  fleet: Fleet;
  fabric: NativeStubFabric;
  openCluster: Fleet['engines']['open'];
}> {
  const { layout } = cluster();
  const fleet = new Fleet(layout);
  fleets.push(fleet);
  const fabric = new (native().StubFabric)({ name: `stub-replay-${++fabrics}`, seed: fabrics });
  const addresses = [];
  for (const [index, [name, role]] of (
    [
      ['p0', 'prefill'],
      ['d0', 'decode'],
    ] as const
  ).entries()) {
    const place = { device: `stub${index}`, port: 1, gidIndexes: [0] };
    addresses.push(
      await fleet.engine(name, role, ({ node }) => ({
        device: place.device,
        ...(copies === undefined
          ? {}
          : { copies: provided ? { ...copies, device: place.device, provider: fabric } : copies }),
        transport: rdmaTransport({
          ...{ place, name, provider: fabric, exclusive: false },
          identity: layout.identity,
          exchange: new PathExchange(node),
          connections: { firstBackOffMs: 5 },
        }),
      })),
    );
  }
  const { open: openCluster } = await fleet.drive(addresses);
  return { fleet, fabric, openCluster };
}

describe('a replay over verbs, on emulated devices', () => {
  it.each(['layerwise', 'dualpath', 'split'] as ReplayMode[])('%s: every byte is right', async (mode) => {
    const { fleet, fabric, openCluster } = await open();
    const load = await workload(4, 3);
    const storePath = join(fleet.folder, 'run');
    const summary = summarize(await replayMode(load, cluster({ storePath }), mode, { openCluster }), 2);
    expect(summary).toMatchObject({
      turns: load.sessions.reduce((sum, { turns }) => sum + turns.length, 0),
      ...{ mismatchedBytes: 0, lostBlocks: 0, persistError: null, retries: 0, failedPrograms: 0 },
      ...{
        transport: 'verbs',
        device: 'p0: stub0/1, d0: stub1/1',
        trafficClass: 'kv (DSCP 10)',
        connections: 2,
      },
    });
    expect(summary.canaries!.mismatchedBytes).toBe(0);
    const sent = Object.values(summary.computeEgressBytes);
    expect(sent).toEqual(Object.values(summary.computeIngressBytes).reverse());
    expect(Math.min(...sent)).toBeGreaterThanOrEqual(mode === 'layerwise' ? 0 : 1);
    expect(fabric.counters().writes + fabric.counters().writesWithImmediate).toBeGreaterThan(0);
  });

  it.each(['nic', 'auto', 'memcpy'] as const)('copies by %s, which is told', async (way) => {
    const { fleet, openCluster } = await open({ way, inFlightBytes: 256 << 10 });
    const storePath = join(fleet.folder, 'run');
    const result = await replayMode(await workload(3, 3), cluster({ storePath }), 'dualpath', {
      openCluster,
    });
    const { copies, mismatchedBytes, failedPrograms } = summarize(result, 2);
    expect([mismatchedBytes, failedPrograms]).toEqual([0, 0]);
    const { nic, memcpy } = copies.bytes;
    expect([nic > 0, memcpy > 0]).toEqual(way === 'memcpy' ? [false, true] : [true, false]);
    expect(copies.nic).toBe(
      way === 'memcpy'
        ? 'p0: none (as configured); d0: none (as configured)'
        : 'p0: stub0/1 (emulated), as configured; d0: stub1/1 (emulated), as configured',
    );
  });

  it('where no NIC is the GPU’s, memcpy copies, and why is told', async () => {
    const { fleet, openCluster } = await open({ way: 'auto' }, false);
    const storePath = join(fleet.folder, 'run');
    const result = await replayMode(await workload(1, 2), cluster({ storePath }), 'layerwise', {
      openCluster,
    });
    const { copies } = summarize(result, 2);
    expect(copies.bytes.memcpy).toBeGreaterThan(0);
    expect(copies).toMatchObject({ bytes: { nic: 0, cuda: 0 }, refusedSteps: 0 });
    expect(copies.nic).toMatch(/^p0: none \(no NIC: .+\); d0: none \(no NIC: .+\)$/);
  });

  it('requests whose connection breaks are tried once more; the connection is built anew; no byte is wrong', async () => {
    const { fleet, fabric, openCluster } = await open();
    const load = await workload(6, 4);
    const storePath = join(fleet.folder, 'run');
    const result = await replayMode(load, cluster({ storePath }), 'dualpath', {
      openCluster,
      onTurn: (turns) => {
        // One fault: a request that a second one hits would have used up its retry.
        if (turns === 5) fabric.failRequest(0, 20, 'RETRY_EXC_ERR');
      },
    });
    const summary = summarize(result, 2);
    expect(summary.turns).toBe(load.sessions.reduce((sum, { turns }) => sum + turns.length, 0));
    expect(summary.mismatchedBytes + summary.canaries!.mismatchedBytes).toBe(0);
    expect(summary.rebuiltConnections).toBeGreaterThan(0);
    expect(summary.retries).toBeGreaterThan(0);
    expect(summary.retryCauses.join()).toContain('over verbs, stub');
  });
});
