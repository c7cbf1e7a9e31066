/**
 * A process on the control network: listens, dials, and carries messages of any channel to other nodes by name, in order,
 * each once as long as the session lasts.
 */
import { createServer as createTcpServer, type Server, type Socket } from 'node:net';
import { createServer as createTlsServer } from 'node:tls';
import { z } from 'zod';
import { DualPathError } from '../errors/index.js';
import { addressText, type Address, type TlsFiles } from './address.js';
import { checkReach, checkToken } from './auth.js';
import { encodeMessage } from './codec.js';
import { Dialler } from './dialler.js';
import { FrameSocket, parseMessage } from './frame-socket.js';
import { accept, type Identity } from './handshake.js';
import { PeerLink } from './peer-link.js';
import { Session } from './session.js';
import { controlTiming, type ControlTiming } from './timing.js';

export interface ControlNodeOptions {
  /** Unique among the nodes that meet. */
  readonly name: string;
  /** Of model and layout: nodes of another one are refused. */
  readonly identity: string;
  /** Shared by all, at least 16 bytes, never sent. Left out: connections stay on this host. */
  readonly token?: Uint8Array;
  readonly tls?: TlsFiles;
  /** Port 0: any. Left out: only dials. */
  readonly listen?: Address;
  readonly timing?: Partial<ControlTiming>;
}

export interface NodeEvents {
  /** A session with another node has begun. */
  up?(node: string): void;
  /** It can be reached, again perhaps: a connection works. */
  reached?(node: string): void;
  /** It is over: what was not answered will not be. */
  lost?(node: string, error: DualPathError): void;
}

type Handler = (node: string, message: unknown) => void;

const envelope = z.object({ channel: z.string().max(32), message: z.unknown() });
const maxNodes = 1024;
const maxHandshakes = 64;

export class ControlNode {
  readonly name: string;
  readonly #own: Identity;
  readonly #tls: TlsFiles | undefined;
  readonly #timing: ControlTiming;
  readonly #links = new Map<string, PeerLink>();
  readonly #diallers = new Map<string, Dialler>();
  readonly #channels = new Map<string, Handler>();
  readonly #events = new Set<NodeEvents>();
  #server: Server | undefined;
  #handshakes = 0;
  #closed = false;

  private constructor(options: ControlNodeOptions) {
    this.name = options.name;
    this.#own = { name: options.name, identity: options.identity, token: options.token };
    this.#tls = options.tls;
    this.#timing = { ...controlTiming, ...options.timing };
  }

  /** @throws INVALID_ARGUMENT: a port in use, an address or token that will not do */
  static async open(options: ControlNodeOptions): Promise<ControlNode> {
    if (options.token !== undefined) checkToken(options.token);
    const node = new ControlNode(options);
    if (options.listen !== undefined) {
      await checkReach(options.listen.host, options.token);
      await node.#listen(options.listen);
    }
    return node;
  }

  async #listen(address: Address): Promise<void> {
    const onSocket = (socket: Socket): void => void this.#accept(socket);
    const tls = this.#tls;
    const server =
      tls === undefined
        ? createTcpServer(onSocket)
        : createTlsServer({ ...tls, requestCert: tls.ca !== undefined, rejectUnauthorized: true }, onSocket);
    await new Promise<void>((resolve, reject) => {
      server.once('error', (error: NodeJS.ErrnoException) => reject(listenError(address, error)));
      server.listen({ ...address, exclusive: true }, resolve);
    });
    server.on('error', () => undefined);
    this.#server = server;
  }

  /** Where it listens. */
  get address(): Address | undefined {
    const address = this.#server?.address();
    if (address === null || typeof address !== 'object') return undefined;
    return { host: address.address, port: address.port };
  }

  async #accept(raw: Socket): Promise<void> {
    if (this.#closed || this.#handshakes >= maxHandshakes) {
      raw.destroy();
      return;
    }
    const socket = new FrameSocket(raw);
    this.#handshakes++;
    const late = setTimeout(() => socket.destroy(new Error('no answer')), this.#timing.handshakeMs);
    try {
      const met = await accept(socket, this.#own, (name, peerSession) => {
        const link = this.#links.get(name);
        return link?.session.goesOnWith(peerSession) === true ? link.session : new Session();
      });
      this.#link(met.node).attach(socket, met, true);
    } catch {
      socket.destroy(); // whoever dialled has been told why, as far as it may know
    } finally {
      clearTimeout(late);
      this.#handshakes--;
    }
  }

  #link(name: string): PeerLink {
    const known = this.#links.get(name);
    if (known !== undefined) return known;
    if (this.#links.size >= maxNodes) {
      throw new DualPathError(
        'CAPACITY_EXHAUSTED',
        `'${this.name}' is connected to ${maxNodes} nodes, the most it may`,
      );
    }
    const link: PeerLink = new PeerLink(
      name,
      {
        message: (body) => this.#take(name, body),
        up: () => this.#tell((events) => events.up?.(name)),
        reached: () => this.#tell((events) => events.reached?.(name)),
        lost: (error, anew) => {
          const unused = !anew && !this.#diallers.has(name);
          if (unused && this.#links.get(name) === link) this.#links.delete(name);
          this.#tell((events) => events.lost?.(name, error));
        },
      },
      this.#timing,
    );
    this.#links.set(name, link);
    return link;
  }

  #tell(event: (events: NodeEvents) => void): void {
    for (const events of [...this.#events]) event(events);
  }

  #take(name: string, body: Buffer): void {
    const { channel, message } = parseMessage('envelope', envelope, body);
    const handler = this.#channels.get(channel);
    if (handler === undefined) {
      throw new DualPathError('INVALID_ARGUMENT', `'${this.name}' has no channel '${channel}' for '${name}'`);
    }
    handler(name, message);
  }

  /**
   * Messages of one kind. What does not fit `schema`, and what the handler throws, ends the session with the sender.
   * The returned function ends it.
   */
  channel<T>(channel: string, schema: z.ZodType<T>, handler: (node: string, message: T) => void): () => void {
    const taken: Handler = (node, message) => {
      const parsed = schema.safeParse(message);
      if (!parsed.success) {
        const [issue] = parsed.error.issues;
        const where = issue?.path.join('.') ?? '';
        throw new DualPathError(
          'INVALID_ARGUMENT',
          `a malformed message of '${node}' on channel '${channel}': ${where} ${issue?.message ?? ''}`,
        );
      }
      handler(node, parsed.data);
    };
    this.#channels.set(channel, taken);
    return () => {
      if (this.#channels.get(channel) === taken) this.#channels.delete(channel);
    };
  }

  listen(events: NodeEvents): () => void {
    this.#events.add(events);
    return () => this.#events.delete(events);
  }

  /**
   * False when there is no such node, or it has just been lost: a session that is over was told of. While a node
   * cannot be reached its messages wait.
   */
  send(node: string, channel: string, message: unknown): boolean {
    const link = this.#links.get(node);
    return link !== undefined && !this.#closed && link.send(encodeMessage({ channel, message }));
  }

  /** For whoever sends much: resolves when the node keeps up, or is lost. */
  async writable(node: string): Promise<void> {
    await this.#links.get(node)?.writable();
  }

  /** Whether a connection to the node works, as far as is known. */
  reachable(node: string): boolean {
    return this.#links.get(node)?.connected === true;
  }

  /** Whether the node is there: a session that may for now be without a connection. */
  knows(node: string): boolean {
    return (this.#links.get(node)?.session.peerId ?? null) !== null;
  }

  /**
   * Dials a node until disconnect(); one side of two does. Resolves with its name once it has been reached.
   * @param patienceMs for the first time
   * @throws PEER_LOST, INVALID_ARGUMENT (another version or model; one name twice), UNAUTHENTICATED
   */
  async connect(address: Address, patienceMs = 10_000): Promise<string> {
    await checkReach(address.host, this.#own.token);
    const dialler = new Dialler({
      address,
      own: this.#own,
      tls: this.#tls,
      timing: this.#timing,
      linkTo: (name) => {
        if (this.knows(name)) return undefined;
        this.#diallers.get(name)?.stop(); // where the node was that had its name before
        this.#diallers.set(name, dialler);
        return this.#link(name);
      },
    });
    try {
      return await dialler.first(patienceMs);
    } catch (error) {
      dialler.stop();
      throw error;
    }
  }

  /** Says goodbye to a node and dials it no more. */
  disconnect(node: string): void {
    this.#diallers.get(node)?.stop();
    this.#diallers.delete(node);
    this.#links.get(node)?.close();
    this.#links.delete(node);
  }

  /** Says goodbye to everybody. Idempotent. */
  async close(): Promise<void> {
    if (this.#closed) return;
    this.#closed = true;
    for (const node of [...this.#links.keys()]) this.disconnect(node);
    const server = this.#server;
    if (server !== undefined) await new Promise<void>((resolve) => void server.close(() => resolve()));
  }
}

function listenError(address: Address, error: NodeJS.ErrnoException): DualPathError {
  const where = addressText(address);
  const why =
    error.code === 'EADDRINUSE'
      ? 'it is in use by another process; stop that one, or choose another port'
      : error.code === 'EADDRNOTAVAIL'
        ? 'this host has no such address'
        : error.message;
  return new DualPathError(
    'INVALID_ARGUMENT',
    `cannot listen on ${where}: ${why}`,
    { address: where },
    { cause: error },
  );
}
