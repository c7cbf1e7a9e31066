/** Starts a guest, hears what it says, and leaves nothing running. */
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Boot, type TakeChunk } from './boot.js';
import { linkName, type Machine } from './machine.js';

export type { TakeChunk } from './boot.js';

export interface GuestOptions extends Machine {
  /** Shell commands for the guest's root user; its exit status is the guest's. */
  readonly script: string;
  /** Serial ports by name: /dev/virtio-ports/NAME in the guest. */
  readonly ports?: Readonly<Record<string, TakeChunk>>;
  /** After which the guest is killed. */
  readonly limitMs: number;
  /** Hears of a boot that failed and is made once more. */
  readonly onProgress?: (step: string) => void;
}

export interface GuestEnd {
  /** Of the script; null when the guest ended before it did. */
  readonly status: number | null;
  readonly timedOut: boolean;
}

/** The longest path of a unix socket is 107 bytes (unix(7)). */
const maxFolderBytes = 70;
const statusPort = 'dualpath.status';
/** Said by init.sh before it runs the script. */
const upLine = 'guest: up';
const panicLine = /Kernel panic - not syncing: (.*)/;

function makeFolder(): string {
  const base = Buffer.byteLength(tmpdir()) > maxFolderBytes - 24 ? '/tmp' : tmpdir();
  return mkdtempSync(join(base, 'dualpath-guest-'));
}

export class Guest {
  /** Never rejects. */
  readonly ended: Promise<GuestEnd>;
  readonly #options: GuestOptions;
  readonly #folder: string;
  readonly #deadline: number;
  #boot: Boot;
  #status: string;
  #killed = false;

  private constructor(options: GuestOptions, folder: string, boot: Boot) {
    this.#options = options;
    this.#folder = folder;
    this.#deadline = Date.now() + options.limitMs;
    this.#boot = boot;
    this.#status = '';
    this.ended = this.#end();
  }

  /** Close it, whatever happens. @throws RDMA_UNAVAILABLE when QEMU does not start */
  static async start(options: GuestOptions): Promise<Guest> {
    const folder = makeFolder();
    writeFileSync(join(folder, 'script'), options.script);
    let guest: Guest | undefined;
    const takeStatus: TakeChunk = (chunk) => void (guest!.#status += chunk.toString());
    try {
      guest = new Guest(options, folder, await startBoot(options, folder, takeStatus, options.limitMs));
      return guest;
    } catch (error) {
      rmSync(folder, { recursive: true, force: true });
      throw error;
    }
  }

  /** What kernel and init have said. */
  get console(): string {
    return readFileSync(join(this.#folder, 'console'), 'utf8');
  }

  /** Takes the link down, as a pulled cable does, or up again. */
  async setLink(up: boolean): Promise<void> {
    await this.#boot.monitor.command('set_link', { name: linkName, up });
  }

  /** As a failing machine does: at once. What the guest had given to disks and ports has arrived. */
  async kill(): Promise<void> {
    this.#killed = true;
    await this.#boot.close();
    await this.ended;
  }

  /** Kills it if need be and removes its files. */
  async close(): Promise<void> {
    await this.kill();
    rmSync(this.#folder, { recursive: true, force: true });
  }

  async #end(): Promise<GuestEnd> {
    let { timedOut } = await this.#boot.ended;
    const panic = this.#earlyPanic();
    if (panic !== undefined && !timedOut && !this.#killed) {
      this.#options.onProgress?.(`a guest's kernel did not boot (panic: ${panic}); once more`);
      ({ timedOut } = await this.#bootAgain());
    }
    return { status: /^\d+$/m.test(this.#status) ? Number(this.#status) : null, timedOut };
  }

  /** Why the kernel stopped before any command of the guest's ran: an emulated one on a busy machine sometimes does. */
  #earlyPanic(): string | undefined {
    const said = this.console;
    return said.includes(upLine) ? undefined : panicLine.exec(said)?.[1]?.trim();
  }

  async #bootAgain(): Promise<{ timedOut: boolean }> {
    await this.#boot.close();
    const takeStatus: TakeChunk = (chunk) => void (this.#status += chunk.toString());
    const left = Math.max(1, this.#deadline - Date.now());
    try {
      this.#boot = await startBoot(this.#options, this.#folder, takeStatus, left);
    } catch {
      return { timedOut: false };
    }
    if (this.#killed) await this.#boot.close();
    return await this.#boot.ended;
  }
}

function startBoot(
  options: GuestOptions,
  folder: string,
  takeStatus: TakeChunk,
  limitMs: number,
): Promise<Boot> {
  const takers = { ...options.ports, [statusPort]: takeStatus };
  return Boot.start(folder, options, join(folder, 'script'), takers, limitMs);
}
