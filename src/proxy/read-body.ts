import type { IncomingMessage } from 'node:http';
import { ApiError } from '../openai/index.js';

/** Bytes of bodies in memory, over all requests. */
export class BodyMemory {
  readonly #limitBytes: number;
  #bytes = 0;

  constructor(limitBytes: number) {
    this.#limitBytes = limitBytes;
  }

  get bytes(): number {
    return this.#bytes;
  }

  /** False: there is no room. */
  take(bytes: number): boolean {
    if (this.#bytes + bytes > this.#limitBytes) return false;
    this.#bytes += bytes;
    return true;
  }

  release(bytes: number): void {
    this.#bytes -= bytes;
  }
}

/** By its header a body is too large. @throws ApiError 413 */
export function checkLength(request: IncomingMessage, limitBytes: number): void {
  if (Number(request.headers['content-length'] ?? 0) > limitBytes) throw tooLarge(limitBytes);
}

/**
 * Reads a body whole. Its bytes stay taken in `memory` until the caller releases them; on an error none do.
 * @throws ApiError 413, 429 where there is no room; null: the client left
 */
export function readBody(
  request: IncomingMessage,
  limitBytes: number,
  memory: BodyMemory,
): Promise<Buffer | null> {
  return new Promise((resolve, reject) => {
    const chunks: Buffer[] = [];
    let bytes = 0;
    let done = false;
    const end = (error: ApiError | null): void => {
      if (done) return;
      done = true;
      if (error !== null || !request.complete) memory.release(bytes);
      if (error !== null) reject(error);
      else if (!request.complete) resolve(null);
      else resolve(chunks.length === 1 ? chunks[0]! : Buffer.concat(chunks));
    };
    request.on('data', (chunk: Buffer) => {
      if (done) return;
      if (bytes + chunk.length > limitBytes) end(tooLarge(limitBytes));
      else if (!memory.take(chunk.length)) {
        end(new ApiError(429, 'too many large requests at once', { headers: { 'retry-after': '1' } }));
      } else {
        bytes += chunk.length;
        chunks.push(chunk);
      }
    });
    request.once('end', () => end(null));
    request.once('close', () => end(null));
    request.once('error', () => end(null));
  });
}

function tooLarge(limitBytes: number): ApiError {
  return new ApiError(413, `the body is larger than ${limitBytes} bytes, the limit of this router`, {
    code: 'body_too_large',
  });
}
