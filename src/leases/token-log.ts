const none = new Uint32Array();

/** The tokens that a request has generated, in order, each once. */
export class TokenLog {
  #tokens = none;
  count = 0;

  /** Takes what is new of tokens that begin at `first`; undefined if some before them are missing. */
  append(first: number, tokens: Uint32Array): Uint32Array | undefined {
    if (first > this.count) return undefined;
    const fresh = tokens.subarray(this.count - first);
    if (fresh.length === 0) return none;
    if (this.count + fresh.length > this.#tokens.length) {
      const larger = new Uint32Array(Math.max(16, 2 * this.#tokens.length, this.count + fresh.length));
      larger.set(this.#tokens.subarray(0, this.count));
      this.#tokens = larger;
    }
    this.#tokens.set(fresh, this.count);
    this.count += fresh.length;
    return fresh;
  }

  from(first: number): Uint32Array {
    return first >= this.count ? none : this.#tokens.slice(first, this.count);
  }
}
