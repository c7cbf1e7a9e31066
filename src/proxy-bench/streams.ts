import { connect, type Socket } from 'node:net';
import { quantile } from '../telemetry/index.js';
import { benchRequest } from './client.js';

export interface StreamsResult {
  readonly streams: number;
  readonly events: number;
  /** Streams whose events did not come whole, each once and in order. */
  readonly altered: number;
  readonly cut: number;
  /** From the upstream's write to the client's read, the clocks being one. */
  readonly delayP50Ms: number;
  readonly delayP99Ms: number;
  readonly delayMaxMs: number;
}

/** The longest that a stream may take: several times what it should. */
const limitMs = 30_000;

/** Many streams at once; every event is checked to be there, in order and unchanged, and its way is timed. */
export async function manyStreams(port: number, streams: number, events: number): Promise<StreamsResult> {
  const delaysMs: number[] = [];
  let [altered, cut] = [0, 0];
  const one = (index: number): Promise<void> =>
    new Promise((resolve) => {
      let expected = 0;
      let rest = '';
      let isWhole = false;
      const socket: Socket = connect({ port, host: '127.0.0.1', noDelay: true });
      const end = (): void => {
        clearTimeout(limit);
        socket.destroy();
        resolve();
      };
      // A proxy that answers nothing is no reason to wait for ever.
      const limit = setTimeout(end, limitMs);
      socket.on('connect', () => socket.write(benchRequest('/v1/completions', 512, index, true)));
      socket.on('error', end);
      socket.on('close', () => {
        clearTimeout(limit);
        if (!isWhole) cut++;
        resolve();
      });
      socket.on('data', (data: Buffer) => {
        const nowMs = performance.timeOrigin + performance.now();
        const lines = (rest + data.toString('latin1')).split('\n');
        rest = lines.pop()!;
        for (const line of lines) {
          if (!line.startsWith('data: ')) continue;
          if (line === 'data: [DONE]') {
            isWhole = true;
            if (expected !== events) altered++;
            end();
            return;
          }
          const match =
            /^data: \{"id":"bench","index":(\d+),"sent_ms":([\d.]+),"choices":\[\{"index":0,"text":"token "\}\]\}$/.exec(
              line,
            );
          if (match === null || Number(match[1]) !== expected) altered++;
          else delaysMs.push(nowMs - Number(match[2]));
          expected++;
        }
      });
    });
  const running: Promise<void>[] = [];
  for (let i = 0; i < streams; i++) {
    running.push(one(i));
    // Connections are opened over two seconds, not in one burst.
    if (i % Math.max(1, Math.ceil(streams / 200)) === 0)
      await new Promise((resolve) => setTimeout(resolve, 10));
  }
  await Promise.all(running);
  const sorted = Float64Array.from(delaysMs.length === 0 ? [0] : delaysMs).sort();
  return {
    streams,
    events: delaysMs.length,
    altered,
    cut,
    delayP50Ms: quantile(sorted, 0.5),
    delayP99Ms: quantile(sorted, 0.99),
    delayMaxMs: sorted.at(-1)!,
  };
}
