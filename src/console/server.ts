import { readFileSync } from 'node:fs';
import { type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import { isIP } from 'node:net';
import { fileURLToPath } from 'node:url';
import { DualPathError } from '../errors/index.js';
import {
  addressOfServer,
  closeHttpServer,
  httpUrl,
  openHttpServer,
  type HttpAddress,
} from '../telemetry/index.js';
import { History } from './history.js';
import { RequestLog, type WatchedEvent } from './request-log.js';
import { snapshotOf, type ConsoleSource } from './snapshot.js';

const packageFile = (path: string): string => fileURLToPath(new URL(`../../${path}`, import.meta.url));

/** What is served besides the data; the plot library is the package's copy of ECharts. */
const files: Readonly<Record<string, { readonly path: string; readonly type: string }>> = {
  '/': { path: 'web/index.html', type: 'text/html; charset=utf-8' },
  '/console.js': { path: 'web/console.js', type: 'text/javascript; charset=utf-8' },
  '/echarts.js': { path: 'vendor/echarts.min.cjs', type: 'text/javascript; charset=utf-8' },
};

const sampleMs = 1000;
const latestRequests = 50;
/** The page is for this host: a name that resolves to it from elsewhere must not open it. */
const hostNames = /^(localhost|127\.\d+\.\d+\.\d+|\[::1\])(:\d+)?$/;

/**
 * A page that shows a scheduler at work: nodes, engines, queues, paths, and what happened to a request. Read only,
 * for browsers on this host.
 */
export class WebConsole {
  readonly address: HttpAddress;
  readonly #server: Server;
  readonly #source: () => ConsoleSource | undefined;
  readonly #log = new RequestLog();
  readonly #history = new History();
  readonly #sampler: NodeJS.Timeout;

  private constructor(server: Server, source: () => ConsoleSource | undefined) {
    this.address = addressOfServer(server);
    this.#server = server;
    this.#source = source;
    server.on('request', (request, response) => this.#answer(request, response));
    this.#sampler = setInterval(() => this.#sample(), sampleMs).unref();
  }

  /**
   * @param source undefined while there is no scheduler (a standby)
   * @throws INVALID_ARGUMENT for an address of other hosts, or one that cannot be listened on
   */
  static async open(
    { host, port }: HttpAddress,
    source: () => ConsoleSource | undefined,
  ): Promise<WebConsole> {
    if (!hostNames.test(isIP(host) === 6 ? `[${host}]` : host)) {
      throw new DualPathError(
        'INVALID_ARGUMENT',
        `the page cannot be served at ${host}: it shows what is asked for and asks for no token; use 127.0.0.1 and a tunnel (ssh -L)`,
        { host },
      );
    }
    const server = await openHttpServer({ what: 'the page', option: '--web' }, { host, port });
    return new WebConsole(server, source);
  }

  get url(): string {
    return httpUrl(this.address, '/');
  }

  /** For the `observe` of a lease ledger. */
  observe(event: WatchedEvent): void {
    this.#log.observe(event);
  }

  #sample(): void {
    const source = this.#source();
    if (source !== undefined) this.#history.add(Date.now() / 1000, source.statistics());
  }

  #answer(request: IncomingMessage, response: ServerResponse): void {
    request.resume();
    if (request.method !== 'GET' && request.method !== 'HEAD')
      return end(response, 405, { error: 'GET only' });
    if (!hostNames.test(request.headers.host ?? ''))
      return end(response, 403, { error: 'this page is for browsers on its own host' });
    const url = new URL(request.url ?? '/', 'http://localhost');
    const file = files[url.pathname];
    if (file !== undefined) return sendFile(response, file);
    if (url.pathname === '/state') return this.#state(response);
    if (url.pathname === '/request') return this.#request(response, url.searchParams.get('name') ?? '');
    end(response, 404, { error: `there is no ${url.pathname}` });
  }

  #state(response: ServerResponse): void {
    const source = this.#source();
    if (source === undefined) return end(response, 503, { error: 'this scheduler does not lead' });
    end(response, 200, snapshotOf(source, this.#history.points(), this.#log.latest(latestRequests)));
  }

  #request(response: ServerResponse, name: string): void {
    const history = this.#log.find(name);
    if (history === undefined)
      return end(response, 404, { error: `request '${name}' is not among the latest` });
    end(response, 200, history);
  }

  async close(): Promise<void> {
    clearInterval(this.#sampler);
    await closeHttpServer(this.#server);
  }
}

function end(response: ServerResponse, status: number, document: object): void {
  response
    .writeHead(status, { 'content-type': 'application/json', 'cache-control': 'no-store' })
    .end(JSON.stringify(document));
}

function sendFile(response: ServerResponse, { path, type }: { path: string; type: string }): void {
  response
    .writeHead(200, {
      'content-type': type,
      'cache-control': 'max-age=3600',
      'content-security-policy': "default-src 'self'; img-src 'self' data:; style-src 'self' 'unsafe-inline'",
      'x-content-type-options': 'nosniff',
    })
    .end(readFileSync(packageFile(path)));
}
