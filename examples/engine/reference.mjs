/**
 * The reference: one process that keeps every sequence's KV in plain arrays, saves nothing and is never interrupted. It follows the chunk
 * boundaries of the run that it checks, because matrices of other shapes may round differently, and looks at every logit.
 */
import { closeSync, openSync, readSync } from 'node:fs';
import { join } from 'node:path';

export class Reference {
  #model;
  /** Everything computed so far: tokens, and for each layer their KV. The latest of equal prefixes is not preferred. */
  #sequences = [];

  constructor(model) {
    this.#model = model;
  }

  /** KV of the first `count` tokens, from whoever computed them: a live sequence is forked. */
  #fork(tokens, count, capacity, blockTokens) {
    const { shape, rowFloats } = this.#model;
    const kv = Array.from({ length: shape.layers }, () => new Float32Array(capacity * rowFloats));
    for (let at = 0; at < count; at += blockTokens) {
      const end = at + blockTokens;
      const owner = this.#owner(tokens, end, 1) ?? this.#owner(tokens, end, 0);
      if (owner === undefined)
        throw new Error(`no sequence has computed tokens ${at} to ${end}, which were a hit`);
      for (const [layer, rows] of owner.kv.entries()) {
        kv[layer].set(rows.subarray(at * rowFloats, end * rowFloats), at * rowFloats);
      }
    }
    return kv;
  }

  /** Who computed the first `end` tokens, and `beyond` more: the last token of a sequence has KV only if its engine was lost. */
  #owner(tokens, end, beyond) {
    return this.#sequences.find((one) => one.length >= end + beyond && sameStart(one.tokens, tokens, end));
  }

  async #forward(tokens, start, kv) {
    const forward = await this.#model.begin(tokens, start);
    for (const [layer, rows] of kv.entries()) await this.#model.layer(forward, layer, rows);
    return forward;
  }

  /**
   * One attempt at a request again. @param record what was computed (readRecords)
   * @returns the tokens, and how far logits differ
   */
  async follow({ prompt, chunks, tokens: recorded }, { blockTokens, directory }) {
    const capacity = prompt.length + recorded.length + 1;
    const kv = this.#fork(prompt, chunks[0].start, capacity, blockTokens);
    const result = { tokens: [], identical: true, logitDifference: 0, leastMargin: Infinity };
    const compare = (next) => {
      const line = recorded[result.tokens.length];
      result.tokens.push(next.token);
      result.identical &&= line.token === next.token;
      result.leastMargin = Math.min(result.leastMargin, next.margin);
      result.logitDifference = Math.max(
        result.logitDifference,
        difference(next.logits, line.logits, directory),
      );
      return next.token;
    };
    let forward;
    for (const { start, count } of chunks)
      forward = await this.#forward(prompt.subarray(start, start + count), start, kv);
    let token = compare(await this.#model.next(forward));
    const all = [...prompt];
    while (result.tokens.length < recorded.length) {
      forward = await this.#forward([token], all.length, kv);
      all.push(token);
      token = compare(await this.#model.next(forward));
    }
    // An engine that was lost may have had this token's KV, and stored it, before it could say what comes next.
    await this.#forward([token], all.length, kv);
    all.push(token);
    this.#sequences.push({ tokens: all, length: all.length, kv });
    return result;
  }
}

function sameStart(a, b, count) {
  for (let i = count - 1; i >= 0; i--) if (a[i] !== b[i]) return false;
  return true;
}

/** Between logits and those that were recorded, the largest. */
function difference(logits, { file, at, count }, directory) {
  const bytes = new Uint8Array(4 * count);
  const fd = openSync(join(directory, file), 'r');
  readSync(fd, bytes, 0, bytes.length, at);
  closeSync(fd);
  const recorded = new Float32Array(bytes.buffer);
  let most = 0;
  for (let i = 0; i < count; i++) most = Math.max(most, Math.abs(logits[i] - recorded[i]));
  return most;
}
