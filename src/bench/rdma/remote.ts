/** A BenchNode of another host: calls as lines of JSON over TCP, one answer each. */
import { once } from 'node:events';
import { connect, createServer, type Socket } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { DualPathError, errorCodes, isDualPathError, type ErrorCode } from '../../errors/index.js';
import { LocalNode, nodeMethods, type BenchNode } from './node.js';

export const defaultControlPort = 18600;
const connectAttempts = 100;
const retryMs = 200;
/** A hundred thousand samples fit in. */
const maxLineBytes = 1 << 22;

interface Call {
  readonly id: number;
  readonly method: string;
  readonly args: readonly unknown[];
}

interface Answer {
  readonly id: number;
  readonly result?: unknown;
  readonly error?: { readonly code: string; readonly message: string };
}

function onLines(socket: Socket, take: (line: string) => void): void {
  let rest = '';
  socket.setEncoding('utf8').on('data', (chunk: string) => {
    const lines = (rest + chunk).split('\n');
    rest = lines.pop()!;
    if (rest.length > maxLineBytes) socket.destroy();
    for (const line of lines) take(line);
  });
}

/** Calls by name; arguments and results are JSON. */
export type Methods = Readonly<Record<string, (...args: never[]) => unknown>>;

/** Serves one benchmark at a time until `signal`, or until the first has ended where `once` is set. */
export async function serveNode(options: {
  readonly address: string;
  readonly port: number;
  readonly once: boolean;
  readonly signal: AbortSignal;
  /** Besides those of a BenchNode. */
  readonly methods?: Methods;
}): Promise<void> {
  const server = createServer();
  server.maxConnections = 1;
  const stop = (): void => void server.close();
  options.signal.addEventListener('abort', stop);
  server.on('connection', (socket) => {
    if (options.once) server.close();
    const node = new LocalNode();
    const methods = methodsOf(node, options.methods);
    const end = (): void => void socket.destroy();
    options.signal.addEventListener('abort', end);
    socket.on('error', () => undefined);
    socket.on('close', () => {
      options.signal.removeEventListener('abort', end);
      void node.reset();
    });
    onLines(socket, (line) => void answer(methods, line).then((text) => socket.write(`${text}\n`)));
  });
  server.listen(options.port, options.address);
  await once(server, 'close');
  options.signal.removeEventListener('abort', stop);
}

function methodsOf(node: LocalNode, more: Methods = {}): ReadonlyMap<string, (...args: never[]) => unknown> {
  const own = nodeMethods.map((name) => [name, node[name].bind(node)] as const);
  return new Map<string, (...args: never[]) => unknown>([...own, ...Object.entries(more)]);
}

async function answer(methods: ReturnType<typeof methodsOf>, line: string): Promise<string> {
  const call = JSON.parse(line) as Call;
  try {
    const method = methods.get(call.method);
    if (method === undefined) throw new DualPathError('INVALID_ARGUMENT', `no method ${call.method}`);
    return JSON.stringify({ id: call.id, result: await method(...(call.args as never[])) });
  } catch (error) {
    const code = isDualPathError(error) ? error.code : 'INTERNAL';
    const message = error instanceof Error ? error.message : String(error);
    return JSON.stringify({ id: call.id, error: { code, message } });
  }
}

/** The node that another host serves. @throws PEER_LOST when nobody answers within 20 s */
export async function connectNode(address: string, port: number, signal?: AbortSignal): Promise<RemoteNode> {
  for (let attempt = 0; ; attempt++) {
    signal?.throwIfAborted();
    const socket = connect(port, address);
    try {
      await once(socket, 'connect');
      return remoteNode(socket);
    } catch (cause) {
      socket.destroy();
      if (attempt < connectAttempts) {
        await sleep(retryMs);
        continue;
      }
      throw new DualPathError(
        'PEER_LOST',
        `nobody serves the benchmark at ${address}:${port}; start it there with --serve`,
        {},
        { cause },
      );
    }
  }
}

export interface RemoteNode extends BenchNode {
  /** Of this side, as the other one reaches it. */
  readonly localAddress: string;
  /** A method beyond those of a BenchNode. */
  readonly call: (method: string, args: readonly unknown[]) => Promise<unknown>;
  readonly disconnect: () => void;
}

function remoteNode(socket: Socket): RemoteNode {
  const waiting = new Map<number, { resolve: (value: unknown) => void; reject: (error: Error) => void }>();
  let next = 1;
  let lost: DualPathError | undefined;
  socket.setNoDelay();
  socket.on('error', () => undefined);
  socket.on('close', () => {
    lost = new DualPathError('PEER_LOST', 'the other side of the benchmark has gone');
    for (const { reject } of waiting.values()) reject(lost);
    waiting.clear();
  });
  onLines(socket, (line) => {
    const { id, result, error } = JSON.parse(line) as Answer;
    const call = waiting.get(id);
    waiting.delete(id);
    if (error === undefined) call?.resolve(result);
    else call?.reject(new DualPathError(codeOf(error.code), `on the other side: ${error.message}`));
  });
  const call = (method: string, args: readonly unknown[]): Promise<unknown> =>
    new Promise((resolve, reject) => {
      if (lost !== undefined) return reject(lost);
      waiting.set(next, { resolve, reject });
      socket.write(`${JSON.stringify({ id: next++, method, args } satisfies Call)}\n`);
    });
  const methods = nodeMethods.map((name) => [name, (...args: unknown[]) => call(name, args)]);
  return {
    ...Object.fromEntries(methods),
    call,
    localAddress: socket.localAddress ?? '',
    disconnect: () => void socket.destroy(),
  } as RemoteNode;
}

const codeOf = (code: string): ErrorCode => (code in errorCodes ? (code as ErrorCode) : 'INTERNAL');
