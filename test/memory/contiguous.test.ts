import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { blockLayout, loadModel } from '../../src/layout/index.js';
import { BlockSpace, contiguousGeometry, sequenceGeometry, type BlockList } from '../../src/memory/index.js';
import { errorOf, openEngine } from '../transfer/support.js';

const layout = blockLayout(loadModel('demo'), { blockTokens: 4 });
const rowBytes = layout.maxLayerBlockBytes / layout.blockTokens;

function openSpace(slots: number, windowLayers = layout.layers): BlockSpace {
  return new BlockSpace(openEngine(), contiguousGeometry(layout, slots, windowLayers, 'rows'), true);
}

describe('contiguous memory', () => {
  it('gives lists of slots that follow each other, whatever was taken and given back', () => {
    const action = fc.record({ take: fc.boolean(), count: fc.integer({ min: 1, max: 9 }), which: fc.nat() });
    fc.assert(
      fc.property(fc.array(action, { maxLength: 60 }), (actions) => {
        const space = openSpace(24);
        const held: BlockList[] = [];
        for (const { take, count, which } of actions) {
          if (!take && held.length > 0) held.splice(which % held.length, 1)[0]!.release();
          const fits = count <= space.available;
          const list = take ? space.tryTake(count) : undefined;
          if (take) expect(list !== undefined).toBe(fits);
          if (list !== undefined) held.push(list);
        }
        const slots = held.flatMap((list) => {
          const [first, ...rest] = space.engine.slots(list.offset, list.count);
          expect(rest).toEqual(rest.map((_, i) => first! + i + 1));
          return [first!, ...rest];
        });
        expect(new Set(slots).size).toBe(slots.length);
        for (const list of held) list.release();
        expect(space.available).toBe(24);
      }),
      { numRuns: 60 },
    );
  });

  it('shows the rows of a list: what is copied into its slots lies there token by token, planes side by side', async () => {
    const space = openSpace(8);
    const { engine } = space;
    const paged = new BlockSpace(engine, sequenceGeometry(layout, 8, 'paged'));
    const hole = await space.take(1);
    const [from, to] = [await paged.take(3), await space.take(3)];
    hole.release();
    const tokens = 3 * layout.blockTokens;
    const copy = { firstBlock: 0, blocks: 3, tokenBegin: 0, tokenEnd: tokens, layers: layout.layers };
    const layer = 2;
    const rows = space.rows(to, layer);
    expect(rows).toHaveLength(tokens * rowBytes);
    rows.forEach((_, i) => (rows[i] = (i * 31) % 251));
    await engine.submit([
      {
        ...{ op: 'copy', from: space.geometry, to: paged.geometry, ...copy },
        ...{ fromSlots: to.offset, toSlots: from.offset },
      },
    ]).done;
    const written = rows.slice();
    rows.fill(0);
    await engine.submit([
      {
        ...{ op: 'copy', from: paged.geometry, to: space.geometry, ...copy },
        ...{ fromSlots: from.offset, toSlots: to.offset },
      },
    ]).done;
    expect(Buffer.compare(rows, written)).toBe(0);
  });

  it('a window of layers uses the rows of a layer again', async () => {
    const space = openSpace(4, 2);
    const list = await space.take(2);
    space.rows(list, 0).fill(7);
    expect(space.rows(list, 2)[0]).toBe(7);
    expect(space.rows(list, 1)[0]).toBe(0);
  });

  it('says what has no rows, what is not shared, and what is too much', async () => {
    const space = openSpace(4);
    const list = await space.take(2);
    for (const layer of [-1, layout.layers, 0.5]) {
      expect((await errorOf(() => space.rows(list, layer))).code).toBe('INVALID_ARGUMENT');
    }
    const other = await space.take(1);
    expect((await errorOf(() => space.share(list, 1))).message).toMatch(/contiguous/);
    expect((await errorOf(() => space.join(list, other))).message).toMatch(/contiguous/);
    list.release();
    expect((await errorOf(() => space.rows(list, 0))).code).toBe('INVALID_ARGUMENT');
    const paged = new BlockSpace(space.engine, sequenceGeometry(layout, 4, 'paged'));
    const pages = await paged.take(1);
    expect((await errorOf(() => paged.rows(pages, 0))).code).toBe('INVALID_ARGUMENT');
    const tooMany = Math.floor(2 ** 30 / (layout.maxLayerBlockBytes * layout.layers)) + 1;
    expect((await errorOf(() => contiguousGeometry(layout, tooMany, layout.layers, 'huge'))).message).toMatch(
      /at most \d+ lie in one arena/,
    );
  });
});
