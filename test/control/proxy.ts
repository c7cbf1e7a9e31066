/** A TCP relay that can cut its connections or swallow what is on them: the faults of a link. */
import { connect, createServer, type Server, type Socket } from 'node:net';
import type { Address } from '../../src/control/index.js';

export class Relay {
  readonly #server: Server;
  readonly #sockets = new Set<Socket>();
  readonly seen: Buffer[] = [];
  /** Nothing passes, nobody is told. */
  swallow = false;
  /** Whoever dialled hears the first answer only. */
  deafen = false;
  connections = 0;

  private constructor(to: Address) {
    this.#server = createServer((near) => {
      this.connections++;
      const far = connect({ ...to });
      // TCP loses nothing in the midst: what follows a gap never arrives either.
      let silent = false;
      let [answers, deaf] = [0, false];
      for (const [one, other] of [
        [near, far],
        [far, near],
      ] as const) {
        this.#sockets.add(one);
        one.on('data', (bytes: Buffer) => {
          this.seen.push(bytes);
          silent ||= this.swallow;
          if (one === far) deaf ||= answers++ > 0 && this.deafen;
          if (!silent && !(deaf && one === far)) other.write(bytes);
        });
        one.on('error', () => undefined);
        one.on('close', () => {
          this.#sockets.delete(one);
          if (!silent) other.destroy();
        });
      }
    });
  }

  static async to(address: Address): Promise<Relay> {
    const relay = new Relay(address);
    await new Promise<void>((resolve) => relay.#server.listen({ host: '127.0.0.1', port: 0 }, resolve));
    return relay;
  }

  get address(): Address {
    return { host: '127.0.0.1', port: (this.#server.address() as { port: number }).port };
  }

  cut(): void {
    for (const socket of this.#sockets) socket.resetAndDestroy();
  }

  async close(): Promise<void> {
    this.cut();
    await new Promise((resolve) => this.#server.close(resolve));
  }
}
