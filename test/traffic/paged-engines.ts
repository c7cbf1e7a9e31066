/** Engines' paged memory for tests, and a plain account of where each byte of a token lies in it. */
import { blockLayout, type BlockLayout, type ModelDescription } from '../../src/layout/index.js';
import {
  engineGeometry,
  indexerKeys,
  mlaLatent,
  Region,
  sglangAttention,
  vllmAttention,
  type EngineMemory,
} from '../../src/memory/index.js';
import type { NativePages } from '../../src/binding/index.js';
import { kvByte } from './support.js';

export const heads = 2;
export const headSize = 6;
export const elementBytes = 2;
const latentBytes = 20;
const indexer = { valueBytes: 8, scaleBytes: 4 };
const layers = 2;

const group = (name: string, planes: ModelDescription['groups'][number]['planes']) => ({
  ...{ name, planes, layers: Array.from({ length: layers }, (_, layer) => layer), windowTokens: 0 },
  sharding: 'replicated' as const,
});

const model = (name: string, groups: ModelDescription['groups']): ModelDescription => ({
  ...{ name, groups, layers, revision: '1', dtype: 'test' },
});

const rowBytes = heads * headSize * elementBytes;
export const attention = blockLayout(
  model('attention', [
    group('kv', [
      { name: 'k', bytesPerToken: rowBytes },
      { name: 'v', bytesPerToken: rowBytes },
    ]),
  ]),
  { blockTokens: 8 },
);
export const sparseMla = blockLayout(
  model('sparse-mla', [
    group('mla', [{ name: 'latent', bytesPerToken: latentBytes }]),
    group('indexer', [{ name: 'k', bytesPerToken: indexer.valueBytes + indexer.scaleBytes }]),
  ]),
  { blockTokens: 8 },
);

export type Kind = 'nhd' | 'nhd-blocks-first' | 'hnd' | 'hnd-blocks-first' | 'sglang' | 'mla';

/** Where a byte lies: which buffer, and its index there. */
type Locate = (layer: number, plane: number, page: number, token: number, byte: number) => [number, number];

const untouched = 0xee;

export class PagedEngine {
  readonly geometry: NativePages;
  readonly buffers: Uint8Array[] = [];
  readonly pageTokens: number;
  readonly #layout: BlockLayout;
  readonly #locate: Locate;

  constructor(kind: Kind, pages: number, pageTokens: number) {
    this.pageTokens = pageTokens;
    this.#layout = kind === 'mla' ? sparseMla : attention;
    const [memory, locate] =
      kind === 'mla' ? this.#mla(pages) : kind === 'sglang' ? this.#sglang(pages) : this.#vllm(kind, pages);
    this.#locate = locate;
    this.geometry = engineGeometry(this.#layout, memory);
  }

  /** Memory of its own for each tensor, not aligned to anything. */
  #tensor(bytes: number): { memory: Region; offsetBytes: number } {
    const whole = new Uint8Array(new SharedArrayBuffer(bytes + 8)).subarray(3, 3 + bytes + 5);
    whole.fill(untouched);
    this.buffers.push(whole);
    return { memory: Region.ofBuffer({ name: `tensor ${this.buffers.length}` }, whole), offsetBytes: 5 };
  }

  #vllm(kind: Exclude<Kind, 'sglang' | 'mla'>, pages: number): [EngineMemory, Locate] {
    const { pageTokens } = this;
    const [form, order] = [
      kind.endsWith('blocks-first') ? ('blocks-first' as const) : ('kv-first' as const),
      kind.startsWith('hnd') ? ('HND' as const) : ('NHD' as const),
    ];
    const shape = { blocks: pages, blockSize: pageTokens, heads, headSize, elementBytes };
    const bytes = 2 * pages * pageTokens * rowBytes;
    const tensors = Array.from({ length: layers }, () => this.#tensor(bytes));
    const headBytes = headSize * elementBytes;
    return [
      { kv: vllmAttention(tensors, shape, form, order) },
      (layer, plane, page, token, byte) => {
        const outer = form === 'kv-first' ? plane * pages + page : page * 2 + plane;
        const [head, value] = [Math.floor(byte / headBytes), byte % headBytes];
        const row = order === 'NHD' ? token * heads + head : head * pageTokens + token;
        return [layer, (outer * pageTokens * heads + row) * headBytes + value];
      },
    ];
  }

  #sglang(pages: number): [EngineMemory, Locate] {
    const { pageTokens } = this;
    const tokens = pages * pageTokens;
    const buffers = Array.from({ length: layers }, () => ({
      k: this.#tensor(tokens * rowBytes),
      v: this.#tensor(tokens * rowBytes),
    }));
    const shape = { tokens, pageSize: pageTokens, heads, headSize, elementBytes };
    return [
      { kv: sglangAttention(buffers, shape) },
      (layer, plane, page, token, byte) => [2 * layer + plane, (page * pageTokens + token) * rowBytes + byte],
    ];
  }

  #mla(pages: number): [EngineMemory, Locate] {
    const { pageTokens } = this;
    const indexerBytes = indexer.valueBytes + indexer.scaleBytes;
    const of = (bytes: number) =>
      Array.from({ length: layers }, () => this.#tensor(pages * pageTokens * bytes));
    const page = { blocks: pages, blockSize: pageTokens };
    const memory = {
      mla: mlaLatent(of(latentBytes), { ...page, bytesPerToken: latentBytes }),
      indexer: indexerKeys(of(indexerBytes), { ...page, ...indexer }),
    };
    return [
      memory,
      (layer, plane, at, token, byte) => {
        if (plane === 0) return [layer, (at * pageTokens + token) * latentBytes + byte];
        const start = at * pageTokens * indexerBytes;
        const { valueBytes, scaleBytes } = indexer;
        const within =
          byte < valueBytes
            ? token * valueBytes + byte
            : pageTokens * valueBytes + token * scaleBytes + byte - valueBytes;
        return [layers + layer, start + within];
      },
    ];
  }

  /** Writes the KV of tokens [begin, end) where `table` says; table[0] holds token `tableBegin`. */
  write(
    table: ArrayLike<number>,
    tableBegin: number,
    begin: number,
    end: number,
    seed: number,
    into: readonly Uint8Array[] = this.buffers,
  ): void {
    const firstPage = Math.floor(tableBegin / this.pageTokens);
    for (let layer = 0; layer < layers; layer++) {
      this.#layout.planesOf(layer).forEach(({ bytesPerToken }, plane) => {
        for (let token = begin; token < end; token++) {
          const page = table[Math.floor(token / this.pageTokens) - firstPage]!;
          for (let byte = 0; byte < bytesPerToken; byte++) {
            const [buffer, index] = this.#locate(layer, plane, page, token % this.pageTokens, byte);
            into[buffer]![5 + index] = kvByte(seed, layer, plane, token, byte);
          }
        }
      });
    }
  }

  /** Whether the KV of these tokens is there and no other byte has been written. */
  holds(table: ArrayLike<number>, tableBegin: number, begin: number, end: number, seed: number): boolean {
    const expected = this.buffers.map((buffer) => new Uint8Array(buffer.length).fill(untouched));
    this.write(table, tableBegin, begin, end, seed, expected);
    return this.buffers.every((buffer, i) => Buffer.compare(buffer, expected[i]!) === 0);
  }
}
