import { describe, expect, it } from 'vitest';
import { quoted } from '../../src/guest/index.js';
import { qemuArguments, type Machine } from '../../src/guest/machine.js';

const machine: Machine = {
  images: { kernel: '/k', initramfs: '/i', cache: '/c' },
  acceleration: 'tcg',
  memoryMiB: 512,
  cpus: 1,
  disks: [],
  shares: [{ tag: 'share0', path: '/data/a,b', readBytesPerS: 8388608 }],
};
const textOf = (changed: Partial<Machine>): string =>
  qemuArguments({ ...machine, ...changed }, '/s', new Map([['dualpath.out', '/p']]), '/m').join(' ');

describe('the arguments of QEMU', () => {
  it('double commas of paths and cap what is read of a share', () => {
    expect(textOf({})).toContain(
      'path=/data/a,,b,security_model=none,multidevs=remap,throttling.bps-read=8388608',
    );
  });

  it('use the kind of processor that the acceleration allows', () => {
    expect(textOf({})).toContain('-accel tcg,thread=multi -cpu max');
    expect(textOf({ acceleration: 'kvm' })).toContain('-accel kvm -cpu host');
  });

  it('have a wire with two ends, and record one', () => {
    const link = {
      local: '/w/1',
      remote: '/w/2',
      mtuBytes: 4500,
      mac: '52:54:00:77:00:01',
      capture: '/x.pcap',
    };
    const text = textOf({ link });
    expect(text).toContain('dgram,id=wire,local.type=unix,local.path=/w/1,remote.type=unix,remote.path=/w/2');
    expect(text).toContain('filter-dump,id=capture,netdev=wire,file=/x.pcap');
    expect(textOf({})).not.toContain('filter-dump');
  });
});

describe('a quoted word', () => {
  it('is one word for a shell, whatever is in it', () => {
    expect(quoted(`it's "$HOME"`)).toBe(`'it'\\''s "$HOME"'`);
  });
});
