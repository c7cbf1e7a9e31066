/** Starts a guest, hears what it says, and leaves nothing running. */
import { spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { closeSync, mkdtempSync, openSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { createServer, type Server, type Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { DualPathError } from '../errors/index.js';
import { linkName, qemuArguments, type Machine } from './machine.js';
import { Monitor } from './monitor.js';
import { commandEnvironment } from './packages.js';

/** Takes what the guest writes to a port; `reply` is what it reads there. */
export type TakeChunk = (chunk: Buffer, reply: (text: string) => void) => void;

export interface GuestOptions extends Machine {
  /** Shell commands for the guest's root user; its exit status is the guest's. */
  readonly script: string;
  /** Serial ports by name: /dev/virtio-ports/NAME in the guest. */
  readonly ports?: Readonly<Record<string, TakeChunk>>;
  /** After which the guest is killed. */
  readonly limitMs: number;
}

export interface GuestEnd {
  /** Of the script; null when the guest ended before it did. */
  readonly status: number | null;
  readonly timedOut: boolean;
}

/** The longest path of a unix socket is 107 bytes (unix(7)). */
const maxFolderBytes = 70;
const statusPort = 'dualpath.status';

function makeFolder(): string {
  const base = Buffer.byteLength(tmpdir()) > maxFolderBytes - 24 ? '/tmp' : tmpdir();
  return mkdtempSync(join(base, 'dualpath-guest-'));
}

/** One serial port: listens where QEMU connects. `ended` when all that was written has been taken. */
async function openPort(path: string, take: TakeChunk): Promise<Port> {
  const server = createServer();
  const port: Port = { path, server, socket: undefined, ended: once(server, 'close') };
  server.maxConnections = 1;
  server.on('connection', (socket) => {
    port.socket = socket;
    socket.on('data', (chunk) => take(chunk, (text) => void socket.write(text)));
    socket.on('error', () => undefined);
    socket.on('close', () => server.close());
  });
  server.listen(path);
  await once(server, 'listening');
  return port;
}

interface Port {
  readonly path: string;
  readonly server: Server;
  socket: Socket | undefined;
  readonly ended: Promise<unknown>;
}

export class Guest {
  /** Never rejects. */
  readonly ended: Promise<GuestEnd>;
  readonly #folder: string;
  readonly #child: ChildProcess;
  readonly #monitor: Monitor;

  private constructor(folder: string, child: ChildProcess, monitor: Monitor, ended: Promise<GuestEnd>) {
    this.#folder = folder;
    this.#child = child;
    this.#monitor = monitor;
    this.ended = ended;
  }

  /** Close it, whatever happens. @throws RDMA_UNAVAILABLE when QEMU does not start */
  static async start(options: GuestOptions): Promise<Guest> {
    const folder = makeFolder();
    const script = join(folder, 'script');
    writeFileSync(script, options.script);
    let status = '';
    const takers = { ...options.ports, [statusPort]: (chunk: Buffer) => void (status += chunk.toString()) };
    const ports = new Map<string, Port>();
    for (const [name, take] of Object.entries(takers)) {
      ports.set(name, await openPort(join(folder, `port${ports.size}`), take));
    }
    const monitor = await Monitor.listen(join(folder, 'monitor'));
    const paths = new Map([...ports].map(([name, { path }]) => [name, path]));
    const child = startQemu(qemuArguments(options, script, paths, join(folder, 'monitor')), folder);
    const ended = endOf(child, [...ports.values()], options.limitMs).then((timedOut) => ({
      status: /^\d+$/m.test(status) ? Number(status) : null,
      timedOut,
    }));
    const guest = new Guest(folder, child, monitor, ended);
    if (child.pid === undefined) {
      await guest.close();
      throw new DualPathError('RDMA_UNAVAILABLE', 'setpriv (util-linux) did not start; install it');
    }
    return guest;
  }

  /** What kernel and init have said. */
  get console(): string {
    return readFileSync(join(this.#folder, 'console'), 'utf8');
  }

  /** Takes the link down, as a pulled cable does, or up again. */
  async setLink(up: boolean): Promise<void> {
    await this.#monitor.command('set_link', { name: linkName, up });
  }

  /** As a failing machine does: at once. What the guest had given to disks and ports has arrived. */
  async kill(): Promise<void> {
    this.#child.kill('SIGKILL');
    await this.ended;
  }

  /** Kills it if need be and removes its files. */
  async close(): Promise<void> {
    await this.kill();
    this.#monitor.close();
    rmSync(this.#folder, { recursive: true, force: true });
  }
}

/** QEMU dies with this process, however that ends (PR_SET_PDEATHSIG, prctl(2)). */
function startQemu(args: readonly string[], folder: string): ChildProcess {
  const log = openSync(join(folder, 'console'), 'w');
  const command = ['--pdeathsig', 'KILL', '--', 'qemu-system-x86_64', ...args];
  const child = spawn('setpriv', command, { stdio: ['ignore', log, log], env: commandEnvironment });
  closeSync(log);
  return child;
}

/** Waits for the guest and for what it wrote; whether its time was over. */
async function endOf(child: ChildProcess, ports: readonly Port[], limitMs: number): Promise<boolean> {
  let timedOut = false;
  const timer = setTimeout(() => {
    timedOut = true;
    child.kill('SIGKILL');
  }, limitMs);
  await once(child, 'exit').catch(() => undefined);
  clearTimeout(timer);
  // A guest that did not start has not connected.
  for (const { server, socket } of ports) if (socket === undefined) server.close();
  await Promise.all(ports.map(({ ended }) => ended));
  return timedOut;
}
