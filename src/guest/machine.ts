/** What a guest consists of, as arguments of QEMU. */
import type { GuestImages } from './images.js';

export type Acceleration = 'kvm' | 'tcg';

/** A folder of the host that the guest mounts by its tag (9p), at most so many bytes a second read from it. */
export interface GuestShare {
  readonly tag: string;
  readonly path: string;
  readonly readBytesPerS?: number;
}

export interface GuestDisk {
  /** A raw image; /dev/vda is the first. */
  readonly path: string;
  readonly readBytesPerS?: number;
}

/** One end of a wire between two guests: datagrams between two unix sockets, an Ethernet frame each. */
export interface GuestLink {
  readonly local: string;
  readonly remote: string;
  readonly mtuBytes: number;
  readonly mac: string;
  /** Where every frame that crosses this end is written (pcap), its first bytes. */
  readonly capture?: string;
}

export interface Machine {
  readonly images: GuestImages;
  readonly acceleration: Acceleration;
  readonly memoryMiB: number;
  readonly cpus: number;
  readonly disks: readonly GuestDisk[];
  readonly shares: readonly GuestShare[];
  readonly link?: GuestLink;
}

/** The name of the link in QEMU's monitor. */
export const linkName = 'wire';
const capturedBytes = 128;

/** A comma separates QEMU's options. */
const escaped = (path: string): string => path.replaceAll(',', ',,');

function linkArguments({ local, remote, mtuBytes, mac, capture }: GuestLink): string[] {
  const ends = `local.type=unix,local.path=${escaped(local)},remote.type=unix,remote.path=${escaped(remote)}`;
  return [
    ...['-netdev', `dgram,id=${linkName},${ends}`],
    ...['-device', `virtio-net-pci,netdev=${linkName},host_mtu=${mtuBytes},mac=${mac}`],
    ...(capture === undefined
      ? []
      : [
          '-object',
          `filter-dump,id=capture,netdev=${linkName},file=${escaped(capture)},maxlen=${capturedBytes}`,
        ]),
  ];
}

const throttle = (bytesPerS: number | undefined): string =>
  bytesPerS === undefined ? '' : `,throttling.bps-read=${Math.round(bytesPerS)}`;

/** @param ports serial ports by name, each with the unix socket that this process listens on */
export function qemuArguments(
  machine: Machine,
  script: string,
  ports: ReadonlyMap<string, string>,
  monitor: string,
): string[] {
  const { images, acceleration, memoryMiB, cpus, disks, shares, link } = machine;
  const accel = acceleration === 'kvm' ? ['kvm', '-cpu', 'host'] : ['tcg,thread=multi', '-cpu', 'max'];
  // An emulated processor's TSC is the host's; left alone the guest would take HPET, a slow device, for its clock.
  // Its timers run late on a busy machine; a kernel that tests them then panics at boot (no_timer_check: it does not).
  const clock = acceleration === 'kvm' ? '' : 'tsc=reliable clocksource=tsc no_timer_check ';
  const hostFiles = 'path=/,security_model=none,readonly=on,multidevs=remap';
  return [
    ...['-M', 'q35', '-nodefaults', '-no-reboot', '-display', 'none', '-serial', 'stdio'],
    ...['-accel', ...accel, '-smp', String(cpus), '-m', String(memoryMiB)],
    ...['-kernel', images.kernel, '-initrd', images.initramfs],
    ...[
      '-append',
      `console=ttyS0 panic=-1 quiet mitigations=off ${clock}net.ifnames=0 guest_script=${script}`,
    ],
    ...['-chardev', `socket,id=monitor,path=${escaped(monitor)}`, '-mon', 'chardev=monitor,mode=control'],
    ...['-fsdev', `local,id=host,${hostFiles}`, '-device', 'virtio-9p-pci,fsdev=host,mount_tag=host'],
    ...shares.flatMap(({ tag, path, readBytesPerS }, i) => [
      '-fsdev',
      `local,id=share${i},path=${escaped(path)},security_model=none,multidevs=remap${throttle(readBytesPerS)}`,
      ...['-device', `virtio-9p-pci,fsdev=share${i},mount_tag=${tag}`],
    ]),
    ...['-device', 'virtio-serial-pci'],
    ...[...ports].flatMap(([name, socket], i) => [
      ...['-chardev', `socket,id=port${i},path=${escaped(socket)}`],
      ...['-device', `virtserialport,chardev=port${i},name=${name}`],
    ]),
    ...disks.flatMap(({ path, readBytesPerS }, i) => [
      '-drive',
      `file=${escaped(path)},format=raw,if=none,id=disk${i},cache=writeback${throttle(readBytesPerS)}`,
      ...['-device', `virtio-blk-pci,drive=disk${i}`],
    ]),
    ...(link === undefined ? [] : linkArguments(link)),
  ];
}
