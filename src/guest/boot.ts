/** One boot of a guest: QEMU, its monitor and its serial ports. */
import { spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { closeSync, openSync, rmSync } from 'node:fs';
import { createServer, type Server, type Socket } from 'node:net';
import { join } from 'node:path';
import { DualPathError } from '../errors/index.js';
import { qemuArguments, type Machine } from './machine.js';
import { Monitor } from './monitor.js';
import { commandEnvironment } from './packages.js';

/** Takes what the guest writes to a port; `reply` is what it reads there. */
export type TakeChunk = (chunk: Buffer, reply: (text: string) => void) => void;

interface Port {
  readonly path: string;
  readonly server: Server;
  socket: Socket | undefined;
  readonly ended: Promise<unknown>;
}

/** One serial port: listens where QEMU connects. `ended` when all that was written has been taken. */
async function openPort(path: string, take: TakeChunk): Promise<Port> {
  rmSync(path, { force: true });
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

export class Boot {
  /** When QEMU has ended and all that it wrote has been taken; whether its time was over. Never rejects. */
  readonly ended: Promise<{ readonly timedOut: boolean }>;
  readonly #child: ChildProcess;
  readonly #monitor: Monitor;

  private constructor(child: ChildProcess, monitor: Monitor, ports: readonly Port[], limitMs: number) {
    this.#child = child;
    this.#monitor = monitor;
    this.ended = this.#endOf(ports, limitMs);
  }

  /** Files of its own lie in `folder`. @throws RDMA_UNAVAILABLE when QEMU does not start */
  static async start(
    folder: string,
    machine: Machine,
    script: string,
    takers: Readonly<Record<string, TakeChunk>>,
    limitMs: number,
  ): Promise<Boot> {
    const ports = new Map<string, Port>();
    for (const [name, take] of Object.entries(takers)) {
      ports.set(name, await openPort(join(folder, `port${ports.size}`), take));
    }
    const socket = join(folder, 'monitor');
    rmSync(socket, { force: true });
    const monitor = await Monitor.listen(socket);
    const paths = new Map([...ports].map(([name, { path }]) => [name, path]));
    const child = startQemu(qemuArguments(machine, script, paths, socket), folder);
    const boot = new Boot(child, monitor, [...ports.values()], limitMs);
    if (child.pid !== undefined) return boot;
    await boot.close();
    throw new DualPathError('RDMA_UNAVAILABLE', 'setpriv (util-linux) did not start; install it');
  }

  get monitor(): Monitor {
    return this.#monitor;
  }

  async close(): Promise<void> {
    this.#child.kill('SIGKILL');
    await this.ended;
    this.#monitor.close();
  }

  async #endOf(ports: readonly Port[], limitMs: number): Promise<{ timedOut: boolean }> {
    let timedOut = false;
    const timer = setTimeout(() => {
      timedOut = true;
      this.#child.kill('SIGKILL');
    }, limitMs);
    await once(this.#child, 'exit').catch(() => undefined);
    clearTimeout(timer);
    // A guest that did not start has not connected.
    for (const { server, socket } of ports) if (socket === undefined) server.close();
    await Promise.all(ports.map(({ ended }) => ended));
    return { timedOut };
  }
}

/** QEMU dies with this process, however that ends (PR_SET_PDEATHSIG, prctl(2)). */
function startQemu(args: readonly string[], folder: string): ChildProcess {
  const log = openSync(join(folder, 'console'), 'a');
  const command = ['--pdeathsig', 'KILL', '--', 'qemu-system-x86_64', ...args];
  const child = spawn('setpriv', command, { stdio: ['ignore', log, log], env: commandEnvironment });
  closeSync(log);
  return child;
}
