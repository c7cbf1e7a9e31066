import { connect, type Socket } from 'node:net';
import { quantile } from '../telemetry/index.js';

/** A request as bytes, and what an answer to it must end with. */
export interface BenchRequest {
  readonly bytes: Buffer;
}

export interface RateResult {
  readonly requests: number;
  readonly failed: number;
  readonly perS: number;
  readonly p50Ms: number;
  readonly p90Ms: number;
  readonly p99Ms: number;
}

export function benchRequest(path: string, bodyBytes: number, seed: number, isStream = false): Buffer {
  const frame = JSON.stringify({ model: 'bench', max_tokens: 50, stream: isStream, prompt: '' });
  const prompt = `${seed} `.padEnd(16, '#') + 'abcdefghijklmno '.repeat(Math.ceil(bodyBytes / 16));
  const body = frame.replace(
    '"prompt":""',
    `"prompt":"${prompt.slice(0, Math.max(1, bodyBytes - frame.length))}"`,
  );
  return Buffer.from(
    `POST ${path} HTTP/1.1\r\nhost: bench\r\ncontent-type: application/json\r\n` +
      `${isStream ? 'x-bench-stream: 1\r\n' : ''}content-length: ${Buffer.byteLength(body)}\r\n\r\n${body}`,
  );
}

/** One kept-alive connection that sends whole requests and waits for answers with a content-length. */
class Connection {
  readonly #socket: Socket;
  #onAnswer: ((ok: boolean) => void) | null = null;
  #head = '';
  #leftBytes = -1;
  #ok = false;

  constructor(port: number) {
    this.#socket = connect({ port, host: '127.0.0.1', noDelay: true });
    this.#socket.on('data', (data) => this.#take(data));
    this.#socket.on('error', () => this.#end(false));
    this.#socket.on('close', () => this.#end(false));
  }

  get isDead(): boolean {
    return this.#socket.destroyed;
  }

  send(bytes: Buffer, onAnswer: (ok: boolean) => void): void {
    this.#onAnswer = onAnswer;
    this.#socket.write(bytes);
  }

  close(): void {
    this.#onAnswer = null;
    this.#socket.destroy();
  }

  #take(data: Buffer): void {
    let at = 0;
    if (this.#leftBytes < 0) {
      this.#head += data.toString('latin1');
      const end = this.#head.indexOf('\r\n\r\n');
      if (end < 0) return;
      this.#ok = this.#head.startsWith('HTTP/1.1 200');
      this.#leftBytes = Number(/\r\ncontent-length: *(\d+)/i.exec(this.#head)?.[1] ?? 0);
      at = data.length - (this.#head.length - end - 4);
      this.#head = '';
    }
    this.#leftBytes -= data.length - at;
    if (this.#leftBytes > 0) return;
    this.#leftBytes = -1;
    this.#end(this.#ok);
  }

  #end(ok: boolean): void {
    const onAnswer = this.#onAnswer;
    this.#onAnswer = null;
    onAnswer?.(ok);
  }
}

/** As many requests as it takes: each connection sends its next when it has its answer. */
export async function closedLoop(
  port: number,
  requests: readonly Buffer[],
  connections: number,
  warmUpMs: number,
  measureMs: number,
): Promise<RateResult> {
  const latenciesMs: number[] = [];
  let failed = 0;
  const startMs = performance.now() + warmUpMs;
  const endMs = startMs + measureMs;
  let next = 0;
  const run = (): Promise<void> =>
    new Promise((resolve) => {
      let connection = new Connection(port);
      const send = (): void => {
        const sentMs = performance.now();
        if (sentMs >= endMs) {
          connection.close();
          resolve();
          return;
        }
        if (connection.isDead) connection = new Connection(port);
        connection.send(requests[next++ % requests.length]!, (ok) => {
          const nowMs = performance.now();
          if (nowMs >= startMs && nowMs < endMs) {
            if (ok) latenciesMs.push(nowMs - sentMs);
            else failed++;
          }
          if (ok) send();
          else setTimeout(send, 10);
        });
      };
      send();
    });
  await Promise.all(Array.from({ length: connections }, run));
  return result(latenciesMs, failed, measureMs);
}

/** Answers that are later than this after the end do not come any more. */
const overdueMs = 10_000;

/** So many requests a second, whether they are answered or not; latency counts from when each was due. */
export async function openLoop(
  port: number,
  requests: readonly Buffer[],
  perS: number,
  warmUpMs: number,
  measureMs: number,
): Promise<RateResult> {
  const connections: Connection[] = [];
  const idle: Connection[] = [];
  const open = (): Connection => {
    const connection = new Connection(port);
    connections.push(connection);
    return connection;
  };
  const latenciesMs: number[] = [];
  let [failed, sent, underWay] = [0, 0, 0];
  const startMs = performance.now();
  const total = Math.ceil((perS * (warmUpMs + measureMs)) / 1000);
  await new Promise<void>((resolve) => {
    const timer = setInterval(() => {
      const dueNow = Math.min(total, ((performance.now() - startMs) * perS) / 1000);
      while (sent < dueNow) {
        const dueMs = startMs + (1000 * sent) / perS;
        const connection = idle.pop() ?? open();
        underWay++;
        connection.send(requests[sent % requests.length]!, (ok) => {
          underWay--;
          if (dueMs - startMs >= warmUpMs) {
            if (ok) latenciesMs.push(performance.now() - dueMs);
            else failed++;
          }
          if (ok) idle.push(connection);
        });
        sent++;
      }
      const isOverdue = performance.now() - startMs > warmUpMs + measureMs + overdueMs;
      if ((sent < total || underWay > 0) && !isOverdue) return;
      failed += underWay;
      clearInterval(timer);
      resolve();
    }, 1);
  });
  for (const connection of connections) connection.close();
  return result(latenciesMs, failed, measureMs);
}

function result(latenciesMs: readonly number[], failed: number, measureMs: number): RateResult {
  const sorted = Float64Array.from(latenciesMs.length === 0 ? [0] : latenciesMs).sort();
  return {
    requests: latenciesMs.length,
    failed,
    perS: (1000 * latenciesMs.length) / measureMs,
    p50Ms: quantile(sorted, 0.5),
    p90Ms: quantile(sorted, 0.9),
    p99Ms: quantile(sorted, 0.99),
  };
}
