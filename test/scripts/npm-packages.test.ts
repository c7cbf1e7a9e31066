import { readFileSync } from 'node:fs';
import { resolve } from 'node:path';
import { describe, expect, it } from 'vitest';

type Packages = Record<string, { version?: string; optional?: boolean }>;

const root = resolve(import.meta.dirname, '../..');
const modulePath = resolve(root, 'scripts/setup/npm-packages.mjs');
const { lockIsInstalled } = (await import(modulePath)) as {
  lockIsInstalled: (wanted: Packages, installed: Packages) => boolean;
};

const wanted: Packages = {
  '': { version: '0.1.0' },
  'node_modules/a': { version: '1.0.0' },
  'node_modules/b-other-platform': { version: '1.0.0', optional: true },
};

describe('lockIsInstalled', () => {
  it('accepts what npm ci leaves, without the packages of other platforms', () => {
    expect(lockIsInstalled(wanted, { 'node_modules/a': { version: '1.0.0' } })).toBe(true);
  });

  it.each<[string, Packages]>([
    ['a missing package', {}],
    ['another version', { 'node_modules/a': { version: '1.0.1' } }],
    [
      'another version of an optional package',
      {
        'node_modules/a': { version: '1.0.0' },
        'node_modules/b-other-platform': { version: '2.0.0' },
      },
    ],
    [
      'a package too many',
      { 'node_modules/a': { version: '1.0.0' }, 'node_modules/c': { version: '1.0.0' } },
    ],
  ])('refuses %s', (_what, installed) => {
    expect(lockIsInstalled(wanted, installed)).toBe(false);
  });
});

describe('package.json', () => {
  it('states the Node it needs in the form that setup reads', () => {
    const { engines } = JSON.parse(readFileSync(resolve(root, 'package.json'), 'utf8')) as {
      engines: { node: string };
    };
    expect(engines.node).toMatch(/^>=\d+\.\d+$/);
  });
});
