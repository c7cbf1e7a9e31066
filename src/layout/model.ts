/**
 * What a model's KV-Cache consists of: groups of layers, each with planes of so many bytes per token. Covers MLA
 * with an indexer (DeepSeek-V3.2), GQA with separate K and V, and layers with sliding windows (GPT-OSS).
 */
import { DualPathError } from '../errors/index.js';
import { show } from './check.js';

/** One array `[tokens, bytesPerToken]` per layer, such as K, V or an MLA latent. */
export interface KvPlane {
  readonly name: string;
  /** Bytes of one token in one layer, over all shards. */
  readonly bytesPerToken: number;
}

/** Layers whose KV-Cache has the same planes, window and sharding. A layer may be in several groups. */
export interface KvGroup {
  readonly name: string;
  /** Model layer indices, ascending, without repeats. */
  readonly layers: readonly number[];
  readonly planes: readonly KvPlane[];
  /** A query sees this many tokens, itself included; 0: all tokens (full attention). */
  readonly windowTokens: number;
  /** `sharded`: each of n shards holds 1/n of every plane's bytes; `replicated`: each shard holds all of them. */
  readonly sharding: 'replicated' | 'sharded';
  /** KV heads of a sharded group. When given, a shard must hold whole heads. */
  readonly kvHeads?: number;
}

export interface ModelDescription {
  readonly name: string;
  /** Names the weights: KV-Cache of two revisions is never mixed. */
  readonly revision: string;
  /** Format of the cached values, such as `float16`. */
  readonly dtype: string;
  /** Number of layers; every one of 0 .. layers-1 is in at least one group. */
  readonly layers: number;
  readonly groups: readonly KvGroup[];
}

export const modelLimits = {
  layers: 1024,
  groups: 64,
  planesPerGroup: 64,
  bytesPerToken: 2 ** 30,
  windowTokens: 2 ** 32 - 1,
  kvHeads: 65_536,
  nameCharacters: 200,
} as const;

type Fail = (path: string, value: unknown, expected: string) => never;

/**
 * Checks a description; returns it unchanged.
 * @param file - the JSON file it came from, if any: errors then name the file and spell keys as JSON does.
 * @throws DualPathError INVALID_MODEL naming the place, the value and what was expected.
 */
export function checkModel(model: ModelDescription, file?: string): ModelDescription {
  const fail: Fail = (path, value, expected) => {
    const spelled =
      file === undefined ? path : path.replace(/[A-Z]/g, (capital) => `_${capital.toLowerCase()}`);
    const where = file ?? `model ${show(model.name)}`;
    throw new DualPathError('INVALID_MODEL', `${where}: ${spelled} is ${show(value)}; expected ${expected}`, {
      ...(file === undefined ? {} : { file }),
      path: spelled,
      value: show(value),
      expected,
    });
  };
  checkText('name', model.name, fail);
  checkText('revision', model.revision, fail);
  checkText('dtype', model.dtype, fail);
  checkInteger('layers', model.layers, 1, modelLimits.layers, fail);
  checkNamedList('groups', model.groups, modelLimits.groups, fail);
  model.groups.forEach((group, index) => checkGroup(`groups[${index}]`, group, model.layers, fail));
  const held = new Set(model.groups.flatMap((group) => group.layers));
  for (let layer = 0; layer < model.layers; layer++) {
    if (!held.has(layer)) {
      fail('layers', model.layers, `every layer in at least one group; layer ${layer} is in none`);
    }
  }
  return model;
}

function checkGroup(path: string, group: KvGroup, layerCount: number, fail: Fail): void {
  if (!isArray(group.layers) || group.layers.length === 0) {
    fail(`${path}.layers`, group.layers, 'at least one layer index');
  }
  let previous = -1;
  group.layers.forEach((layer, index) => {
    if (!Number.isInteger(layer) || layer <= previous || layer >= layerCount) {
      const expected = `ascending layer indices in 0 .. ${layerCount - 1}, each once`;
      fail(`${path}.layers[${index}]`, layer, expected);
    }
    previous = layer;
  });
  checkInteger(`${path}.windowTokens`, group.windowTokens, 0, modelLimits.windowTokens, fail);
  if (group.sharding !== 'replicated' && group.sharding !== 'sharded') {
    fail(`${path}.sharding`, group.sharding, '"replicated" or "sharded"');
  }
  if (group.kvHeads !== undefined) {
    if (group.sharding !== 'sharded') {
      fail(`${path}.kvHeads`, group.kvHeads, 'no such key: only a sharded group is divided by heads');
    }
    checkInteger(`${path}.kvHeads`, group.kvHeads, 1, modelLimits.kvHeads, fail);
  }
  checkNamedList(`${path}.planes`, group.planes, modelLimits.planesPerGroup, fail);
  group.planes.forEach((plane, index) => {
    const bytesPath = `${path}.planes[${index}].bytesPerToken`;
    checkInteger(bytesPath, plane.bytesPerToken, 1, modelLimits.bytesPerToken, fail);
    if (plane.bytesPerToken % (group.kvHeads ?? 1) !== 0) {
      fail(bytesPath, plane.bytesPerToken, `a multiple of the group's ${group.kvHeads} KV heads`);
    }
  });
}

function checkNamedList(
  path: string,
  items: readonly { readonly name: string }[],
  limit: number,
  fail: Fail,
): void {
  if (!isArray(items) || items.length === 0 || items.length > limit) {
    fail(path, items, `an array of 1 to ${limit} entries`);
  }
  const seen = new Set<string>();
  items.forEach((item, index) => {
    if (typeof item !== 'object' || item === null) {
      fail(`${path}[${index}]`, item, 'an object');
    }
    const { name } = item;
    checkText(`${path}[${index}].name`, name, fail);
    if (seen.has(name)) {
      fail(`${path}[${index}].name`, name, 'a name that no other entry of the list has');
    }
    seen.add(name);
  });
}

/** `Array.isArray` would turn the type of a readonly array into any[]. */
function isArray(value: readonly unknown[]): boolean {
  return Array.isArray(value);
}

function checkText(path: string, value: string, fail: Fail): void {
  if (typeof value !== 'string' || value.length === 0 || value.length > modelLimits.nameCharacters) {
    fail(path, value, `a string of 1 to ${modelLimits.nameCharacters} characters`);
  }
}

function checkInteger(path: string, value: number, least: number, most: number, fail: Fail): void {
  if (!Number.isSafeInteger(value) || value < least || value > most) {
    fail(path, value, `an integer from ${least} to ${most}`);
  }
}
