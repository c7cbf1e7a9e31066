import { PrefixIndex } from '../router/index.js';
import type { KeyedPrompt } from '../openai/index.js';

export interface EngineOptions {
  readonly blockTokens: number;
  readonly cacheTokens: number;
  readonly prefillSPerToken: number;
  /** Between two tokens of a sequence. */
  readonly tokenMs: number;
}

export interface JobEvents {
  /** A token has been computed; the first one is the prefill's. */
  token(index: number): void;
  end(): void;
}

/** A request in the engine, from submit to its end or its cancellation. */
export interface Job {
  readonly promptTokens: number;
  readonly outputTokens: number;
  /** Of the prompt, when its prefill began. */
  cachedTokens: number;
  done: number;
  over: boolean;
}

/** Tokens of a prefill step (chunked prefill). */
const stepTokens = 2048;

interface Entry extends Job {
  readonly keyed: KeyedPrompt;
  readonly events: JobEvents;
}

/**
 * An emulated engine in real time: an LRU cache of prefixes, one prefill at a time, first come first served, a fixed time
 * for each uncached token; what is prefilled decodes together, a token each in a fixed time. Nothing is computed.
 */
export class EmulatedEngine {
  readonly options: EngineOptions;
  readonly #cache: PrefixIndex;
  readonly #waiting: Entry[] = [];
  readonly #decoding = new Set<Entry>();
  #running: Entry | null = null;
  #timer: NodeJS.Timeout | undefined;
  #stepTimer: NodeJS.Timeout | undefined;
  /** Times everything takes. */
  #slowBy = 1;
  #hangs = false;
  promptTokens = 0;
  cachedTokens = 0;
  generatedTokens = 0;
  finished = 0;
  /** Steps of prefills and of decoding. */
  steps = 0;

  constructor(options: EngineOptions) {
    this.options = options;
    this.#cache = new PrefixIndex(Math.max(1, Math.floor(options.cacheTokens / options.blockTokens)));
  }

  get runningRequests(): number {
    return this.#decoding.size + (this.#running === null ? 0 : 1);
  }

  get waitingRequests(): number {
    return this.#waiting.length;
  }

  get cacheUsage(): number {
    return this.#cache.size / this.#cache.capacityBlocks;
  }

  submit(keyed: KeyedPrompt, outputTokens: number, events: JobEvents): Job {
    const entry: Entry = {
      keyed,
      events,
      promptTokens: keyed.promptTokens,
      outputTokens,
      cachedTokens: 0,
      done: 0,
      over: false,
    };
    this.#waiting.push(entry);
    this.#start();
    return entry;
  }

  cancel(job: Job): void {
    const entry = job as Entry;
    if (entry.over) return;
    entry.over = true;
    this.#decoding.delete(entry);
    const at = this.#waiting.indexOf(entry);
    if (at >= 0) this.#waiting.splice(at, 1);
    if (this.#running === entry) {
      clearTimeout(this.#timer);
      this.#running = null;
      this.#start();
    }
  }

  /** While it hangs nothing moves, and afterwards everything goes on. */
  setFault(slowBy: number, hangs: boolean): void {
    this.#slowBy = slowBy;
    this.#hangs = hangs;
    if (hangs) {
      clearTimeout(this.#timer);
      clearTimeout(this.#stepTimer);
      this.#stepTimer = undefined;
    } else {
      if (this.#running !== null) this.#prefill(this.#running);
      this.#start();
      this.#step();
    }
  }

  close(): void {
    clearTimeout(this.#timer);
    clearTimeout(this.#stepTimer);
  }

  #start(): void {
    if (this.#running !== null || this.#hangs) return;
    const entry = this.#waiting.shift();
    if (entry === undefined) return;
    this.#running = entry;
    this.#prefill(entry);
  }

  #prefill(entry: Entry): void {
    const { blockTokens, prefillSPerToken } = this.options;
    const { keys, blocks, promptTokens } = entry.keyed;
    // The last token of a prompt is always computed.
    const blocksMax = Math.min(blocks, Math.floor((promptTokens - 1) / blockTokens));
    entry.cachedTokens = this.#cache.match(keys, 0, blocksMax) * blockTokens;
    this.#prefillStep(entry, promptTokens - entry.cachedTokens, 1000 * prefillSPerToken);
  }

  #prefillStep(entry: Entry, leftTokens: number, msPerToken: number): void {
    const tokens = Math.min(stepTokens, leftTokens);
    clearTimeout(this.#timer);
    this.#timer = setTimeout(
      () => {
        this.steps++;
        if (tokens < leftTokens) this.#prefillStep(entry, leftTokens - tokens, msPerToken);
        else this.#prefilled(entry);
      },
      tokens * msPerToken * this.#slowBy,
    );
  }

  #prefilled(entry: Entry): void {
    const { keys, blocks } = entry.keyed;
    this.#cache.touch(keys, 0, blocks);
    this.#running = null;
    this.promptTokens += entry.promptTokens;
    this.cachedTokens += entry.cachedTokens;
    this.#decoding.add(entry);
    this.#emit(entry);
    this.#start();
    this.#step();
  }

  #step(): void {
    if (this.#stepTimer !== undefined || this.#decoding.size === 0 || this.#hangs) return;
    this.#stepTimer = setTimeout(() => {
      this.#stepTimer = undefined;
      this.steps++;
      for (const entry of [...this.#decoding]) this.#emit(entry);
      this.#step();
    }, this.options.tokenMs * this.#slowBy);
  }

  #emit(entry: Entry): void {
    if (entry.over) return;
    if (entry.done < entry.outputTokens) {
      this.generatedTokens++;
      entry.events.token(entry.done++);
    }
    // The listener may have cancelled it.
    if (entry.done < entry.outputTokens || !this.#decoding.has(entry)) return;
    this.#decoding.delete(entry);
    entry.over = true;
    this.finished++;
    entry.events.end();
  }
}
