/** Geometries of engines' memory: the shapes that engines have, and what may be wrong with them. */
import { describe, expect, it } from 'vitest';
import { blockLayout, loadModel, type BlockLayout } from '../../src/layout/index.js';
import {
  engineGeometry,
  indexerKeys,
  mlaLatent,
  pagedTensors,
  Region,
  sglangAttention,
  vllmAttention,
  type Tensor,
} from '../../src/memory/index.js';
import { errorOf, openEngine } from '../transfer/support.js';

const memory = (bytes: number): Region => Region.ofBuffer({ name: 'kv' }, new SharedArrayBuffer(bytes));

const shape = { blocks: 10, blockSize: 16, heads: 4, headSize: 8, elementBytes: 2 };
const tensorBytes = 2 * 10 * 16 * 4 * 8 * 2;
const tensor: Tensor = {
  ...{ memory: memory(tensorBytes), elementBytes: 2, shape: [2, 10, 16, 4, 8] },
  axes: ['plane', 'page', 'token', 'head', 'value'],
};
const withoutMemory = (parts: readonly (readonly object[])[][]): object[] =>
  parts.flat(2).map((part) => ({ ...part, memory: undefined }));

/** Two layers of K and V, 4 heads of 8 values of 2 bytes. */
const layout: BlockLayout = blockLayout(
  {
    ...{ name: 'gqa', revision: '1', dtype: 'float16', layers: 2 },
    groups: [
      {
        ...{ name: 'kv', layers: [0, 1], windowTokens: 0, sharding: 'sharded', kvHeads: 4 },
        planes: [
          { name: 'k', bytesPerToken: 64 },
          { name: 'v', bytesPerToken: 64 },
        ],
      },
    ],
  },
  { blockTokens: 64 },
);

describe('tensors', () => {
  it('an HND cache is an NHD shape with strides of its own, as torch shows it', () => {
    // vLLM makes [2, blocks, heads, tokens, values] and permutes it to the NHD shape.
    const strides = [10 * 4 * 16 * 8, 4 * 16 * 8, 8, 16 * 8, 1];
    const permuted = pagedTensors([{ ...tensor, strides }]);
    const named = vllmAttention([{ memory: tensor.memory }], shape, 'kv-first', 'HND');
    expect(withoutMemory(permuted.layers as never)).toEqual(withoutMemory(named.layers as never));
    expect(named.layers[0]!.map((plane) => plane.length)).toEqual([4, 4]); // a part a head
  });

  it('heads that are neighbours are one part', () => {
    const nhd = pagedTensors([tensor]);
    expect(nhd).toMatchObject({ pages: 10, pageTokens: 16 });
    expect(nhd.layers[0]).toEqual([
      [
        {
          memory: tensor.memory,
          offsetBytes: 0,
          pageStrideBytes: 1024,
          tokenStrideBytes: 64,
          bytes: 64,
        },
      ],
      [
        {
          memory: tensor.memory,
          offsetBytes: 10_240,
          pageStrideBytes: 1024,
          tokenStrideBytes: 64,
          bytes: 64,
        },
      ],
    ]);
  });

  it('one tensor may hold every layer', () => {
    const all = pagedTensors([
      {
        ...{ memory: memory(2 * tensorBytes), elementBytes: 2, shape: [10, 2, 2, 16, 4, 8] },
        axes: ['page', 'layer', 'plane', 'token', 'head', 'value'],
      },
    ]);
    expect(all.layers).toHaveLength(2);
    expect(all.layers[1]![0]![0]).toMatchObject({ offsetBytes: 2048, pageStrideBytes: 4096 });
    expect(openEngine().addGeometry(engineGeometry(layout, { kv: all }))).toBe(0);
  });

  it.each([
    ['an axis too many', { axes: ['plane', 'page', 'token', 'head', 'value', 'layer'] }],
    ['an axis twice', { axes: ['plane', 'page', 'token', 'token', 'value'] }],
    ['no pages', { axes: ['plane', 'layer', 'token', 'head', 'value'] }],
    ['nothing in one', { shape: [2, 0, 16, 4, 8] }],
    ['half a page', { shape: [2, 9.5, 16, 4, 8] }],
    ['a stride of zero', { strides: [5120, 512, 0, 8, 1] }],
    ['a negative stride', { strides: [5120, 512, 32, -8, 1] }],
    ['elements of no bytes', { elementBytes: 0 }],
    ['values apart', { strides: [10_240, 1024, 64, 16, 2] }],
  ] as [string, Partial<Tensor>][])('%s', async (_name, wrong) => {
    const error = await errorOf(() => pagedTensors([{ ...tensor, ...wrong }]));
    expect(error.code).toBe('INVALID_ARGUMENT');
  });

  it('of one group have one grid of pages', async () => {
    const other = { ...tensor, shape: [2, 5, 32, 4, 8] };
    expect((await errorOf(() => pagedTensors([tensor, other]))).message).toMatch(
      /tensors of 5 pages of 32 tokens and of 10 pages of 16 in one group.*make two groups of it/,
    );
    expect((await errorOf(() => pagedTensors([]))).message).toMatch(/no tensors/);
  });
});

describe('an engine', () => {
  const layer = (): { memory: Region } => ({ memory: memory(tensorBytes) });
  const good = vllmAttention([layer(), layer()], shape, 'kv-first');

  it('is told what does not suit the model', async () => {
    const refused = async (kv: object): Promise<string> =>
      (await errorOf(() => engineGeometry(layout, kv as never))).message;
    expect(await refused({})).toMatch(/has the groups kv; memory is given for none/);
    expect(await refused({ kv: good, mla: good })).toMatch(/memory is given for kv, mla/);
    expect(await refused({ kv: { ...good, layers: good.layers.slice(1) } })).toMatch(
      /group 'kv' has 2 layers, memory of 1 is given/,
    );
    const wide = vllmAttention([layer(), layer()], { ...shape, headSize: 4 }, 'kv-first');
    expect(await refused({ kv: wide })).toMatch(
      /layer 0: planes of \[32, 32\] bytes a token are given, the model has \[64, 64\] \(k, v\) on this shard/,
    );
    const k = { ...good, layers: good.layers.map((planes) => planes.slice(1)) };
    expect(await refused({ kv: k })).toMatch(/planes of \[64\] bytes a token are given/);
  });

  it.each([
    [
      'memory too small',
      () => [layer(), { memory: memory(tensorBytes - 1) }],
      /end at byte 20480, memory 'kv' has 20479/,
    ],
    [
      'one tensor for two layers',
      () => {
        const twice = layer();
        return [twice, twice];
      },
      /share bytes; check their memory, offsets and strides/,
    ],
    [
      'tensors that overlap by a byte',
      () => {
        const both = memory(2 * tensorBytes);
        return [{ memory: both }, { memory: both, offsetBytes: tensorBytes - 1 }];
      },
      /part 0 of plane 1 of layer 0 and part 0 of plane 0 of layer 1 share bytes/,
    ],
  ] as [string, () => { memory: Region; offsetBytes?: number }[], RegExp][])(
    '%s',
    async (_name, layers, message) => {
      const geometry = engineGeometry(layout, { kv: vllmAttention(layers(), shape, 'kv-first') });
      const error = await errorOf(() => openEngine().addGeometry(geometry));
      expect(error.code).toBe('INVALID_ARGUMENT');
      expect(error.message).toMatch(message);
    },
  );

  it('has pages that divide blocks, or blocks that divide pages', async () => {
    const odd = vllmAttention([layer(), layer()], { ...shape, blockSize: 10, blocks: 16 }, 'kv-first');
    const error = await errorOf(() => openEngine().addGeometry(engineGeometry(layout, { kv: odd })));
    expect(error.message).toMatch(
      /page table 'kv': pages of 10 tokens and blocks of 64; one must be a multiple of the other/,
    );
  });
});

it('takes DeepSeek-V3.2 as its engines lay it out: latents in one pool of pages, indexer keys in another', () => {
  const model = loadModel('ds-v3.2-660b');
  const sparse = blockLayout(model, { blockTokens: 64 });
  const blocks = 4;
  const of = (bytes: number): { memory: Region }[] =>
    Array.from({ length: 61 }, () => ({ memory: memory(blocks * 64 * bytes) }));
  const geometry = engineGeometry(sparse, {
    mla: mlaLatent(of(656), { blocks, blockSize: 64, bytesPerToken: 656 }),
    indexer: indexerKeys(of(132), { blocks, blockSize: 64, valueBytes: 128, scaleBytes: 4 }),
  });
  expect(geometry.layers[60]!.map(({ table, parts }) => [table, parts.map((part) => part.bytes)])).toEqual([
    [0, [656]],
    [1, [128, 4]],
  ]);
  expect(openEngine().addGeometry(geometry)).toBe(0);
});

it('takes the layers of alternating groups to their places', () => {
  const gptOss = blockLayout(loadModel('gpt-oss-120b'), { blockTokens: 16, shard: { rank: 0, size: 8 } });
  const pages = { tokens: 64, pageSize: 16, heads: 1, headSize: 64, elementBytes: 2 };
  const of = (): { k: { memory: Region }; v: { memory: Region } }[] =>
    Array.from({ length: 18 }, () => ({ k: { memory: memory(8192) }, v: { memory: memory(8192) } }));
  const groups = { sliding: of(), full: of() };
  const geometry = engineGeometry(gptOss, {
    sliding: sglangAttention(groups.sliding, pages),
    full: sglangAttention(groups.full, pages),
  });
  expect(geometry.tables.map((table) => table.name)).toEqual(['sliding', 'full']);
  for (let l = 0; l < 36; l++) {
    const kept = l % 2 === 0 ? groups.sliding : groups.full;
    expect(geometry.layers[l]![1]!.parts[0]!.region).toBe(kept[Math.floor(l / 2)]!.v.memory.handle);
    expect(geometry.layers[l]![0]!.windowTokens).toBe(l % 2 === 0 ? 128 : 0);
  }
  expect(openEngine().addGeometry(geometry)).toBe(0);
});
