/** Traffic classes on emulated links; how an arbiter divides one is native/test/transfer/links_test.cc. */
import { describe, expect, it } from 'vitest';
import { native } from '../../src/binding/index.js';
import { portArbitration } from '../../src/rdma/index.js';
import type { Descriptor } from '../../src/transfer/index.js';
import { errorOf, openEngine, plainMemory } from './support.js';

const copy = (trafficClass?: Descriptor['trafficClass']): Descriptor => ({
  ...{ op: 'copy', from: 0, to: 1, fromSlots: 0, toSlots: 0, blocks: 2, layers: 2 },
  ...{ firstBlock: 0, tokenBegin: 0, tokenEnd: 8 },
  ...(trafficClass === undefined ? {} : { trafficClass }),
});

function openCopier(nicEgress = new (native().NicLink)({ name: 'nic/classes', bytesPerS: 64_000_000 })) {
  const engine = openEngine({ nicEgress });
  for (let i = 0; i < 2; i++) engine.addGeometry(plainMemory(2).geometry);
  engine.setSlots(0, [0, 1]);
  return { engine, nicEgress };
}

describe('bytes of an emulated NIC', () => {
  it('are counted by class', async () => {
    const { engine, nicEgress } = openCopier(
      new (native().NicLink)({ name: 'nic/classes', bytesPerS: 64_000_000, arbitration: portArbitration() }),
    );
    await engine.submit([copy(), copy('inference'), copy('control'), copy('kv')]).done;
    expect(nicEgress.statistics()).toMatchObject({
      bytes: 1024,
      classes: {
        inference: { bytes: 256, transfers: 2 },
        kv: { bytes: 512, transfers: 4 },
        control: { bytes: 256, transfers: 2 },
      },
    });
  });

  it('belong to one of three classes', async () => {
    const { engine } = openCopier();
    expect((await errorOf(() => engine.submit([copy('bulk' as never)]))).message).toMatch(
      /trafficClass is 'bulk'; one of inference, kv, control is needed/,
    );
  });
});
