import { gzipSync } from 'node:zlib';
import { describe, expect, it } from 'vitest';
import { readLines, type TraceLine } from '../../src/trace/lines.js';
import { traceLimits } from '../../src/trace/index.js';
import { temporaryFiles } from './support.js';

const write = temporaryFiles();

async function linesOf(path: string): Promise<TraceLine[]> {
  const lines: TraceLine[] = [];
  for await (const line of readLines(path)) lines.push(line);
  return lines;
}

// Incompressible enough that a cut in the middle leaves whole lines before it.
const manyLines = Array.from({ length: 20_000 }, (_, i) => `line ${(i * 2654435761) % 4294967296} ü`);

describe('readLines', () => {
  it('numbers lines from 1 and skips blank ones', async () => {
    expect(await linesOf(write('plain', 'a\n\n  \r\nb\r\nc'))).toEqual([
      { text: 'a', number: 1 },
      { text: 'b\r', number: 4 },
      { text: 'c', number: 5 },
    ]);
  });

  it('joins lines over chunks, in plain and gzip files of any name, of several members too', async () => {
    const content = manyLines.join('\n');
    const half = content.length >> 1;
    const members = Buffer.concat([gzipSync(content.slice(0, half)), gzipSync(content.slice(half))]);
    for (const data of [content, gzipSync(content), members]) {
      const lines = await linesOf(write('named-like-nothing.txt', data));
      expect(lines.map((line) => line.text)).toEqual(manyLines);
    }
  });

  it('reads files of no and of one byte', async () => {
    expect(await linesOf(write('empty', ''))).toEqual([]);
    expect(await linesOf(write('one', 'x'))).toEqual([{ text: 'x', number: 1 }]);
  });

  it('says that gzip data is truncated, and after which line', async () => {
    const data = gzipSync(manyLines.join('\n'));
    const path = write('cut.gz', data.subarray(0, data.length >> 1));
    await expect(linesOf(path)).rejects.toMatchObject({
      code: 'INVALID_TRACE',
      message: expect.stringMatching(
        /cut\.gz: the gzip data ends too early, after line [1-9]\d*: .*truncated/,
      ) as string,
    });
  });

  it('says that gzip data is corrupt', async () => {
    const data = gzipSync(manyLines.join('\n'));
    data.fill(0xff, 2000, 2100);
    await expect(linesOf(write('bad.gz', data))).rejects.toMatchObject({
      code: 'INVALID_TRACE',
      message: expect.stringContaining('corrupt') as string,
    });
  });

  it('accepts a line of the limit and refuses a longer one', async () => {
    const longest = 'x'.repeat(traceLimits.lineBytes);
    expect(await linesOf(write('longest', `${longest}\na`))).toHaveLength(2);
    await expect(
      linesOf(write('longer.gz', gzipSync(`a\n${longest}x\n`, { level: 1 }))),
    ).rejects.toMatchObject({
      code: 'INVALID_TRACE',
      message: expect.stringContaining(
        `longer.gz:2: the line is longer than the limit of ${16 * 1024 * 1024} bytes`,
      ) as string,
    });
  });

  it('refuses bytes that are not UTF-8', async () => {
    await expect(linesOf(write('latin1', Buffer.from('a\n\xfc\n', 'latin1')))).rejects.toMatchObject({
      code: 'INVALID_TRACE',
      details: { line: 2 },
    });
  });

  it('reports a file that cannot be read as a bad argument', async () => {
    await expect(linesOf('/nonexistent/trace')).rejects.toMatchObject({ code: 'INVALID_ARGUMENT' });
    await expect(linesOf('/tmp')).rejects.toMatchObject({ code: 'INVALID_ARGUMENT' });
  });

  it('stops when aborted, and reports the bytes read', async () => {
    const path = write('long', manyLines.join('\n'));
    const controller = new AbortController();
    let bytes = 0;
    const read = async (): Promise<void> => {
      for await (const line of readLines(path, { signal: controller.signal, onBytes: (n) => (bytes = n) })) {
        if (line.number === 15_000) controller.abort();
      }
    };
    await expect(read()).rejects.toMatchObject({ code: 'CANCELLED', details: { line: 15_000 } });
    expect(bytes).toBeGreaterThan(0);
  });
});
