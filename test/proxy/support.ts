import { connect } from 'node:net';
import { Proxy, defaultLimits, defaultTimes, type ProxyOptions } from '../../src/proxy/index.js';
import { EmulatedReplica, type ReplicaOptions } from '../../src/replica/index.js';

export interface Stage {
  readonly proxy: Proxy;
  readonly replicas: readonly EmulatedReplica[];
  readonly url: string;
  readonly adminUrl: string;
  [Symbol.asyncDispose](): Promise<void>;
}

type Limits = Partial<typeof defaultLimits>;
type Times = Partial<typeof defaultTimes>;

/** Emulated replicas and a router in front of them, on any ports. */
export async function stage(
  count: number,
  options: Partial<Omit<ProxyOptions, 'limits' | 'times'>> & { limits?: Limits; times?: Times } = {},
  replicaOptions: Partial<ReplicaOptions> = {},
): Promise<Stage> {
  const replicas = Array.from(
    { length: count },
    () => new EmulatedReplica({ port: 0, tokenMs: 2, ...replicaOptions }),
  );
  for (const replica of replicas) await replica.start();
  const { limits, times, ...rest } = options;
  const proxy = new Proxy({
    port: 0,
    adminPort: 0,
    replicas: replicas.map(({ url }) => ({ url })),
    secret: new Uint8Array(32).fill(7),
    ...rest,
    limits: { ...defaultLimits, workers: 0, ...limits },
    times: { ...defaultTimes, drainMs: 200, ...times },
  });
  await proxy.start();
  return {
    proxy,
    replicas,
    url: `http://127.0.0.1:${proxy.port}`,
    adminUrl: `http://127.0.0.1:${proxy.adminPort}`,
    [Symbol.asyncDispose]: async () => {
      await proxy.close();
      for (const replica of replicas) await replica.close();
    },
  };
}

export interface Answered {
  readonly status: number;
  readonly text: string;
  readonly headers: Headers;
  json<T>(): T;
}

export async function post(
  url: string,
  body: unknown,
  headers: Record<string, string> = {},
): Promise<Answered> {
  const response = await fetch(url, {
    method: 'POST',
    headers: { 'content-type': 'application/json', ...headers },
    body: typeof body === 'string' ? body : JSON.stringify(body),
  });
  const text = await response.text();
  return { status: response.status, text, headers: response.headers, json: <T>() => JSON.parse(text) as T };
}

export function completion(prompt: unknown, rest: object = {}): object {
  return { model: 'emulated', prompt, max_tokens: 2, ...rest };
}

/** Sends bytes as they are and returns all that comes back until the connection ends or `quietMs` pass. */
export function raw(port: number, text: string, quietMs = 2000): Promise<string> {
  return new Promise((resolve, reject) => {
    const socket = connect(port, '127.0.0.1');
    let got = '';
    const done = (): void => {
      clearTimeout(timer);
      socket.destroy();
      resolve(got);
    };
    const timer = setTimeout(done, quietMs);
    socket.on('data', (data: Buffer) => (got += data.toString('latin1')));
    socket.on('end', done);
    socket.on('close', done);
    socket.on('error', (error: NodeJS.ErrnoException) => {
      if (error.code === 'ECONNRESET' || error.code === 'EPIPE') done();
      else reject(error);
    });
    socket.write(text);
  });
}

/** Until `condition` holds: what is awaited is an event, never a time. */
export async function until(condition: () => boolean, what: string, limitMs = 15_000): Promise<void> {
  const end = performance.now() + limitMs;
  while (!condition()) {
    if (performance.now() > end) throw new Error(`it never came to it: ${what}`);
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
}
