import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { isDualPathError } from '../../src/errors/index.js';
import type { DualPathError } from '../../src/errors/index.js';
import { loadModel, parseModel, presets } from '../../src/layout/index.js';

let folder: string;
beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), 'dualpath-layout-'));
});
afterAll(() => {
  rmSync(folder, { recursive: true });
});

function errorOf(action: () => unknown): DualPathError {
  try {
    action();
  } catch (error) {
    if (isDualPathError(error)) {
      return error;
    }
    throw error;
  }
  throw new Error('nothing was thrown');
}

/** A good document; `change` edits a fresh copy. */
function document(change: (json: Json) => void = () => undefined): string {
  const json = good();
  change(json);
  return JSON.stringify(json);
}

interface Json {
  layers: unknown;
  groups: Record<string, unknown>[];
}

const good = (): Json & Record<string, unknown> => ({
  name: 'custom',
  revision: 'abc',
  dtype: 'bfloat16',
  layers: 3,
  groups: [
    {
      name: 'gqa',
      layers: 'all',
      planes: [{ name: 'k', bytes_per_token: 16 }],
      sharding: 'sharded',
      kv_heads: 2,
    },
    {
      name: 'tail',
      layers: [2],
      planes: [{ name: 'x', bytes_per_token: 3 }],
      window_tokens: 5,
      sharding: 'replicated',
    },
  ],
});

const planeOf = (json: Json) => (json.groups[0]!['planes'] as Record<string, unknown>[])[0]!;

describe('loadModel', () => {
  it('knows every preset', () => {
    for (const preset of presets) {
      expect(loadModel(preset.name)).toBe(preset);
    }
  });

  it('lists the presets for an unknown name, and the closest', () => {
    const { code, message } = errorOf(() => loadModel('qwen2.5-23b'));
    expect(code).toBe('INVALID_ARGUMENT');
    expect(message).toContain('unknown model "qwen2.5-23b". Did you mean "qwen2.5-32b"?');
    for (const { name } of presets) {
      expect(message).toContain(name);
    }
    expect(errorOf(() => loadModel('something else entirely')).message).not.toContain('Did you mean');
  });

  it('reads a file', () => {
    const file = join(folder, 'good.json');
    writeFileSync(file, document());
    expect(loadModel(file)).toEqual({
      name: 'custom',
      revision: 'abc',
      dtype: 'bfloat16',
      layers: 3,
      groups: [
        {
          name: 'gqa',
          layers: [0, 1, 2],
          planes: [{ name: 'k', bytesPerToken: 16 }],
          windowTokens: 0,
          sharding: 'sharded',
          kvHeads: 2,
        },
        {
          name: 'tail',
          layers: [2],
          planes: [{ name: 'x', bytesPerToken: 3 }],
          windowTokens: 5,
          sharding: 'replicated',
        },
      ],
    });
  });

  it('names a file that is missing, a folder, too large or not JSON', () => {
    const missing = errorOf(() => loadModel(join(folder, 'missing.json')));
    expect(missing.code).toBe('INVALID_MODEL');
    expect(missing.message).toContain('missing.json: cannot be read');
    expect(missing.details['errno']).toBe('ENOENT');
    expect(errorOf(() => loadModel(`${folder}/`)).details['errno']).toBe('EISDIR');
    expect(errorOf(() => loadModel('/dev/zero')).message).toContain('larger than the limit of 1048576 bytes');
    const broken = join(folder, 'broken.json');
    writeFileSync(broken, '{"name": ');
    expect(errorOf(() => loadModel(broken)).message).toContain('broken.json: not JSON');
  });
});

describe('parseModel', () => {
  const errorIn = (change: Parameters<typeof document>[0]) =>
    errorOf(() => parseModel(document(change), 'm.json'));

  it('names an unknown key, where it is and the closest known key, at every level', () => {
    const inPlane = errorIn((json) => {
      const plane = planeOf(json);
      plane['bytes_per_tokens'] = plane['bytes_per_token'];
      delete plane['bytes_per_token'];
    });
    expect(inPlane.code).toBe('INVALID_MODEL');
    expect(inPlane.message).toBe(
      'm.json: unknown key "bytes_per_tokens" in groups[0].planes[0]. Did you mean "bytes_per_token"? ' +
        'Known keys: name, bytes_per_token',
    );
    const inGroup = errorIn((json) => Object.assign(json.groups[1]!, { windowTokens: 4 }));
    expect(inGroup.message).toContain('"windowTokens" in groups[1]. Did you mean "window_tokens"?');
    const atTop = errorIn((json) => Object.assign(json, { group: [] }));
    expect(atTop.message).toContain('"group" in the document. Did you mean "groups"?');
    const strange = errorIn((json) => Object.assign(json, { zzzzzzzz: 1 }));
    expect(strange.message).toContain(
      '"zzzzzzzz" in the document. Known keys: name, revision, dtype, layers, groups',
    );
  });

  it.each<[string, Parameters<typeof document>[0]]>([
    [
      'groups[0].planes[0].bytes_per_token is "16"; expected an integer',
      (json) => (planeOf(json)['bytes_per_token'] = '16'),
    ],
    [
      'groups[0].planes[0].bytes_per_token is 1.5; expected an integer',
      (json) => (planeOf(json)['bytes_per_token'] = 1.5),
    ],
    [
      'groups[0].planes[0].bytes_per_token is 0; expected an integer from 1',
      (json) => (planeOf(json)['bytes_per_token'] = 0),
    ],
    [
      'groups[0].planes[0].bytes_per_token is 15; expected a multiple',
      (json) => (planeOf(json)['bytes_per_token'] = 15),
    ],
    ['groups[0].planes[0].name is missing; expected a string', (json) => delete planeOf(json)['name']],
    ['groups[0].planes is missing; expected an array of planes', (json) => delete json.groups[0]!['planes']],
    ['groups[0].planes[0] is 7; expected an object', (json) => (json.groups[0]!['planes'] = [7])],
    [
      'groups[0].layers is "most"; expected "all" or an array',
      (json) => (json.groups[0]!['layers'] = 'most'),
    ],
    ['groups[0].layers[0] is 3; expected ascending', (json) => (json.groups[0]!['layers'] = [3])],
    [
      'groups[0].sharding is "split"; expected "replicated" or',
      (json) => (json.groups[0]!['sharding'] = 'split'),
    ],
    ['groups[0].kv_heads is 0; expected an integer', (json) => (json.groups[0]!['kv_heads'] = 0)],
    ['groups[1].window_tokens is -1; expected an integer', (json) => (json.groups[1]!['window_tokens'] = -1)],
    ['layers is 1000000000; expected an integer from 1 to 1024', (json) => (json.layers = 1e9)],
    [
      'layers is 3; expected every layer in at least one group; layer 0',
      (json) => (json.groups[0]!['layers'] = [1]),
    ],
  ])('%s', (expected, change) => {
    const error = errorIn(change);
    expect(error.code).toBe('INVALID_MODEL');
    expect(error.message).toContain(`m.json: ${expected}`);
    expect(error.details).toMatchObject({ file: 'm.json', path: expected.split(' ')[0] });
  });

  it('refuses what is no object at all', () => {
    expect(errorOf(() => parseModel('[]', 'm.json')).message).toBe(
      'm.json: the document is []; expected an object',
    );
  });
});
