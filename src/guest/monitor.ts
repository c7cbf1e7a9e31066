/** QEMU's monitor (QMP): one JSON document a line, an answer to each command in order. */
import { once } from 'node:events';
import { createServer, type Server, type Socket } from 'node:net';
import { DualPathError } from '../errors/index.js';

interface Answer {
  readonly return?: unknown;
  readonly error?: { readonly desc?: string };
}

export class Monitor {
  readonly #server: Server;
  readonly #socket: Promise<Socket>;
  readonly #waiting: { resolve: (value: unknown) => void; reject: (error: Error) => void }[] = [];
  #closed = false;

  private constructor(server: Server) {
    this.#server = server;
    this.#socket = once(server, 'connection').then(([socket]) => this.#greet(socket as Socket));
    this.#socket.catch(() => undefined);
  }

  /** Listens at `path`, where QEMU connects. */
  static async listen(path: string): Promise<Monitor> {
    const server = createServer();
    server.listen(path);
    await once(server, 'listening');
    return new Monitor(server);
  }

  /** @throws INTERNAL with what QEMU says, CLOSED when the guest is gone */
  async command(name: string, args: object = {}): Promise<unknown> {
    const socket = await this.#socket;
    return await this.#send(socket, name, args);
  }

  close(): void {
    this.#end();
    this.#server.close();
    this.#socket.then(
      (socket) => socket.destroy(),
      () => undefined,
    );
  }

  async #greet(socket: Socket): Promise<Socket> {
    socket.on('error', () => undefined);
    socket.on('close', () => this.#end());
    let rest = '';
    socket.setEncoding('utf8').on('data', (chunk: string) => {
      const lines = (rest + chunk).split('\n');
      rest = lines.pop()!;
      for (const line of lines) this.#answer(JSON.parse(line) as Answer);
    });
    await this.#send(socket, 'qmp_capabilities', {});
    return socket;
  }

  #send(socket: Socket, name: string, args: object): Promise<unknown> {
    return new Promise((resolve, reject) => {
      if (this.#closed) {
        reject(new DualPathError('CLOSED', 'the guest is gone'));
        return;
      }
      this.#waiting.push({ resolve, reject });
      socket.write(`${JSON.stringify({ execute: name, arguments: args })}\n`);
    });
  }

  #answer(answer: Answer): void {
    if (!('return' in answer) && !('error' in answer)) return; // the greeting, or an event
    const waiting = this.#waiting.shift();
    if (answer.error === undefined) waiting?.resolve(answer.return);
    else waiting?.reject(new DualPathError('INTERNAL', `QEMU's monitor: ${answer.error.desc}`));
  }

  #end(): void {
    this.#closed = true;
    for (const { reject } of this.#waiting.splice(0))
      reject(new DualPathError('CLOSED', 'the guest is gone'));
  }
}
