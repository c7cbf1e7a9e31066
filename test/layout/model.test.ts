import { describe, expect, it } from 'vitest';
import { isDualPathError } from '../../src/errors/index.js';
import { checkModel, loadModel } from '../../src/layout/index.js';
import type { KvGroup, ModelDescription } from '../../src/layout/index.js';

const model = loadModel('demo');
const kv = model.groups[0]!;
const withGroup = (change: Partial<KvGroup>): ModelDescription => ({
  ...model,
  groups: [{ ...kv, ...change }],
});
const plane = { name: 'k', bytesPerToken: 8 };

describe('checkModel', () => {
  it('returns a good description unchanged', () => {
    expect(checkModel(model)).toBe(model);
  });

  it.each<[string, string, ModelDescription]>([
    ['name', 'a string of 1 to 200 characters', { ...model, name: '' }],
    ['revision', 'a string of 1 to 200 characters', { ...model, revision: 'r'.repeat(201) }],
    ['layers is 0', '1 to 1024', { ...model, layers: 0 }],
    ['layers is NaN', '1 to 1024', { ...model, layers: Number.NaN }],
    ['layers is 9', 'layer 8 is in none', { ...model, layers: 9 }],
    ['groups is []', 'an array of 1 to 64 entries', { ...model, groups: [] }],
    ['groups[1].name is "kv"', 'no other entry', { ...model, groups: [kv, kv] }],
    ['groups[0] is null', 'an object', { ...model, groups: [null as unknown as KvGroup] }],
    ['groups[0].layers is []', 'at least one', withGroup({ layers: [] })],
    ['groups[0].layers[1] is 0', 'ascending layer indices in 0 .. 7', withGroup({ layers: [0, 0] })],
    ['groups[0].layers[1] is 1', 'ascending', withGroup({ layers: [2, 1] })],
    ['groups[0].layers[0] is 8', '0 .. 7', withGroup({ layers: [8] })],
    ['groups[0].layers[0] is -1', '0 .. 7', withGroup({ layers: [-1] })],
    ['groups[0].windowTokens is -1', '0 to 4294967295', withGroup({ windowTokens: -1 })],
    ['groups[0].sharding is "split"', '"sharded"', withGroup({ sharding: 'split' as 'sharded' })],
    ['groups[0].planes is []', '1 to 64', withGroup({ planes: [] })],
    ['groups[0].planes[1].name is "k"', 'no other entry', withGroup({ planes: [plane, plane] })],
    [
      'planes[0].bytesPerToken is 0',
      '1 to 1073741824',
      withGroup({ planes: [{ ...plane, bytesPerToken: 0 }] }),
    ],
    [
      'planes[0].bytesPerToken is 0.5',
      'an integer',
      withGroup({ planes: [{ ...plane, bytesPerToken: 0.5 }] }),
    ],
    ['planes[0].bytesPerToken is 8', "group's 3 KV heads", withGroup({ planes: [plane], kvHeads: 3 })],
    ['groups[0].kvHeads is 8', 'only a sharded group', withGroup({ sharding: 'replicated', kvHeads: 8 })],
  ])('refuses %s; expected %s', (place, expected, bad) => {
    let error: unknown;
    try {
      checkModel(bad);
    } catch (thrown) {
      error = thrown;
    }
    expect(isDualPathError(error, 'INVALID_MODEL')).toBe(true);
    expect((error as Error).message).toContain(place);
    expect((error as Error).message).toContain(expected);
  });
});
