import { mkdirSync, mkdtempSync, rmSync, symlinkSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, relative } from 'node:path';
import fc from 'fast-check';
import { afterAll, describe, expect, it } from 'vitest';
import { pairedNic, pciHops, pciPath } from '../../src/rdma/index.js';

const folder = mkdtempSync(join(tmpdir(), 'dualpath-pci-'));
afterAll(() => rmSync(folder, { recursive: true }));
const root = join(folder, 'bus/pci/devices');

/** A device at this place of the tree, as sysfs has it. */
function plug(path: string): string {
  const address = path.split('/').at(-1)!;
  mkdirSync(join(folder, 'devices', path), { recursive: true });
  mkdirSync(root, { recursive: true });
  symlinkSync(relative(root, join(folder, 'devices', path)), join(root, address));
  return address;
}

const gpu = plug('pci0000:3a/0000:3a:00.0/0000:3b:00.0/0000:3c:00.0/0000:3d:00.0');
const sameSwitch = plug('pci0000:3a/0000:3a:00.0/0000:3b:00.0/0000:3c:01.0/0000:3e:00.0');
const sameRoot = plug('pci0000:3a/0000:3a:01.0/0000:40:00.0');
const otherRoot = plug('pci0000:5d/0000:5d:00.0/0000:5e:00.0');

describe('the NIC of a GPU', () => {
  it('is the nearest on PCI', () => {
    const nics = [
      { name: 'mlx5_0', pciAddress: otherRoot },
      { name: 'mlx5_1', pciAddress: sameRoot },
      { name: 'mlx5_2', pciAddress: sameSwitch },
      { name: 'rxe0', pciAddress: null },
    ];
    expect(pairedNic(gpu, nics, root)).toEqual({
      ...{ device: 'mlx5_2', hops: 4, reason: '4 hops from the GPU on PCI' },
    });
    expect(pairedNic(gpu.toUpperCase(), nics.slice(0, 2), root)).toMatchObject({ device: 'mlx5_1', hops: 6 });
    expect(pairedNic(gpu, nics.slice(0, 1), root)?.reason).toMatch(/another root complex/);
  });

  it('is to be configured where PCI says nothing', () => {
    expect(pairedNic(gpu, [{ name: 'rxe0', pciAddress: null }], root)).toBeNull();
    expect(pairedNic('0000:ff:00.0', [{ name: 'mlx5_0', pciAddress: sameRoot }], root)).toBeNull();
    expect(pciPath(gpu, join(folder, 'nowhere'))).toBeNull();
  });

  it('is as far from the GPU as the GPU from it, and nothing from itself', () => {
    const place = fc.array(fc.integer({ min: 0, max: 2 }), { minLength: 1, maxLength: 5 });
    fc.assert(
      fc.property(place, place, (a, b) => {
        const path = (bridges: readonly number[]): string =>
          `/sys/devices/pci0000:${bridges[0]}0/${bridges.map((n, i) => `0000:${i}${n}:00.0`).join('/')}`;
        expect(pciHops(path(a), path(b))).toBe(pciHops(path(b), path(a)));
        expect(pciHops(path(a), path(a))).toBe(0);
        if (a[0] !== b[0]) expect(pciHops(path(a), path(b))).toBeNull();
      }),
      { numRuns: 200 },
    );
  });
});
