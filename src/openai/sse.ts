/** Longest line that is kept whole; of a longer one the rest is not seen. */
const lineBytesMax = 1 << 20;

/**
 * Lines of an event stream from chunks that end anywhere. Only `data:` lines are handed on, as text without the prefix.
 * The chunks themselves are neither kept nor changed.
 */
export class SseLines {
  #rest: Buffer | null = null;
  #skipping = false;

  feed(chunk: Buffer, onData: (text: string) => void): void {
    let start = 0;
    for (let end = chunk.indexOf(10); end >= 0; end = chunk.indexOf(10, start)) {
      if (this.#rest === null) emit(chunk, start, end, onData);
      else {
        const line = Buffer.concat([this.#rest, chunk.subarray(start, end)]);
        this.#rest = null;
        if (!this.#skipping) emit(line, 0, line.length, onData);
      }
      this.#skipping = false;
      start = end + 1;
    }
    if (start === chunk.length) return;
    const rest = chunk.subarray(start);
    if (this.#skipping) return;
    this.#rest = this.#rest === null ? rest : Buffer.concat([this.#rest, rest]);
    if (this.#rest.length > lineBytesMax) {
      this.#rest = Buffer.alloc(0);
      this.#skipping = true;
    }
  }

  /** Whether the last chunk ended within a line. */
  get within(): boolean {
    return this.#rest !== null;
  }
}

const prefix = Buffer.from('data:');

function emit(buffer: Buffer, start: number, end: number, onData: (text: string) => void): void {
  if (end > start && buffer[end - 1] === 13) end--;
  if (
    end - start < prefix.length ||
    buffer.compare(prefix, 0, prefix.length, start, start + prefix.length) !== 0
  )
    return;
  const from = start + prefix.length + (buffer[start + prefix.length] === 32 ? 1 : 0);
  onData(buffer.toString('utf8', from, Math.max(from, end)));
}
