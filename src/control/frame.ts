/**
 * Frames on a control connection: length of the body (u32, little endian), kind (u8), body. A reader takes bytes as they
 * come, in pieces of any size, and refuses a frame by its header, before its body takes memory.
 */
import { DualPathError } from '../errors/index.js';

export const frameHeaderBytes = 5;
/** Frames of the handshake: whoever sends them has not said yet who it is. */
export const maxHandshakeBytes = 4096;
/** Any other frame: a prompt of 4 million tokens. */
export const maxFrameBytes = 16 * 2 ** 20;

export const frameKinds = {
  hello: 1,
  challenge: 2,
  proof: 3,
  welcome: 4,
  refuse: 5,
  message: 6,
  ping: 7,
  bye: 8,
  /** Its sender has heard nothing for too long and gives the socket up, not the session. */
  silent: 9,
} as const;

export type FrameKind = (typeof frameKinds)[keyof typeof frameKinds];

export interface Frame {
  readonly kind: FrameKind;
  readonly body: Buffer;
}

const kinds = new Set<number>(Object.values(frameKinds));

/** The bytes of a frame, in two pieces so that a large body is not copied. */
export function frameBytes(kind: FrameKind, body: Uint8Array): [Buffer, Uint8Array] {
  const header = Buffer.allocUnsafe(frameHeaderBytes);
  header.writeUInt32LE(body.length, 0);
  header.writeUInt8(kind, 4);
  return [header, body];
}

export class FrameReader {
  /** Largest body taken. */
  limitBytes: number;
  #pieces: Buffer[] = [];
  #bytes = 0;

  constructor(limitBytes: number) {
    this.limitBytes = limitBytes;
  }

  /** That wait to be a whole frame. */
  get bytes(): number {
    return this.#bytes;
  }

  push(piece: Buffer): void {
    if (piece.length === 0) return;
    this.#pieces.push(piece);
    this.#bytes += piece.length;
  }

  /** The next whole frame; undefined until there is one. @throws INVALID_ARGUMENT for a frame that cannot be taken */
  next(): Frame | undefined {
    if (this.#bytes < frameHeaderBytes) return undefined;
    const header = this.#peekHeader();
    const length = header.readUInt32LE(0);
    const kind = header.readUInt8(4);
    if (!kinds.has(kind)) {
      throw malformed(
        `a frame of unknown kind ${kind}; is this the port of a dualpath engine, of this version?`,
      );
    }
    if (length > this.limitBytes) {
      throw malformed(`a frame of ${length} bytes, the limit is ${this.limitBytes}`);
    }
    if (this.#bytes < frameHeaderBytes + length) return undefined;
    const whole = this.#take(frameHeaderBytes + length);
    return { kind: kind as FrameKind, body: whole.subarray(frameHeaderBytes) };
  }

  #peekHeader(): Buffer {
    const [first] = this.#pieces;
    if (first!.length >= frameHeaderBytes) return first!;
    return Buffer.concat(this.#pieces.slice(0, frameHeaderBytes), frameHeaderBytes);
  }

  #take(bytes: number): Buffer {
    const taken: Buffer[] = [];
    let missing = bytes;
    while (missing > 0) {
      const piece = this.#pieces[0]!;
      if (piece.length > missing) {
        taken.push(piece.subarray(0, missing));
        this.#pieces[0] = piece.subarray(missing);
        missing = 0;
      } else {
        taken.push(piece);
        this.#pieces.shift();
        missing -= piece.length;
      }
    }
    this.#bytes -= bytes;
    return taken.length === 1 ? taken[0]! : Buffer.concat(taken, bytes);
  }
}

function malformed(what: string): DualPathError {
  return new DualPathError('INVALID_ARGUMENT', `control connection: ${what}`);
}
