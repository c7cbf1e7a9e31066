import type { IncomingMessage } from 'node:http';
import { ApiError } from '../openai/index.js';
import { Gathered, LargeMemory } from './large-memory.js';

/** Bytes of bodies in memory, over all requests. */
export class BodyMemory {
  readonly large = new LargeMemory();
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
 * Reads a body whole. Its bytes stay taken in `memory` until the caller releases them; on an error none do. The caller may
 * give its memory back to `memory.large`, once nobody uses it.
 * @throws ApiError 413, 429 where there is no room; null: the client left
 */
export function readBody(
  request: IncomingMessage,
  limitBytes: number,
  memory: BodyMemory,
): Promise<Buffer | null> {
  return new Promise((resolve, reject) => {
    const body = new Gathered(memory.large);
    let done = false;
    const end = (error: ApiError | null): void => {
      if (done) return;
      done = true;
      if (error !== null || !request.complete) {
        memory.release(body.bytes);
        body.drop();
      }
      if (error !== null) reject(error);
      else resolve(request.complete ? body.whole() : null);
    };
    request.on('data', (chunk: Buffer) => {
      if (done) return;
      if (body.bytes + chunk.length > limitBytes) end(tooLarge(limitBytes));
      else if (!memory.take(chunk.length)) {
        end(new ApiError(429, 'too many large requests at once', { headers: { 'retry-after': '1' } }));
      } else {
        body.add(chunk);
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
