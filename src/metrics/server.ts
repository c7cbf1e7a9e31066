import type { IncomingMessage, Server, ServerResponse } from 'node:http';
import {
  addressOfServer,
  closeHttpServer,
  httpUrl,
  openHttpServer,
  type HttpAddress,
} from '../telemetry/index.js';
import type { Metrics } from './registry.js';

/** `GET /metrics` in the text format of Prometheus, on a port of its own. */
export class MetricsServer {
  readonly address: HttpAddress;
  readonly #server: Server;

  private constructor(server: Server) {
    this.#server = server;
    this.address = addressOfServer(server);
  }

  get url(): string {
    return httpUrl(this.address, '/metrics');
  }

  /** @throws INVALID_ARGUMENT when it cannot listen there */
  static async open({ registry }: Metrics, address: HttpAddress): Promise<MetricsServer> {
    const server = await openHttpServer({ what: 'metrics', option: '--metrics' }, address);
    server.on('request', (request: IncomingMessage, response: ServerResponse) => {
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
    return new MetricsServer(server);
  }

  close(): Promise<void> {
    return closeHttpServer(this.#server);
  }
}
