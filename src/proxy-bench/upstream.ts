import { createServer, type Server, type Socket } from 'node:net';
import type { AddressInfo } from 'node:net';

/**
 * The least that can stand behind a proxy under measurement, so that it is not what is measured: it reads whole requests
 * and answers with constant bytes. A POST whose body asks for a stream gets an event every `eventMs`, `events` times.
 */
export class BenchUpstream {
  readonly #server: Server;
  readonly #streams = new Map<Socket, number>();
  readonly #events: number;
  readonly #timer: NodeJS.Timeout;

  constructor(events: number, eventMs: number) {
    this.#events = events;
    this.#server = createServer({ noDelay: true }, (socket) => this.#serve(socket));
    // Streams take turns, spread over the interval in fifty slots.
    const slots = 50;
    let slot = 0;
    this.#timer = setInterval(() => {
      let index = 0;
      for (const [socket, sent] of this.#streams) if (index++ % slots === slot) this.#event(socket, sent);
      slot = (slot + 1) % slots;
    }, eventMs / slots);
  }

  listen(): Promise<number> {
    return new Promise((resolve) => {
      this.#server.listen(0, '127.0.0.1', () => resolve((this.#server.address() as AddressInfo).port));
    });
  }

  close(): void {
    clearInterval(this.#timer);
    this.#server.close();
  }

  #event(socket: Socket, sent: number): void {
    if (sent >= this.#events) {
      this.#streams.delete(socket);
      socket.write('e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n');
      return;
    }
    this.#streams.set(socket, sent + 1);
    socket.write(chunk(eventText(sent, performance.timeOrigin + performance.now())));
  }

  #serve(socket: Socket): void {
    let head = '';
    let leftBytes = 0;
    let wantsStream = false;
    socket.on('error', () => socket.destroy());
    socket.on('close', () => this.#streams.delete(socket));
    socket.on('data', (data: Buffer) => {
      for (let at = 0; at < data.length;) {
        if (leftBytes > 0) {
          const taken = Math.min(leftBytes, data.length - at);
          leftBytes -= taken;
          at += taken;
          if (leftBytes === 0) this.#answer(socket, 'POST', wantsStream);
          continue;
        }
        const end = data.indexOf('\r\n\r\n', at, 'latin1');
        head += data.toString('latin1', at, end < 0 ? data.length : end);
        if (end < 0) return;
        at = end + 4;
        leftBytes = Number(/\r\ncontent-length: *(\d+)/i.exec(head)?.[1] ?? 0);
        wantsStream = /\r\nx-bench-stream: 1/i.test(head);
        if (leftBytes === 0) this.#answer(socket, head, false);
        head = '';
      }
    });
  }

  #answer(socket: Socket, head: string, wantsStream: boolean): void {
    if (wantsStream) {
      socket.write(streamHead);
      this.#event(socket, 0);
      this.#streams.set(socket, 1);
    } else if (head.startsWith('POST')) socket.write(answer);
    else socket.write(head.includes('/v1/models') ? models : health);
  }
}

const fixed = (type: string, body: string): string =>
  `HTTP/1.1 200 OK\r\ncontent-type: ${type}\r\ncontent-length: ${Buffer.byteLength(body)}\r\n\r\n${body}`;

const answer = fixed(
  'application/json',
  JSON.stringify({
    id: 'bench',
    object: 'text_completion',
    model: 'bench',
    choices: [{ index: 0, text: 'x'.repeat(200), finish_reason: 'length' }],
    usage: { prompt_tokens: 500, completion_tokens: 50, prompt_tokens_details: { cached_tokens: 0 } },
  }),
);
const models = fixed('application/json', '{"object":"list","data":[{"id":"bench","object":"model"}]}');
const health = fixed('text/plain', 'ok');
const streamHead = 'HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n';

/** An event as servers send them, with its number and the time at which it was sent. */
function eventText(index: number, sentMs: number): string {
  const text = JSON.stringify({
    id: 'bench',
    index,
    sent_ms: sentMs,
    choices: [{ index: 0, text: 'token ' }],
  });
  return `data: ${text}\n\n`;
}

function chunk(text: string): string {
  return `${Buffer.byteLength(text).toString(16)}\r\n${text}\r\n`;
}
