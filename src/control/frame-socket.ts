/** Frames over a socket: taken one by one during the handshake, by a listener after it. */
import type { Socket } from 'node:net';
import type { ZodType } from 'zod';
import { DualPathError } from '../errors/index.js';
import { decodeMessage, encodeMessage } from './codec.js';
import {
  frameBytes,
  frameKinds,
  FrameReader,
  maxHandshakeBytes,
  type Frame,
  type FrameKind,
} from './frame.js';

/** Taken ahead of a handshake's frames; whoever sends more waits. */
const maxAheadBytes = 64 * 2 ** 10;

/** For a last word over a path that has been silent. */
const silentPatienceMs = 5000;

export interface SocketEnd {
  /** Undefined when the other side closed in order. */
  readonly error: Error | undefined;
  /** The other side's system said that it is closed, rather than this side giving it up. */
  readonly byPeer: boolean;
}

export class FrameSocket {
  readonly ended: Promise<SocketEnd>;
  readonly #socket: Socket;
  readonly #reader = new FrameReader(maxHandshakeBytes);
  #listener: ((frame: Frame) => void) | undefined;
  #wake: (() => void) | undefined;
  #error: Error | undefined;
  #over = false;
  #end!: (end: SocketEnd) => void;
  #heardMs = performance.now();
  onDrain: () => void = () => undefined;

  constructor(socket: Socket) {
    this.#socket = socket;
    this.ended = new Promise((resolve) => {
      this.#end = resolve;
    });
    socket.setNoDelay(true);
    socket.on('data', (piece: Buffer) => this.#take(piece));
    socket.on('drain', () => this.onDrain());
    socket.on('error', (error) => {
      this.#error ??= error;
    });
    socket.on('end', () => this.#close(true));
    socket.on('close', () => this.#close(wasReset(this.#error)));
  }

  get remote(): string {
    return `${this.#socket.remoteAddress ?? '?'}:${this.#socket.remotePort ?? 0}`;
  }
  /** When the last bytes came. */
  get heardMs(): number {
    return this.#heardMs;
  }
  get over(): boolean {
    return this.#over;
  }
  get backlogBytes(): number {
    return this.#socket.writableLength;
  }

  #take(piece: Buffer): void {
    this.#heardMs = performance.now();
    this.#reader.push(piece);
    if (this.#listener !== undefined) this.#deliver(this.#listener);
    else if (this.#reader.bytes > maxAheadBytes) this.#socket.pause();
    this.#wake?.();
  }

  #deliver(listener: (frame: Frame) => void): void {
    try {
      while (!this.#over) {
        const frame = this.#reader.next();
        if (frame === undefined) return;
        listener(frame);
      }
    } catch (error) {
      this.destroy(error as Error);
    }
  }

  /** Every further frame, up to `limitBytes`; what the listener throws ends the socket. */
  listen(limitBytes: number, listener: (frame: Frame) => void): void {
    this.#reader.limitBytes = limitBytes;
    this.#listener = listener;
    this.#deliver(listener);
    this.#socket.resume();
  }

  /** The next frame of the handshake. @throws PEER_LOST when the socket ended first */
  async take(): Promise<Frame> {
    for (;;) {
      const frame = this.#error === undefined ? this.#reader.next() : undefined;
      if (frame !== undefined) return frame;
      if (this.#over) {
        if (this.#error instanceof DualPathError) throw this.#error;
        throw new DualPathError(
          'PEER_LOST',
          `the control connection ended in its handshake${this.#error === undefined ? '' : `: ${this.#error.message}`}`,
          {},
          { cause: this.#error },
        );
      }
      await new Promise<void>((resolve) => {
        this.#wake = resolve;
      });
    }
  }

  /** False when the backlog has grown beyond what the system takes: go on after onDrain. */
  send(kind: FrameKind, body: Uint8Array = new Uint8Array()): boolean {
    if (this.#over) return false;
    const [header, rest] = frameBytes(kind, body);
    this.#socket.cork();
    this.#socket.write(header);
    const room = this.#socket.write(rest);
    this.#socket.uncork();
    return room;
  }

  sendMessage(kind: FrameKind, value: unknown): boolean {
    return this.send(kind, encodeMessage(value));
  }

  /** Says a last word if it can, and closes; at once when it has not gone after `patienceMs`. */
  finish(kind: FrameKind, value: unknown, patienceMs = 500): void {
    if (this.#over) return;
    this.sendMessage(kind, value);
    this.#socket.end();
    const late = setTimeout(() => this.destroy(), patienceMs);
    late.unref();
    this.#socket.once('close', () => clearTimeout(late));
  }

  /** As destroy(), but the other side is told, should it hear after all: otherwise it would take this process for dead. */
  giveUp(error: Error): void {
    this.finish(frameKinds.silent, {}, silentPatienceMs);
    // A socket that is closed with bytes unread resets the connection, and the word is lost.
    this.#socket.removeAllListeners('data').resume();
    this.#error ??= error;
    if (this.#over) return;
    this.#over = true;
    this.#end({ error: this.#error, byPeer: false });
    this.#wake?.();
  }

  destroy(error?: Error): void {
    this.#error ??= error;
    this.#close(false);
  }

  #close(byPeer: boolean): void {
    if (!this.#over) {
      this.#over = true;
      this.#end({ error: this.#error, byPeer });
      this.#wake?.();
    }
    this.#socket.destroy();
  }
}

/** The other side's system knows nothing of the connection, as opposed to what a path's outage leads to. */
function wasReset(error: Error | undefined): boolean {
  return error !== undefined && 'code' in error && (error.code === 'ECONNRESET' || error.code === 'EPIPE');
}

/** @throws INVALID_ARGUMENT when the message is not of this form */
export function parseMessage<T>(what: string, schema: ZodType<T>, body: Buffer): T {
  const parsed = schema.safeParse(decodeMessage(body));
  if (parsed.success) return parsed.data;
  const [issue] = parsed.error.issues;
  throw new DualPathError(
    'INVALID_ARGUMENT',
    `a malformed control message (${what}): ${issue?.path.join('.') ?? ''} ${issue?.message ?? ''}`,
  );
}
