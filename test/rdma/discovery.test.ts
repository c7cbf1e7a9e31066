import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { devicesText } from '../../src/cli/devices.js';
import { findRdmaDevices, selectDevice } from '../../src/rdma/index.js';
import { makeStandIn, type StandIn } from './support.js';

let standIn: StandIn;
beforeAll(() => {
  standIn = makeStandIn();
});
afterAll(() => standIn.remove());

const nowhere = '/nonexistent/infiniband';

describe('findRdmaDevices', () => {
  it('asks the library by FFI, and sysfs for what it does not say', () => {
    const found = findRdmaDevices(standIn);
    expect(found).toMatchObject({ library: standIn.library, kernel: true, problem: null });
    expect(found.devices.map(({ name }) => name)).toEqual(['kernel_only0', 'standin_ib0', 'standin_roce0']);
    const [, infiniband, roce] = found.devices;
    expect(infiniband).toMatchObject({
      guid: '1122:3344:5566:7788',
      pciAddress: '0000:3b:00.0',
      usable: true,
      problem: null,
      ports: [{ port: 1, state: 'down', linkLayer: 'infiniband', mtuBytes: 1024, lid: 77 }],
    });
    expect(roce?.pciAddress).toBeNull();
    expect(roce?.ports[0]).toMatchObject({ state: 'active', linkLayer: 'ethernet', mtuBytes: 1024 });
    expect(roce?.ports[0]?.gids).toEqual([
      {
        index: 3,
        gid: '0000:0000:0000:0000:0000:ffff:0a00:0007',
        type: 'roce-v2',
        netdev: 'eth7',
        rank: 1,
        reason: 'RoCE v2, IPv4 10.0.0.7',
      },
      expect.objectContaining({ index: 1, rank: 2, type: 'roce-v2' }),
      expect.objectContaining({ index: 0, rank: 3, type: 'roce-v1' }),
    ]);
  });

  it('says so where there is no library, and shows what sysfs knows', () => {
    const found = findRdmaDevices({ ...standIn, library: 'libibverbs-not-there.so.1' });
    expect(found.library).toBeNull();
    expect(found.problem).toMatch(
      /libibverbs-not-there.so.1 could not be loaded .*; install rdma-core's libibverbs/,
    );
    const roce = found.devices.find(({ name }) => name === 'standin_roce0');
    expect(roce).toMatchObject({ usable: false, problem: found.problem });
    expect(roce?.ports[0]?.gids.map(({ index }) => index)).toEqual([3, 1, 0]);
    expect(roce?.ports[0]?.mtuBytes).toBeNull();
  });

  it('tells a library without the calls from one that is absent', () => {
    const found = findRdmaDevices({ library: 'libc.so.6', sysfs: nowhere });
    expect(found.problem).toMatch(/libc.so.6 could not be loaded \(.*ibv_get_device_list/);
  });

  it('names a device that the library has no provider for', () => {
    const { devices } = findRdmaDevices(standIn);
    expect(devices[0]).toMatchObject({ usable: false, ports: [{ state: 'down', linkLayer: 'infiniband' }] });
    expect(devices[0]?.problem).toMatch(/no provider for it/);
  });

  it('says why a device cannot be opened', () => {
    process.env['STANDIN_OPEN_ERRNO'] = '13';
    try {
      const found = findRdmaDevices(standIn);
      expect(found.devices[1]).toMatchObject({ usable: false, guid: '1122:3344:5566:7788' });
      expect(found.devices[1]?.problem).toMatch(/^opening it failed: EACCES; check the permissions/);
      expect(found.problem).toMatch(/^no device can be opened: /);
      expect(() => selectDevice(found)).toThrow(/no RDMA: no device can be opened/);
    } finally {
      delete process.env['STANDIN_OPEN_ERRNO'];
    }
  });

  it('tells a machine without devices', () => {
    process.env['STANDIN_NO_DEVICES'] = '1';
    try {
      const found = findRdmaDevices({ library: standIn.library, sysfs: nowhere });
      expect(found).toMatchObject({ library: standIn.library, devices: [] });
      expect(found.problem).toMatch(/no RDMA subsystem/);
    } finally {
      delete process.env['STANDIN_NO_DEVICES'];
    }
  });

  it('works without sysfs', () => {
    const found = findRdmaDevices({ library: standIn.library, sysfs: nowhere });
    expect(found).toMatchObject({ kernel: false, problem: null });
    expect(found.devices[1]?.ports[0]?.gids[0]).toMatchObject({ index: 3, netdev: null });
  });

  it('finds nothing on a machine with nothing, and says what is missing', () => {
    const found = findRdmaDevices({ library: 'libibverbs-not-there.so.1', sysfs: nowhere });
    expect(found.devices).toEqual([]);
    expect(devicesText(found)).toMatch(/^no RDMA: libibverbs-not-there.*\nfound by sysfs alone$/s);
  });
});

describe('selectDevice', () => {
  it('takes the first with an active port, or the one that is named', () => {
    const found = findRdmaDevices(standIn);
    expect(selectDevice(found).name).toBe('standin_roce0');
    expect(selectDevice(found, 'standin_ib0').name).toBe('standin_ib0');
  });

  it.each([
    [
      'standin_rocee0',
      'INVALID_ARGUMENT',
      /no RDMA device is named 'standin_rocee0' \(did you mean standin_roce0\?\)/,
    ],
    ['kernel_only0', 'RDMA_UNAVAILABLE', /RDMA device 'kernel_only0': libibverbs has no provider/],
  ])('refuses %s', (name, code, message) => {
    const found = findRdmaDevices(standIn);
    expect(() => selectDevice(found, name)).toThrow(message);
    expect(() => selectDevice(found, name)).toThrow(expect.objectContaining({ code }));
  });

  it('says why there is none', () => {
    const none = findRdmaDevices({ library: standIn.library, sysfs: nowhere });
    expect(() => selectDevice({ ...none, devices: [], problem: 'nothing' }, 'x')).toThrow(/no RDMA: nothing/);
  });
});

describe('devicesText', () => {
  it('is a table a port, best GID first', () => {
    const text = devicesText(findRdmaDevices(standIn));
    expect(text).toMatch(/standin_roce0: GUID [0-9a-f:]+, no PCI address\n/);
    expect(text).toMatch(/port 1: active, ethernet, MTU 1024/);
    expect(text.indexOf('choice 1, index 3')).toBeLessThan(text.indexOf('choice 2, index 1'));
    expect(text.endsWith(`found by ${join(standIn.library)} and sysfs`)).toBe(true);
  });
});
