/** Objects of the add-on cannot be taken for one another: a wrong one is an error, never memory misread. */
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { native } from '../../src/binding/index.js';
import { blockLayout } from '../../src/layout/index.js';
import { BlockStore } from '../../src/storage/index.js';
import { preset, scratchDirectory } from '../traffic/support.js';

type Method = (...args: unknown[]) => unknown;

const closers: (() => void)[] = [];
let objects: Record<string, object> = {};

beforeAll(() => {
  const addon = native();
  const layout = blockLayout(preset('demo'), { blockTokens: 16 });
  const path = join(
    scratchDirectory((remove) => closers.push(remove)),
    'store',
  );
  const runtime = new addon.Runtime(() => undefined);
  const engine = new addon.Engine({ runtime, name: 'objects', shared: true, maxPrograms: 8 });
  const gpu = new addon.EmulatedGpu({ engine, lanes: 1 });
  const server = new addon.DoorServer({ engine, path: `${path}.sock` });
  closers.push(
    () => server.close(),
    () => gpu.close(),
    () => engine.requestClose(),
    () => runtime.close(),
  );
  objects = {
    arena: new addon.Arena({ name: 'objects', bytes: 4096, lock: 'none' }),
    link: new addon.RateLink({ name: 'objects', bytesPerS: 0 }),
    nicLink: new addon.NicLink({ name: 'objects', bytesPerS: 0 }),
    store: BlockStore.open({ path, layout }).handle,
    runtime,
    engine,
    pool: new addon.BlockPool({ engine, slots: 4 }),
    seeds: new addon.KvSeeds(new Uint32Array(4)),
    gpu,
    server,
  };
});

afterAll(() => {
  for (const close of closers) close();
});

const impostors = (): [string, unknown][] => [
  ...Object.entries(objects),
  ['a plain object', {}],
  ['an array', []],
  ['a function', () => undefined],
  ['a number', 7],
  ['a string', 'engine'],
  ['a proxy of the right one', new Proxy(objects['engine']!, {})],
  ['an heir of the right one', Object.create(objects['engine']!)],
  ['its prototype', Object.getPrototypeOf(objects['engine'])],
];

/** What takes an object of the add-on, of which kind, and how it is given. */
const takers: [what: string, kind: string, take: (value: never) => unknown][] = [
  ['BlockPool', 'engine', (engine) => new (native().BlockPool)({ engine, slots: 1 })],
  ['EmulatedGpu', 'engine', (engine) => new (native().EmulatedGpu)({ engine, lanes: 1 })],
  ['DoorServer', 'engine', (engine) => new (native().DoorServer)({ engine, path: 'nowhere/x' })],
  ['Engine', 'runtime', (runtime) => new (native().Engine)({ runtime, name: 'x' })],
  ['Engine', 'store', (store) => engineWith({ store })],
  ['Engine', 'nicLink', (nicEgress) => engineWith({ nicEgress })],
  ['Engine', 'link', (storageRead) => engineWith({ storageRead })],
];

function engineWith(options: object): unknown {
  const runtime = objects['runtime'] as never;
  const engine = new (native().Engine)({ runtime, name: 'another', ...options });
  engine.requestClose();
  engine.detach();
  return engine;
}

describe('objects of the add-on', () => {
  it.each(takers)('%s takes a %s and nothing else', (_what, kind, take) => {
    for (const [name, value] of impostors()) {
      if (name === kind) continue;
      let error: unknown;
      try {
        take(value as never);
      } catch (thrown) {
        error = thrown;
      }
      expect([name, (error as { code?: string } | undefined)?.code]).toEqual([name, 'INVALID_ARGUMENT']);
    }
  });

  it('takes the right one', () => {
    for (const [what, kind, take] of takers) {
      if (what === 'EmulatedGpu' || what === 'DoorServer') continue; // they start threads
      if (kind === 'runtime') continue; // its engine would have to be closed
      expect(() => take(objects[kind] as never)).not.toThrow();
    }
  });

  it('a method called on anything else throws', () => {
    let calls = 0;
    for (const [kind, object] of Object.entries(objects)) {
      const prototype = Object.getPrototypeOf(object) as Record<string, Method>;
      for (const name of Object.getOwnPropertyNames(prototype).filter((name) => name !== 'constructor')) {
        for (const [impostor, value] of [...impostors(), ['nothing', undefined] as [string, unknown]]) {
          if (impostor === kind) continue;
          if (impostor.endsWith('of the right one') || impostor === 'its prototype') continue; // below
          expect(() => prototype[name]!.call(value)).toThrow(TypeError);
          calls++;
        }
      }
    }
    expect(calls).toBeGreaterThan(400);
  });

  it('a method called on what only looks like its object throws', () => {
    for (const object of Object.values(objects)) {
      const prototype = Object.getPrototypeOf(object) as Record<string, Method>;
      for (const name of Object.getOwnPropertyNames(prototype).filter((name) => name !== 'constructor')) {
        for (const value of [new Proxy(object, {}), Object.create(object), prototype] as unknown[]) {
          expect(() => prototype[name]!.call(value)).toThrow(TypeError);
        }
      }
    }
  });

  it('a class called as a function throws', () => {
    for (const [name, value] of Object.entries(native())) {
      if (!/^[A-Z]/.test(name)) continue;
      expect(() => (value as unknown as Method)({})).toThrow();
    }
  });
});
