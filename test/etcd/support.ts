/** Debian's etcd-server, one member, on ports of this host. */
import { spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { createServer, type AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

async function freePort(): Promise<number> {
  const server = createServer().listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  server.close();
  await once(server, 'close');
  return port;
}

export class Etcd {
  readonly endpoint: string;
  readonly #folder = mkdtempSync(join(tmpdir(), 'dualpath-etcd-'));
  readonly #args: string[];
  #process: ChildProcess | undefined;

  private constructor(port: number, peerPort: number) {
    this.endpoint = `127.0.0.1:${port}`;
    const [client, peer] = [`http://${this.endpoint}`, `http://127.0.0.1:${peerPort}`];
    this.#args = [
      ...['--data-dir', join(this.#folder, 'data'), '--log-level', 'error', '--unsafe-no-fsync'],
      ...['--listen-client-urls', client, '--advertise-client-urls', client],
      ...['--listen-peer-urls', peer, '--initial-advertise-peer-urls', peer],
      ...['--initial-cluster', `default=${peer}`],
    ];
  }

  static async start(): Promise<Etcd> {
    const etcd = new Etcd(await freePort(), await freePort());
    etcd.#launch();
    return etcd;
  }

  #launch(): void {
    this.#process = spawn('etcd', this.#args, { stdio: 'ignore' });
    this.#process.once('error', (error) => {
      throw new Error(`etcd cannot be started; npm run setup -- --test installs it: ${error.message}`);
    });
  }

  async kill(): Promise<void> {
    const { exitCode, signalCode } = this.#process!;
    if (exitCode !== null || signalCode !== null) return;
    const ended = once(this.#process!, 'exit');
    this.#process!.kill('SIGKILL');
    await ended;
  }

  async close(): Promise<void> {
    await this.kill();
    rmSync(this.#folder, { recursive: true, force: true });
  }
}
