import { mkdirSync, mkdtempSync, rmSync, symlinkSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { findCopyPlace, type RdmaDevice, type RdmaDevices } from '../../src/rdma/index.js';

const port = (state: string, gid = true): RdmaDevice['ports'][number] =>
  ({
    port: 2,
    state,
    linkLayer: 'ethernet',
    gids: gid ? [{ index: 3, rank: 1 }] : [{ index: 0, rank: null }],
  }) as unknown as RdmaDevice['ports'][number];
const device = (name: string, pciAddress: string | null, state = 'active'): RdmaDevice => ({
  ...{ name, guid: null, pciAddress, usable: true, problem: null },
  ports: [port(state)],
});
const devices = (...all: RdmaDevice[]): RdmaDevices => ({
  library: 'l',
  kernel: true,
  devices: all,
  problem: null,
});

/** A GPU and two NICs: near is behind the GPU's switch, far on another root complex. */
let pci: string;
beforeAll(() => {
  pci = mkdtempSync(join(tmpdir(), 'dualpath-pci-'));
  const places = {
    '0000:3b:00.0': 'pci0000:3a/0000:3a:00.0/0000:3b:00.0',
    '0000:3c:00.0': 'pci0000:3a/0000:3a:00.0/0000:3c:00.0',
    '0000:86:00.0': 'pci0000:85/0000:85:00.0/0000:86:00.0',
  };
  for (const [address, path] of Object.entries(places)) {
    mkdirSync(join(pci, 'tree', path), { recursive: true });
    symlinkSync(join(pci, 'tree', path), join(pci, address));
  }
});
afterAll(() => rmSync(pci, { recursive: true }));

const near = device('mlx5_1', '0000:3c:00.0');
const far = device('mlx5_0', '0000:86:00.0');

describe('the NIC that copies', () => {
  it('is the nearest to the GPU that works', () => {
    const gpu = { gpuPciAddress: '0000:3b:00.0' };
    expect(findCopyPlace(gpu, devices(far, near), pci)).toEqual({
      ...{ device: 'mlx5_1', port: 2, gidIndex: 3, linkLayer: 'ethernet' },
      reason: '2 hops from the GPU on PCI',
    });
    const down = device('mlx5_1', '0000:3c:00.0', 'down');
    expect(findCopyPlace(gpu, devices(far, down), pci).device).toBe('mlx5_0');
  });

  it('is the configured one, wherever it is', () => {
    expect(findCopyPlace({ device: 'rxe0' }, devices(near, device('rxe0', null)), pci)).toMatchObject({
      device: 'rxe0',
      reason: 'as configured',
    });
    expect(() => findCopyPlace({ device: 'rxe1' }, devices(device('rxe0', null)), pci)).toThrow(
      /no RDMA device is named 'rxe1'/,
    );
  });

  it('is none, and why is said, where it cannot be told', () => {
    expect(() => findCopyPlace({}, devices(near), pci)).toThrow(/emulated HBM has no place on PCI/);
    const gpu = { gpuPciAddress: '0000:3b:00.0' };
    expect(() => findCopyPlace(gpu, devices(device('rxe0', null)), pci)).toThrow(
      /none with a place on PCI beside GPU 0000:3b:00.0; name a device/,
    );
    const down = devices(device('rxe0', null, 'down'));
    expect(() => findCopyPlace({ device: 'rxe0' }, down, pci)).toThrow(/'rxe0' has no active port/);
  });
});
