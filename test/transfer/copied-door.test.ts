/**
 * A runtime that allows no ArrayBuffer over native memory, as Electron with the memory cage of V8: simulated by
 * having the add-on refuse as Node-API does there. Everything else is real.
 */
import fc from 'fast-check';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { native } from '../../src/binding/index.js';
import { Arena, sequenceGeometry } from '../../src/memory/index.js';
import { replayMode, summarize } from '../../src/replay/index.js';
import type { Descriptor } from '../../src/transfer/index.js';
import { cluster, workload } from '../replay/support.js';
import { headsLayout, openManager, scratchDirectory, tokens } from '../traffic/support.js';
import { errorOf, openEngine } from './support.js';

beforeEach(() => native().refuseExternalBuffers(true));
afterEach(() => native().refuseExternalBuffers(false));

describe('where no external buffers are allowed', () => {
  it('a view of an arena is refused with the reason, copies are not', async () => {
    const arena = new Arena({ name: 'x', bytes: 8192, lock: 'none' });
    const error = await errorOf(() => arena.buffer);
    expect([error.code, error.message]).toEqual(['NO_EXTERNAL_BUFFERS', expect.stringContaining('read()')]);
    const bytes = Uint8Array.from({ length: 100 }, (_, i) => i);
    arena.write(8000, bytes);
    const back = new Uint8Array(100);
    arena.read(8000, back);
    expect(back).toEqual(bytes);
    for (const offset of [8093, -1, 0.5, Number.NaN, 2 ** 60]) {
      expect((await errorOf(() => arena.read(offset, back))).code).toBe('INVALID_ARGUMENT');
      expect((await errorOf(() => arena.write(offset, bytes))).code).toBe('INVALID_ARGUMENT');
    }
  });

  it('blocks are saved, found and loaded', async () => {
    const layout = headsLayout();
    const manager = openManager(layout, scratchDirectory());
    expect(manager.engine.handle.door()).toBeUndefined();
    const blocks = 6;
    const geometry = sequenceGeometry(layout, 2 * blocks, 'memory');
    const adopted = manager.adopt(geometry);
    const stride = geometry.slotStrideBytes;
    const content = Uint8Array.from({ length: blocks * stride }, (_, i) => (i * 7) & 0xff);
    geometry.arena.write(0, content);
    const sequence = tokens(blocks * layout.blockTokens + 1);
    const from = [0, 1, 2, 3, 4, 5];
    const to = from.map((slot) => 2 * blocks - 1 - slot);
    const chain = await manager.lookup(sequence);
    await manager.save({ chain, firstBlock: 0, blocks, geometry: adopted, blockTable: from }).done;
    const found = await manager.lookup(sequence);
    expect(found.hitBlocks).toBe(blocks);
    const load = manager.load({ chain: found, geometry: adopted, blockTable: to });
    await load.layer(layout.layers - 1);
    await load.done;
    for (const block of from) {
      const got = new Uint8Array(layout.fullBlockBytes);
      geometry.arena.read(to[block]! * stride, got);
      expect(got).toEqual(content.slice(block * stride, block * stride + layout.fullBlockBytes));
    }
  });

  it('a whole cluster serves its sessions, every byte right', async () => {
    const result = await replayMode(await workload(2, 2), cluster(), 'dualpath');
    expect(summarize(result, 2)).toMatchObject({ mismatchedBytes: 0, failedPrograms: 0, lostBlocks: 0 });
  });

  it('programs do what they do through the mapping, however many and however long', async () => {
    const program = fc.array(
      fc.record({
        steps: fc.integer({ min: 1, max: 40 }),
        by: fc.integer({ min: 1, max: 9 }),
        event: fc.boolean(),
      }),
      { minLength: 1, maxLength: 6 },
    );
    await fc.assert(
      fc.asyncProperty(fc.array(program, { minLength: 1, maxLength: 40 }), async (programs) => {
        const outcomes = [];
        for (const refused of [true, false]) {
          native().refuseExternalBuffers(refused);
          const engine = openEngine({ submissionEntries: 16, completionEntries: 64, maxPrograms: 8 });
          expect(engine.handle.door() === undefined).toBe(refused);
          const counter = engine.takeCounters(3);
          let steps = 0;
          for (const descriptors of programs) {
            const bumps = descriptors.map(({ steps, by, event }): Descriptor => ({
              ...{ op: 'bump', steps, event },
              signals: [{ counter: counter + 1, value: by }],
            }));
            await engine.submit(bumps, () => steps++).done;
          }
          engine.setSlots(5, [4, 3, 2]);
          outcomes.push({
            counters: [0, 1, 2].map((i) => engine.counter(counter + i)),
            steps,
            slots: [...engine.slots(4, 5)],
            room: engine.room,
          });
          await engine.close();
        }
        expect(outcomes[0]).toEqual(outcomes[1]);
      }),
      { numRuns: 25 },
    );
  });

  it('a range outside the tables is refused', () => {
    const { handle } = openEngine({ slotEntries: 16, counterEntries: 4, submissionEntries: 4 });
    for (const call of [
      () => handle.readSlots(10, 7),
      () => handle.readSlots(0xffffffff, 1),
      () => handle.writeSlots(16, new Uint32Array(1)),
      () => handle.writeSlots(0, [] as never),
      () => handle.counter(4),
      () => handle.zeroCounters(3, 2),
      () => handle.publish(new Uint32Array(4), 0, 1),
      () => handle.publish(new Uint32Array(4 * 32), 0, 5),
      () => handle.takeRecords(new Uint8Array(64) as never),
    ]) {
      expect(call).toThrow(expect.objectContaining({ code: 'INVALID_ARGUMENT' }));
    }
  });
});
