import { once } from 'node:events';
import { createServer, type Server } from 'node:http';
import { isIP, type AddressInfo } from 'node:net';
import { DualPathError } from '../errors/index.js';

export interface HttpAddress {
  readonly host: string;
  readonly port: number;
}

const maxConnections = 64;
const timeouts = { requestTimeout: 10_000, headersTimeout: 5000 };

/**
 * A small HTTP server beside the work: it bounds its connections and keeps no process alive.
 * @param what it serves, and the option that says where, for the error
 * @throws INVALID_ARGUMENT when it cannot listen there
 */
export async function openHttpServer(
  { what, option }: { readonly what: string; readonly option: string },
  { host, port }: HttpAddress,
): Promise<Server> {
  const server = createServer(timeouts);
  server.maxConnections = maxConnections;
  server.listen(port, host);
  try {
    await once(server, 'listening');
  } catch (cause) {
    const why = cause instanceof Error ? cause.message : String(cause);
    throw new DualPathError(
      'INVALID_ARGUMENT',
      `${what} cannot be served at ${host}:${port}: ${why}; choose another ${option} address`,
      { host, port },
      { cause },
    );
  }
  return server.unref();
}

/** Where it listens, the port that it was given. */
export function addressOfServer(server: Server): HttpAddress {
  const { address, port } = server.address() as AddressInfo;
  return { host: address, port };
}

export function httpUrl({ host, port }: HttpAddress, path: string): string {
  return `http://${isIP(host) === 6 ? `[${host}]` : host}:${port}${path}`;
}

export async function closeHttpServer(server: Server): Promise<void> {
  server.closeAllConnections();
  await new Promise((resolve) => server.close(resolve));
}
