import { once } from 'node:events';
import { createServer, type Server } from 'node:http';
import { isIP, type AddressInfo } from 'node:net';
import { DualPathError } from '../errors/index.js';
import type { Metrics } from './registry.js';

/** `GET /metrics` in the text format of Prometheus, on a port of its own. */
export class MetricsServer {
  readonly address: { readonly host: string; readonly port: number };
  readonly #server: Server;

  private constructor(server: Server) {
    const { address, port } = server.address() as AddressInfo;
    this.#server = server;
    this.address = { host: address, port };
  }

  get url(): string {
    const { host, port } = this.address;
    return `http://${isIP(host) === 6 ? `[${host}]` : host}:${port}/metrics`;
  }

  /** @throws INVALID_ARGUMENT when it cannot listen there */
  static async open(
    metrics: Metrics,
    { host, port }: { readonly host: string; readonly port: number },
  ): Promise<MetricsServer> {
    const { registry } = metrics;
    const server = createServer({ requestTimeout: 10_000, headersTimeout: 5000 }, (request, response) => {
      request.resume();
      const path = request.url?.split('?')[0];
      if (path !== '/metrics' || (request.method !== 'GET' && request.method !== 'HEAD')) {
        response.writeHead(404, { 'content-type': 'text/plain' }).end('GET /metrics\n');
        return;
      }
      registry.metrics().then(
        (text) => response.writeHead(200, { 'content-type': registry.contentType }).end(text),
        (error: unknown) => response.writeHead(500).end(String(error)),
      );
    });
    server.maxConnections = 64;
    server.listen(port, host);
    try {
      await once(server, 'listening');
    } catch (cause) {
      const why = cause instanceof Error ? cause.message : String(cause);
      throw new DualPathError(
        'INVALID_ARGUMENT',
        `metrics cannot be served at ${host}:${port}: ${why}; choose another --metrics address`,
        { host, port },
        { cause },
      );
    }
    server.unref(); // what is measured decides how long the process lives
    return new MetricsServer(server);
  }

  async close(): Promise<void> {
    this.#server.closeAllConnections();
    await new Promise((resolve) => this.#server.close(resolve));
  }
}
