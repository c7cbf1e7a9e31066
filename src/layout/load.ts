/** Models by preset name or from a JSON file; docs/models.md describes the format. */
import { closeSync, openSync, readSync } from 'node:fs';
import { z } from 'zod';
import { DualPathError } from '../errors/index.js';
import { show } from './check.js';
import { closest } from './closest.js';
import { checkModel, modelLimits } from './model.js';
import type { ModelDescription } from './model.js';
import { presets } from './presets.js';

const maxFileBytes = 1 << 20;

// Shapes and types only; checkModel has the rules on values. Every `error` says what was expected.
const text = z.string({ error: 'a string' });
const integer = z.int({ error: 'an integer' });
const layerCount = `an integer from 1 to ${modelLimits.layers}`;

const planeSchema = strict({ name: text, bytes_per_token: integer });
const groupSchema = strict({
  name: text,
  layers: z.union([z.literal('all'), z.array(z.int())], { error: '"all" or an array of layer indices' }),
  planes: z.array(planeSchema, { error: 'an array of planes' }),
  window_tokens: integer.default(0),
  sharding: z.enum(['replicated', 'sharded'], { error: '"replicated" or "sharded"' }),
  kv_heads: integer.optional(),
});
const modelSchema = strict({
  name: text,
  revision: text,
  dtype: text,
  layers: z
    .int({ error: layerCount })
    .min(1, { error: layerCount })
    .max(modelLimits.layers, { error: layerCount }),
  groups: z.array(groupSchema, { error: 'an array of groups' }),
});

function strict<Shape extends z.core.$ZodShape>(shape: Shape): z.ZodObject<Shape, z.core.$strict> {
  return z.strictObject(shape, { error: 'an object' });
}

/**
 * A preset by its name, or a model from a JSON file. What contains a slash or ends in `.json` is a path.
 * @throws DualPathError INVALID_ARGUMENT for an unknown name, INVALID_MODEL for a file that cannot be read or is wrong.
 */
export function loadModel(nameOrPath: string): ModelDescription {
  const preset = presets.find(({ name }) => name === nameOrPath);
  if (preset !== undefined) {
    return preset;
  }
  if (nameOrPath.includes('/') || nameOrPath.endsWith('.json')) {
    return parseModel(readBounded(nameOrPath), nameOrPath);
  }
  const names = presets.map(({ name }) => name);
  const near = closest(nameOrPath, names);
  const hint = near === undefined ? '' : ` Did you mean ${show(near)}?`;
  throw new DualPathError(
    'INVALID_ARGUMENT',
    `unknown model ${show(nameOrPath)}.${hint} Pass a preset (${names.join(', ')}) or the path of a JSON file ` +
      `(with a slash, or ending in .json)`,
    { value: show(nameOrPath), presets: names.join(', ') },
  );
}

/**
 * A model from JSON text.
 * @param file - named in errors.
 * @throws DualPathError INVALID_MODEL naming the file, the place in it, the value and what was expected.
 */
export function parseModel(json: string, file: string): ModelDescription {
  let input: unknown;
  try {
    input = JSON.parse(json);
  } catch (error) {
    throw new DualPathError(
      'INVALID_MODEL',
      `${file}: not JSON: ${(error as Error).message}`,
      { file },
      { cause: error },
    );
  }
  const result = modelSchema.safeParse(input);
  if (!result.success) {
    throw schemaError(result.error.issues, input, file);
  }
  const { groups, ...model } = result.data;
  const all = Array.from({ length: model.layers }, (_, layer) => layer);
  return checkModel(
    {
      ...model,
      groups: groups.map((group) => ({
        name: group.name,
        layers: group.layers === 'all' ? all : group.layers,
        planes: group.planes.map((plane) => ({ name: plane.name, bytesPerToken: plane.bytes_per_token })),
        windowTokens: group.window_tokens,
        sharding: group.sharding,
        ...(group.kv_heads === undefined ? {} : { kvHeads: group.kv_heads }),
      })),
    },
    file,
  );
}

/** Reads no more than the limit, whatever the path names (a device has no size to ask for first). */
function readBounded(file: string): string {
  const buffer = Buffer.alloc(maxFileBytes + 1);
  let length = 0;
  try {
    const descriptor = openSync(file, 'r');
    try {
      let read: number;
      do {
        read = readSync(descriptor, buffer, length, buffer.length - length, null);
        length += read;
      } while (read > 0 && length < buffer.length);
    } finally {
      closeSync(descriptor);
    }
  } catch (error) {
    const { code, message } = error as NodeJS.ErrnoException;
    const details = { file, errno: code ?? null };
    throw new DualPathError('INVALID_MODEL', `${file}: cannot be read: ${message}`, details, {
      cause: error,
    });
  }
  if (length > maxFileBytes) {
    const message = `${file}: larger than the limit of ${maxFileBytes} bytes: is it a model description?`;
    throw new DualPathError('INVALID_MODEL', message, { file, limit_bytes: maxFileBytes });
  }
  return buffer.toString('utf8', 0, length);
}

function schemaError(issues: readonly z.core.$ZodIssue[], input: unknown, file: string): DualPathError {
  // A misspelt key is also a missing one: the misspelling is the cause.
  const unknownKey = issues.find((issue) => issue.code === 'unrecognized_keys');
  if (unknownKey !== undefined) {
    return unknownKeyError(unknownKey.keys[0]!, unknownKey.path, file);
  }
  const issue = issues[0]!;
  const path = pathText(issue.path);
  const value = show(
    issue.path.reduce<unknown>((inner, key) => (inner as Record<PropertyKey, unknown>)[key], input),
  );
  return new DualPathError('INVALID_MODEL', `${file}: ${path} is ${value}; expected ${issue.message}`, {
    file,
    path,
    value,
    expected: issue.message,
  });
}

function unknownKeyError(key: string, path: readonly PropertyKey[], file: string): DualPathError {
  const schema = path.includes('planes') ? planeSchema : path.includes('groups') ? groupSchema : modelSchema;
  const known = Object.keys(schema.shape);
  const near = closest(key, known);
  const hint = near === undefined ? '' : ` Did you mean ${show(near)}?`;
  const where = pathText(path);
  return new DualPathError(
    'INVALID_MODEL',
    `${file}: unknown key ${show(key)} in ${where}.${hint} Known keys: ${known.join(', ')}`,
    { file, path: where, value: key, closest: near ?? null, expected: known.join(', ') },
  );
}

function pathText(path: readonly PropertyKey[]): string {
  const text = path.map((key) => (typeof key === 'number' ? `[${key}]` : `.${String(key)}`)).join('');
  return text === '' ? 'the document' : text.replace(/^\./, '');
}
