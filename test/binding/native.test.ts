/** The add-on is loaded when it is needed; what it throws becomes a DualPathError. */
import { spawnSync } from 'node:child_process';
import { cpSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { callNative, fromNative, native } from '../../src/binding/index.js';
import { DualPathError } from '../../src/errors/index.js';
import { portArbitration } from '../../src/rdma/index.js';
import { errorOf } from '../transfer/support.js';
import { scratchDirectory } from '../traffic/support.js';

describe('the add-on', () => {
  it('is loaded once', () => {
    expect(native()).toBe(native());
  });

  it('missing, it is not missed before bytes move; then the error says how to build it', () => {
    const copy = scratchDirectory();
    for (const folder of ['binding', 'errors']) {
      cpSync(new URL(`../../dist/${folder}`, import.meta.url), join(copy, 'dist', folder), {
        recursive: true,
      });
    }
    const script = `
      import { native } from ${JSON.stringify(join(copy, 'dist/binding/index.js'))};
      console.log('imported');
      try { native(); } catch (error) { console.log(error.code, error.message); }`;
    const { stdout } = spawnSync(process.execPath, ['--input-type=module', '-e', script], {
      encoding: 'utf8',
    });
    expect(stdout).toMatch(
      /^imported\nADDON_MISSING the native add-on could not be loaded .*'npm run setup'/s,
    );
    expect(stdout).toContain(join(copy, 'build/Release/dualpath.node'));
  });
});

describe('errors', () => {
  it('with one of our codes become a DualPathError with errno', async () => {
    const error = Object.assign(new Error('no room'), { code: 'NO_SPACE', errno: 28 });
    expect(await errorOf(() => callNative(() => Promise.reject(fromNative(error) as Error)))).toMatchObject({
      code: 'NO_SPACE',
      message: 'no room',
      details: { errno: 28 },
      cause: error,
    });
    expect(fromNative(Object.assign(new Error('x'), { code: 'CLOSED', errno: 0 }))).toMatchObject({
      details: {},
    });
  });

  it('of others stay what they are', () => {
    const others = [new TypeError('x'), Object.assign(new Error('y'), { code: 'ENOENT' }), 'text', undefined];
    for (const other of others) expect(fromNative(other)).toBe(other);
    expect(() =>
      callNative(() => {
        throw new TypeError('x');
      }),
    ).toThrow(TypeError);
    expect(callNative(() => 7)).toBe(7);
  });

  it('are thrown by constructors, naming the option', () => {
    const { Arena, RateLink, Engine, Store, EmulatedGpu, BlockPool, Runtime } = native();
    const wrong = {} as never;
    for (const [construct, message] of [
      [() => new Arena(wrong), /name: a string expected/],
      [() => new Arena({ name: 'a', bytes: '1' as unknown as number }), /bytes: a whole number/],
      [() => new RateLink({ name: 'l', bytesPerS: -1 }), /bytesPerS: a whole number/],
      [() => new Engine(wrong), /name: a string expected/],
      [() => new Engine({ name: 'e', runtime: undefined as never }), /runtime: a runtime expected/],
      [() => new Store(wrong), /path: a string expected/],
      [() => new EmulatedGpu({ lanes: 1 } as never), /engine: an engine expected/],
      [() => new BlockPool({ slots: 1 } as never), /engine: an engine expected/],
      [() => new Runtime(undefined as never), /onWake: a function expected/],
    ] as [() => unknown, RegExp][]) {
      expect(() => callNative(construct)).toThrow(message);
      expect(() => callNative(construct)).toThrow(DualPathError);
    }
  });

  it('one link has one rate', () => {
    const { RateLink } = native();
    const link = new RateLink({ name: 'one link', bytesPerS: 1000 });
    expect(() => callNative(() => new RateLink({ name: 'one link', bytesPerS: 2000 }))).toThrow(
      /link 'one link' has 1000 B\/s already, 2000 asked/,
    );
    expect(link.statistics()).toEqual({ bytes: 0, operations: 0, busyNs: 0 });
  });

  it('one NIC has one rate, one set of tables, and lanes that send', () => {
    const { NicLink } = native();
    const arbitration = portArbitration();
    const open =
      (options: object): (() => unknown) =>
      () =>
        callNative(() => new NicLink({ name: 'one nic', bytesPerS: 1000, ...options }));
    const link = open({ arbitration })();
    expect(open({})()).not.toBe(link);
    expect(open({ bytesPerS: 2000 })).toThrow(/link 'one nic' has 1000 B\/s already, 2000 asked/);
    expect(open({ arbitration: { ...arbitration, highLimit: 1 } })).toThrow(/has other arbitration tables/);
    const lanes = { inference: 1, kv: 9, control: 3 };
    expect(open({ name: 'mute', arbitration: { ...arbitration, lanes } })).toThrow(
      /link 'mute': traffic class kv has virtual lane 9, to which neither table gives any weight/,
    );
    expect(open({ arbitration: { ...arbitration, high: [{ lane: -1 }] } })).toThrow(/lane: a whole number/);
    expect(open({ arbitration: { ...arbitration, low: 7 } })).toThrow(/low: an array/);
    expect(open({ arbitration: 7 })).toThrow(/options: an object/);
  });
});
