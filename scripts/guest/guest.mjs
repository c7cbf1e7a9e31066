/** Starts a guest, reads what it says, and leaves nothing running. */
import { spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { closeSync, existsSync, mkdtempSync, openSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';

const kvmProbeMs = 10_000;
const pollMs = 20;
const shellEnv = 'export PATH=$PATH:/usr/sbin:/sbin HOME=/root\n';

/** Kills what is still running when this process goes, however it does. */
const running = new Set();
process.on('exit', () => {
  for (const child of running) child.kill('SIGKILL');
});

function qemuArguments({ images, accel, memoryMiB, cpus, disks, port, script }) {
  return [
    ...['-M', 'q35', '-nodefaults', '-no-reboot', '-display', 'none', '-serial', 'stdio'],
    ...['-accel', ...(accel === 'kvm' ? ['kvm', '-cpu', 'host'] : ['tcg,thread=multi', '-cpu', 'max'])],
    ...['-smp', String(cpus), '-m', String(memoryMiB)],
    ...['-kernel', images.kernel, '-initrd', images.initramfs],
    ...['-append', `console=ttyS0 panic=-1 quiet net.ifnames=0 guest_script=${script}`],
    ...['-fsdev', 'local,id=host,path=/,security_model=none,readonly=on,multidevs=remap'],
    ...['-device', 'virtio-9p-pci,fsdev=host,mount_tag=host'],
    ...['-device', 'virtio-serial-pci', '-chardev', `file,id=port,path=${port}`],
    ...['-device', 'virtserialport,chardev=port,name=dualpath'],
    ...disks.flatMap((file, i) => [
      ...['-drive', `file=${file},format=raw,if=none,id=disk${i},cache=writeback`],
      ...['-device', `virtio-blk-pci,drive=disk${i}`],
    ]),
  ];
}

export class Guest {
  /** Lines that the guest has written to /dev/vport*p1 whose name is 'dualpath'; whole ones only. */
  get portLines() {
    const text = existsSync(this.#port) ? readFileSync(this.#port, 'utf8') : '';
    return text.split('\n').slice(0, -1);
  }
  get console() {
    return readFileSync(this.#console, 'utf8');
  }

  #folder = mkdtempSync(join(tmpdir(), 'dualpath-guest-'));
  #port = join(this.#folder, 'port');
  #console = join(this.#folder, 'console');
  #child;
  #ended;

  /**
   * @param options.script shell commands for the guest's root user, `$PORT` is its port; the disks are /dev/vda, ...
   * @param options.limitMs after which the guest is killed
   */
  constructor({ images, script, disks = [], accel = 'tcg', memoryMiB = 2048, cpus = 2, limitMs, args = [] }) {
    const file = join(this.#folder, 'script');
    writeFileSync(
      file,
      `${shellEnv}PORT=/dev/$(cd /sys/class/virtio-ports && grep -l dualpath */name | cut -d/ -f1)\n${script}\n`,
    );
    const log = openSync(this.#console, 'w');
    this.#child = spawn(
      'qemu-system-x86_64',
      [...qemuArguments({ images, accel, memoryMiB, cpus, disks, port: this.#port, script: file }), ...args],
      { stdio: ['ignore', log, log] },
    );
    closeSync(log);
    running.add(this.#child);
    const timer = setTimeout(() => this.#child.kill('SIGKILL'), limitMs);
    this.#ended = once(this.#child, 'exit').finally(() => {
      clearTimeout(timer);
      running.delete(this.#child);
    });
    this.#ended.catch(() => undefined);
  }

  /** Waits until `holds()`. @throws with the console's end when the guest ends before */
  async until(holds, what) {
    let over = false;
    void this.#ended.then(
      () => (over = true),
      () => (over = true),
    );
    while (!holds()) {
      if (over) {
        throw new Error(`the guest ended before ${what}; its console ends:\n${this.console.slice(-2000)}`);
      }
      await sleep(pollMs);
    }
  }

  /** Waits for the guest to power off. @returns what it wrote to its port @throws unless its script exits with 0 */
  async done() {
    await this.#ended;
    const status = /guest: exit status (\d+)/.exec(this.console)?.[1];
    if (status !== '0') {
      throw new Error(
        `the guest's script ended with ${status ?? 'its guest'}:\n${this.console.slice(-2000)}`,
      );
    }
    return this.portLines;
  }

  /** As a failing machine does: at once. What the guest had given to its disks is in the host's memory. */
  async kill() {
    this.#child.kill('SIGKILL');
    await this.#ended;
  }

  /** Kills it if need be and removes what it wrote. */
  async remove() {
    await this.kill();
    rmSync(this.#folder, { recursive: true, force: true });
  }
}

/** 'kvm' where a guest boots with it in a few seconds; /dev/kvm being there proves nothing. */
export async function chooseAcceleration(images) {
  if (!existsSync('/dev/kvm')) return 'tcg';
  const guest = new Guest({ images, script: 'true', accel: 'kvm', memoryMiB: 512, limitMs: kvmProbeMs });
  try {
    await guest.done();
    return 'kvm';
  } catch {
    return 'tcg';
  } finally {
    await guest.remove();
  }
}

/** A file that holds an empty ext4 file system. */
export function makeDisk(path, sizeMiB) {
  writeFileSync(path, '');
  const { status, stderr } = spawnSync('mkfs.ext4', ['-q', '-F', path, `${sizeMiB}M`], {
    encoding: 'utf8',
    env: { ...process.env, PATH: `${process.env.PATH}:/usr/sbin:/sbin` },
  });
  if (status !== 0) throw new Error(`mkfs.ext4: ${stderr}`);
  return path;
}
