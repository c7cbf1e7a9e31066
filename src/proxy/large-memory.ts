/** Memory of a large body begins with so many bytes and doubles. */
export const leastBytes = 1 << 20;
/** Kept for the next bodies, in bytes. */
const keptBytesMax = 64 << 20;

/**
 * Memory of large bodies, used again. What the collector has to free counts against a limit of V8's, beyond which it marks the
 * whole heap: two bodies of 10 MB would do.
 */
export class LargeMemory {
  readonly #kept: ArrayBuffer[][] = [];
  #keptBytes = 0;

  /** `bytes`: a power of two, at least `leastBytes`. What earlier bodies have left in it stands there still. */
  take(bytes: number): ArrayBuffer {
    const memory = this.#kept[Math.log2(bytes)]?.pop();
    if (memory === undefined) return new ArrayBuffer(bytes);
    this.#keptBytes -= bytes;
    return memory;
  }

  /** Nobody reads or writes it any more. Other memory than `take` gives is left to the collector. */
  give(memory: ArrayBufferLike): void {
    const bytes = memory.byteLength;
    const isOurs = memory instanceof ArrayBuffer && bytes >= leastBytes && Number.isInteger(Math.log2(bytes));
    if (!isOurs || this.#keptBytes + bytes > keptBytesMax) return;
    (this.#kept[Math.log2(bytes)] ??= []).push(memory);
    this.#keptBytes += bytes;
  }
}

/** A body as it comes: small ones in pieces until they are whole, larger ones copied at once, so that no piece grows old. */
export class Gathered {
  bytes = 0;
  readonly #large: LargeMemory;
  #pieces: Buffer[] = [];
  #memory: ArrayBuffer | null = null;

  constructor(large: LargeMemory) {
    this.#large = large;
  }

  add(piece: Buffer): void {
    const end = this.bytes + piece.length;
    if (this.#memory === null && end <= leastBytes / 2) this.#pieces.push(piece);
    else piece.copy(this.#reach(end), this.bytes);
    this.bytes = end;
  }

  whole(): Buffer {
    if (this.#memory !== null) return Buffer.from(this.#memory, 0, this.bytes);
    return this.#pieces.length === 1 ? this.#pieces[0]! : Buffer.concat(this.#pieces);
  }

  /** It is not wanted any more. */
  drop(): void {
    if (this.#memory !== null) this.#large.give(this.#memory);
    this.#memory = null;
    this.#pieces = [];
  }

  /** Room for `bytes`, the first of them as they are. */
  #reach(bytes: number): Buffer {
    const before = this.#memory;
    if (before !== null && bytes <= before.byteLength) return Buffer.from(before);
    let size = leastBytes;
    while (size < bytes) size *= 2;
    const memory = Buffer.from((this.#memory = this.#large.take(size)));
    if (before !== null) {
      memory.set(new Uint8Array(before, 0, this.bytes));
      this.#large.give(before);
    }
    let at = 0;
    for (const piece of this.#pieces) at += piece.copy(memory, at);
    this.#pieces = [];
    return memory;
  }
}
