import { readFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { blockLayout, loadModel, parseModel, presets } from '../../src/layout/index.js';

const docs = readFileSync(new URL('../../docs/models.md', import.meta.url), 'utf8');
const layoutOf = (name: string) => blockLayout(loadModel(name), { blockTokens: 64 });

describe('presets', () => {
  it.each([
    ['ds-v3.2-660b', 61, 48_068],
    ['ds-27b', 30, 30 * (656 + 68)],
    ['qwen2.5-32b', 64, 256 * 1024],
    ['gpt-oss-120b', 36, 72 * 1024],
    ['demo', 8, 1024],
    ['demo-mla', 4, 552],
  ])('%s has %i layers and %i bytes per token', (name, layers, bytesPerToken) => {
    expect(layoutOf(name).layers).toBe(layers);
    expect(layoutOf(name).bytesPerToken).toBe(bytesPerToken);
  });

  it('ds-v3.2-660b is 40 KB per token without the indexer, as in the paper', () => {
    const model = loadModel('ds-v3.2-660b');
    const mla = { ...model, groups: model.groups.filter(({ name }) => name === 'mla') };
    expect(blockLayout(mla, { blockTokens: 64 }).bytesPerToken).toBe(40_016);
    expect(layoutOf('ds-v3.2-660b').planesOf(60)).toHaveLength(2);
  });

  it('gpt-oss-120b alternates, sliding layers first', () => {
    const layout = layoutOf('gpt-oss-120b');
    const windows = Array.from({ length: layout.layers }, (_, layer) => layout.windowTokensOf(layer));
    expect(windows).toEqual(Array.from({ length: 18 }, () => [128, 0]).flat());
  });

  it('demo-mla has several groups a layer, a window, both shardings and sizes that align with nothing', () => {
    const layout = layoutOf('demo-mla');
    expect(layout.planesOf(1).map(({ group, plane }) => `${group}.${plane}`)).toEqual([
      'mla.latent',
      'indexer.k',
      'sliding.k',
      'sliding.v',
    ]);
    expect(layout.planesOf(0)).toHaveLength(2);
    expect(layout.planesOf(1).every(({ bytesPerToken }) => bytesPerToken % 64 !== 0)).toBe(true);
    expect(new Set(layout.model.groups.map(({ sharding }) => sharding)).size).toBe(2);
  });

  it('have names of their own', () => {
    expect(new Set(presets.map(({ name }) => name)).size).toBe(presets.length);
  });
});

describe('docs/models.md', () => {
  const number = (value: number): string => value.toLocaleString('en-US');

  it('lists every preset with its true sizes', () => {
    const rows = docs.split('\n').filter((line) => line.startsWith('| `'));
    const cells = rows.map((row) => row.split('|').map((cell) => cell.trim()));
    const sizes = cells.filter((row) => presets.some(({ name }) => row[1] === `\`${name}\``));
    expect(sizes.map((row) => [row[1], row[2], row[4], row[5], row[6]])).toEqual(
      presets.map(({ name, layers }) => {
        const layout = layoutOf(name);
        const { bytesPerToken, maxLayerBlockBytes, fullBlockBytes } = layout;
        return [
          `\`${name}\``,
          number(layers),
          number(bytesPerToken),
          number(maxLayerBlockBytes),
          number(fullBlockBytes),
        ];
      }),
    );
  });

  it('has an example that is a model, with the sizes the page states', () => {
    const example = /```json\n([\s\S]*?)```/.exec(docs)?.[1] ?? '';
    const layout = blockLayout(parseModel(example, 'docs/models.md'), { blockTokens: 64 });
    const stated = /makes ([\d,]+) bytes per token/.exec(docs)?.[1];
    expect(stated).toBe(number(layout.bytesPerToken));
    expect(layout.planesOf(1).map(({ group, plane }) => `${group}.${plane}`)).toEqual([
      'sliding.k',
      'sliding.v',
      'indexer.k',
    ]);
  });
});
