import { createReadStream, type ReadStream } from 'node:fs';
import { pipeline, Readable } from 'node:stream';
import { createGunzip } from 'node:zlib';
import { DualPathError } from '../errors/index.js';
import { traceLimits } from './types.js';

export interface TraceLine {
  readonly text: string;
  /** Counted from 1, blank lines included. */
  readonly number: number;
}

export interface ReadLinesOptions {
  readonly signal?: AbortSignal | undefined;
  /** Called as the file is read, with the bytes read of it so far (compressed, if it is). */
  readonly onBytes?: ((bytes: number) => void) | undefined;
}

const newline = 0x0a;

/**
 * The lines of a text file, gzip-compressed or not (told by its first two bytes, RFC 1952, never by its
 * name), in memory for one line and one chunk. Blank lines are left out.
 */
export async function* readLines(path: string, options: ReadLinesOptions = {}): AsyncGenerator<TraceLine> {
  const file = createReadStream(path, { highWaterMark: 256 * 1024 });
  let lines = 0;
  const decoder = new TextDecoder('utf-8', { fatal: true });
  const decode = (bytes: Buffer): string => {
    try {
      return decoder.decode(bytes);
    } catch (cause) {
      throw new DualPathError(
        'INVALID_TRACE',
        `${path}:${lines}: expected UTF-8 text, found other bytes`,
        { path, line: lines },
        { cause },
      );
    }
  };
  try {
    for await (const bytes of splitLines(decompressed(file, options.onBytes), path)) {
      if (options.signal?.aborted === true) {
        throw new DualPathError('CANCELLED', `reading ${path} was cancelled at line ${lines}`, {
          path,
          line: lines,
        });
      }
      lines++;
      const text = decode(bytes);
      if (text.trim() !== '') yield { text, number: lines };
    }
  } catch (error) {
    throw asTraceError(error, path, lines);
  } finally {
    file.destroy();
  }
}

async function* splitLines(chunks: AsyncIterable<Buffer>, path: string): AsyncGenerator<Buffer> {
  let parts: Buffer[] = [];
  let held = 0;
  let line = 1;
  const hold = (part: Buffer): void => {
    held += part.length;
    if (held > traceLimits.lineBytes) {
      throw new DualPathError(
        'INVALID_TRACE',
        `${path}:${line}: the line is longer than the limit of ${traceLimits.lineBytes} bytes: ` +
          'a trace has one JSON document a line; split this session into several',
        { path, line, limit_bytes: traceLimits.lineBytes },
      );
    }
    parts.push(part);
  };
  for await (const chunk of chunks) {
    let start = 0;
    for (let end = chunk.indexOf(newline); end >= 0; end = chunk.indexOf(newline, start)) {
      hold(chunk.subarray(start, end));
      yield parts.length === 1 && parts[0] !== undefined ? parts[0] : Buffer.concat(parts);
      parts = [];
      held = 0;
      line++;
      start = end + 1;
    }
    if (start < chunk.length) hold(chunk.subarray(start));
  }
  if (held > 0) yield Buffer.concat(parts);
}

async function* decompressed(
  file: ReadStream,
  onBytes: ((bytes: number) => void) | undefined,
): AsyncGenerator<Buffer> {
  const chunks = (file as AsyncIterable<Buffer>)[Symbol.asyncIterator]();
  let head = Buffer.alloc(0);
  while (head.length < 2) {
    const next = await chunks.next();
    if (next.done === true) break;
    head = Buffer.concat([head, next.value]);
  }
  async function* all(): AsyncGenerator<Buffer> {
    yield head;
    for (let next = await chunks.next(); next.done !== true; next = await chunks.next()) {
      onBytes?.(file.bytesRead);
      yield next.value;
    }
    onBytes?.(file.bytesRead);
  }
  if (head[0] === 0x1f && head[1] === 0x8b) {
    const gunzip = createGunzip({ chunkSize: 256 * 1024 });
    // The callback takes the error that iterating over gunzip throws too.
    pipeline(Readable.from(all(), { objectMode: false }), gunzip, () => undefined);
    yield* gunzip as AsyncIterable<Buffer>;
  } else {
    yield* all();
  }
}

function asTraceError(error: unknown, path: string, lines: number): unknown {
  if (error instanceof DualPathError || !(error instanceof Error)) return error;
  const code = (error as NodeJS.ErrnoException).code ?? '';
  const details = { path, line: lines, cause: code };
  if (code === 'Z_BUF_ERROR') {
    return new DualPathError(
      'INVALID_TRACE',
      `${path}: the gzip data ends too early, after line ${lines}: the file is truncated; fetch it again`,
      details,
      { cause: error },
    );
  }
  if (code.startsWith('Z_')) {
    return new DualPathError(
      'INVALID_TRACE',
      `${path}: the gzip data is corrupt after line ${lines} (${error.message}); fetch the file again`,
      details,
      { cause: error },
    );
  }
  if (code !== '') {
    return new DualPathError('INVALID_ARGUMENT', `cannot read the trace ${path}: ${error.message}`, details, {
      cause: error,
    });
  }
  return error;
}
