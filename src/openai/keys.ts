import { createHmac, hash } from 'node:crypto';
import { routerLimits } from '../router/index.js';
import { plainScope, type CanonicalPrompt } from './canonical.js';

export interface PromptKeyOptions {
  /** Tokens of a block. */
  readonly blockTokens: number;
  /** Bytes of text that count as a token. */
  readonly bytesPerToken: number;
  /** Without it nobody can compute a key. Routers side by side share it. */
  readonly secret: Uint8Array;
}

/** A prompt as `Router.submit` takes it. */
export interface KeyedPrompt {
  /** Two u32 a block; each stands for its block and all before it. */
  readonly keys: Uint32Array;
  readonly blocks: number;
  readonly promptTokens: number;
  /** Token ids of no tenant, adapter or salt: instances' own reports of their blocks come to the same keys. */
  readonly reportable?: boolean;
}

const digestBytes = 32;
/** Scopes whose beginning of the chain is kept. */
const seedsMax = 1024;

/**
 * Block keys of prompts: a chain of SHA-256 that begins with a secret, the tenant and the prompt's scope, cut to 64 bits
 * a block. So prompts of two tenants neither share a key nor can be made to.
 */
export class PromptKeys {
  readonly #options: PromptKeyOptions;
  /** The state of the chain, then the block. */
  readonly #scratch: Buffer;
  readonly #seeds = new Map<string, Buffer>();
  readonly #blockBytes: number;
  readonly #idBlockBytes: number;

  constructor(options: PromptKeyOptions) {
    this.#options = options;
    this.#blockBytes = options.blockTokens * options.bytesPerToken;
    this.#idBlockBytes = options.blockTokens * 4;
    this.#scratch = Buffer.alloc(digestBytes + Math.max(this.#blockBytes, this.#idBlockBytes));
  }

  keysOf(prompt: CanonicalPrompt, tenant: string): KeyedPrompt {
    const { content, scope, extraTextBytes, extraTokens } = prompt;
    const { bytesPerToken, secret } = this.#options;
    const isText = typeof content === 'string';
    const bytes = isText
      ? Buffer.from(content, 'utf8')
      : Buffer.from(content.buffer, content.byteOffset, content.byteLength);
    const kind = isText ? 'text' : 'ids';
    this.#seed(JSON.stringify([kind, tenant, scope]), secret).copy(this.#scratch);
    const keys = this.#chain(bytes, isText ? this.#blockBytes : this.#idBlockBytes);
    const tokens = isText ? Math.ceil((bytes.length + extraTextBytes) / bytesPerToken) : content.length;
    const reportable = !isText && tenant === '' && scope === plainScope(prompt.model);
    return { keys, blocks: keys.length / 2, promptTokens: Math.max(1, tokens + extraTokens), reportable };
  }

  /** The state of the chain before the first block of a reportable prompt, as a binary string. */
  beginning(model: string): string {
    return this.#seed(JSON.stringify(['ids', '', plainScope(model)]), this.#options.secret).toString(
      'latin1',
    );
  }

  /** The state after a block more of ids, in parts; its first eight bytes are the block's key, low word first. */
  next(state: string, parts: readonly Uint32Array[]): string {
    const scratch = this.#scratch;
    scratch.write(state, 'latin1');
    let at = digestBytes;
    for (const { buffer, byteOffset, byteLength } of parts) {
      scratch.set(new Uint8Array(buffer, byteOffset, byteLength), at);
      at += byteLength;
    }
    return hash('sha256', scratch.subarray(0, at), 'binary');
  }

  /** Most prompts have the scope of others. */
  #seed(scope: string, secret: Uint8Array): Buffer {
    let seed = this.#seeds.get(scope);
    if (seed !== undefined) return seed;
    if (this.#seeds.size >= seedsMax) this.#seeds.clear();
    seed = createHmac('sha256', secret).update(scope).digest();
    this.#seeds.set(scope, seed);
    return seed;
  }

  #chain(bytes: Buffer, blockBytes: number): Uint32Array {
    const blocks = Math.min(Math.floor(bytes.length / blockBytes), routerLimits.blocksPerRequest);
    const keys = new Uint32Array(2 * blocks);
    const scratch = this.#scratch;
    const input = scratch.subarray(0, digestBytes + blockBytes);
    for (let block = 0; block < blocks; block++) {
      bytes.copy(scratch, digestBytes, block * blockBytes, (block + 1) * blockBytes);
      // As a string: each Buffer would have memory of its own, for the collector to look after.
      scratch.write(hash('sha256', input, 'binary'), 'latin1');
      keys[2 * block] = scratch.readUInt32LE(0);
      keys[2 * block + 1] = scratch.readUInt32LE(4);
    }
    return keys;
  }
}
