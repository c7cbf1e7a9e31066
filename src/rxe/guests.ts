/** Hosts as guests under QEMU: one with a network of its own, or two on one wire. */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { DualPathError } from '../errors/index.js';
import {
  chooseAcceleration,
  Guest,
  guestImages,
  requirePackages,
  type Acceleration,
  type GuestImages,
  type GuestLink,
  type TakeChunk,
} from '../guest/index.js';
import { wireMtuBytes, type RxeHosts, type RxeOptions } from './options.js';
import { guestPorts, guestScript, linkPort } from './script.js';

const modules = [
  ...['virtio_net', 'dummy', 'rdma_rxe', 'ib_uverbs', 'rdma_ucm'],
  ...['sch_prio', 'sch_ets', 'sch_tbf', 'sch_netem', 'cls_u32', 'cls_flower'],
];
/** rdma_rxe asks for crc32 by a name that modprobe does not know of. */
const optionalModules = ['crc32_generic'];
const defaultMemoryMiB = 2048;
/** After one host has failed, for the others to notice. */
const graceMs = 10_000;
const consoleTailBytes = 2000;

export async function startGuests(options: RxeOptions): Promise<RxeHosts> {
  requirePackages();
  const { cache, onProgress, signal } = options;
  const images = await guestImages({
    modules,
    optional: optionalModules,
    ...(cache === undefined ? {} : { cache }),
    ...(onProgress === undefined ? {} : { onProgress }),
    ...(signal === undefined ? {} : { signal }),
  });
  const acceleration = await chooseAcceleration(images);
  signal?.throwIfAborted();
  const run = new GuestRun(options, images, acceleration);
  try {
    await run.start();
  } catch (error) {
    await run.close();
    throw error;
  }
  const how = acceleration === 'kvm' ? 'KVM' : 'emulated without hardware virtualisation, TCG';
  return {
    carriedBy: `soft-RoCE (rdma_rxe) in ${options.commands.length === 1 ? 'a guest' : 'two guests'} under QEMU, ${how}`,
    statuses: run.statuses(),
    setLink: (host, up) => run.setLink(host, up),
    close: () => run.close(),
  };
}

class GuestRun {
  readonly #options: RxeOptions;
  readonly #images: GuestImages;
  readonly #acceleration: Acceleration;
  readonly #wire = mkdtempSync('/tmp/dualpath-wire-');
  readonly #guests: Guest[] = [];
  readonly #begin: ((text: string) => void)[] = [];
  #closed = false;

  constructor(options: RxeOptions, images: GuestImages, acceleration: Acceleration) {
    this.#options = options;
    this.#images = images;
    this.#acceleration = acceleration;
  }

  async start(): Promise<void> {
    for (let host = 1; host <= this.#options.commands.length; host++) {
      this.#guests.push(await this.#startHost(host));
    }
  }

  async statuses(): Promise<readonly number[]> {
    const { signal, timeLimitMs } = this.#options;
    let graceTimer: NodeJS.Timeout | undefined;
    const stop = (): void => void this.#kill();
    signal?.addEventListener('abort', stop);
    try {
      const ends = await Promise.all(
        this.#guests.map(async (guest) => {
          const end = await guest.ended;
          if (end.status !== 0) graceTimer ??= setTimeout(stop, graceMs);
          return end;
        }),
      );
      signal?.throwIfAborted();
      if (this.#closed) throw new DualPathError('CANCELLED', 'the hosts were closed');
      if (ends.some(({ timedOut }) => timedOut)) {
        throw new DualPathError('DEADLINE', `the time limit of ${timeLimitMs / 1000} s is over`);
      }
      // Of one that failed, the other may have been killed before its end.
      const failed = ends.findIndex(({ status }) => status !== null && status !== 0);
      return ends.map(({ status }, i) => status ?? this.#broken(i, failed));
    } finally {
      clearTimeout(graceTimer);
      signal?.removeEventListener('abort', stop);
      this.#keepConsoles();
    }
  }

  async setLink(host: number, up: boolean): Promise<void> {
    const guest = this.#guests[host - 1];
    if (guest === undefined || this.#guests.length === 1) {
      throw new DualPathError(
        'INVALID_ARGUMENT',
        `host ${host} has no wire; with two hosts, 1 and 2 have one`,
      );
    }
    await guest.setLink(up);
  }

  async close(): Promise<void> {
    this.#closed = true;
    await Promise.all(this.#guests.map((guest) => guest.close()));
    rmSync(this.#wire, { recursive: true, force: true });
  }

  #broken(index: number, failed: number): number {
    if (failed >= 0) return 137; // killed, as a shell says it
    throw new DualPathError(
      'RDMA_FAILED',
      `guest ${index + 1} ended before its command did; its console ends:\n` +
        this.#guests[index]!.console.slice(-consoleTailBytes),
    );
  }

  async #kill(): Promise<void> {
    await Promise.all(this.#guests.map((guest) => guest.kill()));
  }

  #keepConsoles(): void {
    if (this.#closed) return;
    this.#guests.forEach((guest, i) => {
      writeFileSync(join(this.#options.out, `console-${i + 1}.log`), guest.console);
    });
  }

  #linkOf(host: number): GuestLink {
    const end = (number: number): string => join(this.#wire, String(number));
    const { capture } = this.#options;
    return {
      local: end(host),
      remote: end(3 - host),
      mtuBytes: wireMtuBytes,
      mac: `52:54:00:77:00:0${host}`,
      ...(capture === undefined || host !== 1 ? {} : { capture: resolve(capture) }),
    };
  }

  #startHost(host: number): Promise<Guest> {
    const { commands, out, shares = [], cpus, memoryMiB, timeLimitMs, onProgress } = this.#options;
    const mounted = [{ path: out }, ...shares].map((share, i) => ({ ...share, tag: `share${i}` }));
    return Guest.start({
      images: this.#images,
      acceleration: this.#acceleration,
      memoryMiB: memoryMiB ?? defaultMemoryMiB,
      cpus: cpus ?? (commands.length === 1 ? 2 : 1),
      disks: [],
      shares: mounted,
      ...(commands.length === 1 ? {} : { link: this.#linkOf(host) }),
      script: guestScript(this.#options, host, mounted),
      limitMs: timeLimitMs,
      ...(onProgress === undefined ? {} : { onProgress }),
      ports: this.#portsOf(host),
    });
  }

  #portsOf(host: number): Record<string, TakeChunk> {
    const { onStdout, onStderr, commands } = this.#options;
    return {
      [guestPorts.stdout]: (chunk) => onStdout(host, chunk),
      [guestPorts.stderr]: (chunk) => onStderr(host, chunk),
      [guestPorts.ready]: (_chunk, reply) => {
        this.#begin.push(reply);
        if (this.#begin.length === commands.length) for (const begin of this.#begin) begin('begin\n');
      },
      ...(commands.length === 1 ? {} : { [linkPort]: (chunk) => this.#takeLinkWords(host, chunk) }),
    };
  }

  #takeLinkWords(host: number, chunk: Buffer): void {
    for (const word of chunk.toString().split(/\s+/)) {
      if (word !== 'up' && word !== 'down') continue;
      this.setLink(host, word === 'up').catch(() => undefined); // the guest is gone
    }
  }
}
