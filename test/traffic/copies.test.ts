import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, it, onTestFinished } from 'vitest';
import { native } from '../../src/binding/index.js';
import { BlockStore } from '../../src/storage/index.js';
import { TrafficManager } from '../../src/traffic/index.js';
import { headsLayout } from './support.js';

it('a manager whose copies go through a NIC is closed as often as one likes, its runtime gone with it', async () => {
  const folder = mkdtempSync(join(tmpdir(), 'dualpath-copies-'));
  onTestFinished(() => rmSync(folder, { recursive: true }));
  const layout = headsLayout(2);
  const provider = new (native().StubFabric)({ name: 'copies', seed: 1 });
  const manager = new TrafficManager({
    name: 'copies',
    layout,
    store: BlockStore.open({ path: join(folder, 'store'), layout }),
    bufferBlocks: 1,
    copies: { way: 'nic', device: 'stub0', provider },
  });
  expect(manager.copies.facts()).toMatchObject({ device: 'stub0/1', emulated: true });
  await manager.close();
  await manager.close();
});
