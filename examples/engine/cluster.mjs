/** A prefill and a decode engine in one process, with the scheduler between them. */
import {
  BlockStore,
  blockLayout,
  DecodeEngine,
  LinearTimeModel,
  LocalControl,
  LocalScheduler,
  PrefillEngine,
  TrafficManager,
} from 'dualpath';
import { runDecode } from './decode.mjs';
import { runPrefill } from './prefill.mjs';

/** How much memory each side has, in tokens of context, all requests together. */
export const defaults = { contextTokens: 8192, windowLayers: 4, path: 'split', layerwise: true };

/** Who reads hits from storage: a policy of the scheduler; a prefill engine without room for them leaves them to the other side. */
export const paths = {
  'prefill-read': { policy: 'prefill' },
  'decode-read': { policy: 'shorter-queue', prefillBufferBlocks: 1 },
  split: { policy: 'split' },
};

/** Predicts forwards by counting what they compute; the rates are those measured on one core of a server (AVX-512). */
export function timeModel({ layers, hidden, heads, headDim, feedForward }) {
  const matrices = layers * (4 * hidden * hidden + 3 * hidden * feedForward);
  return new LinearTimeModel({
    baseS: 0.002,
    perNewTokenS: (2 * matrices) / 100e9,
    perAttentionTokenS: 0,
    perAttentionPairS: (4 * layers * heads * headDim) / 70e9,
  });
}

/** The options that both engines have, whatever process they are in. */
export function engineOptions(role, model, layout, { contextTokens, windowLayers, layerwise }) {
  const blocks = layout.blocksFor(contextTokens);
  const common = { contiguous: true }; // onnxruntime knows no page tables: KV lies together
  return role === 'decode'
    ? { ...common, hbmBlocks: blocks }
    : {
        ...{ ...common, stagingBlocks: blocks, windowLayers, layerwise },
        ...{ timeModel: timeModel(model.shape), quotaS: 0.3 }, // the paper's compute quota
      };
}

/** Full Blocks in host memory of one side. */
export const bufferBlocksOf = (role, layout, { contextTokens, path }) =>
  (role === 'prefill' ? paths[path].prefillBufferBlocks : undefined) ?? layout.blocksFor(contextTokens);

export const capacityOf = (role, engine, layout, { contextTokens, path }) => ({
  ...{ engine, role, node: `${engine}-node`, group: engine, readRateBytesPerS: 1e9 },
  bufferBlocks: bufferBlocksOf(role, layout, { contextTokens, path }),
  hbmBlocks: role === 'decode' ? layout.blocksFor(contextTokens) : 0,
});

export const schedulerOptions = (store, path) => ({
  ...{
    policy: paths[path].policy,
    blockTokens: store.layout.blockTokens,
    blockBytes: store.file.fileBytes,
  },
  ...{ decodeSpareBlocks: 2, maxWaiting: 1000, seed: 1 },
});

/** Tokens of a request on their way to whoever waits for them. */
export class TokenStream {
  #items = [];
  #wake = () => {};
  #over = false;
  ended = new Promise((resolve, reject) => Object.assign(this, { resolve, reject }));

  constructor() {
    this.ended.then(
      () => this.#end(),
      () => this.#end(),
    );
  }

  push(first, tokens) {
    this.#items.push({ first, tokens });
    this.#wake();
  }

  #end() {
    this.#over = true;
    this.#wake();
  }

  async *[Symbol.asyncIterator]() {
    for (;;) {
      while (this.#items.length > 0) yield this.#items.shift();
      if (this.#over) return void (await this.ended);
      await new Promise((resolve) => (this.#wake = resolve));
    }
  }
}

/** The names under which engines of one process are found; each cluster has its own. */
let clusters = 0;

export class LocalCluster {
  #requests = new Map();
  #loops;
  #count = 0;

  /** @param options storePath, blockTokens, and what `defaults` has; links: emulated rates for TrafficManager; onStage: see #watched */
  constructor(model, endToken, options) {
    const { storePath, blockTokens, links, recorder, watch, onStage, runtime } = options;
    const all = { ...defaults, ...options };
    const layout = blockLayout(model.description, { blockTokens });
    const network = `engine-example-${++clusters}`;
    this.store = BlockStore.open({ path: storePath, layout });
    const engines = ['prefill', 'decode'].map((role) => capacityOf(role, role, layout, all));
    this.scheduler = new LocalScheduler({ engines, ...schedulerOptions(this.store, all.path) }, (failure) => {
      for (const engine of [this.prefill, this.decode]) engine.cancel(failure.request, failure.error);
      this.#requests.get(failure.request)?.stream.reject(failure.error);
    });
    const control = new LocalControl();
    const common = (name) => ({
      traffic: new TrafficManager({
        ...{ name, network, layout, store: this.store, bufferBlocks: bufferBlocksOf(name, layout, all) },
        ...(links === undefined ? {} : { links: links(name) }),
        ...(runtime === undefined ? {} : { runtime }),
      }),
      ...{ scheduler: this.#watched(onStage), group: name, control, prompts: this.#prompts },
      ...engineOptions(name, model, layout, all),
    });
    this.prefill = new PrefillEngine(common('prefill'));
    this.decode = new DecodeEngine(common('decode'));
    const hooks = {
      ...{ recorder, watch, attempt: () => 0 },
      emit: (request, first, tokens) => this.#requests.get(request)?.stream.push(first, tokens),
      ended: (request, result) => this.#requests.get(request)?.stream.resolve(result),
      failed: (request, error) => this.#requests.get(request)?.stream.reject(error),
    };
    this.#loops = [runPrefill(this.prefill, model, hooks), runDecode(this.decode, model, endToken, hooks)];
  }

  /** The scheduler; `onStage(request, stage)` hears when a request is given to engines, and when its hits have been read. */
  #watched(onStage) {
    const { scheduler } = this;
    if (onStage === undefined) return scheduler;
    return {
      fetch: async (...args) => {
        const assigned = await scheduler.fetch(...args);
        for (const { request } of assigned) onStage(request, 'assigned');
        return assigned;
      },
      complete: (request, stage, admission) => {
        onStage(request, stage);
        scheduler.complete(request, stage, admission);
      },
      fail: (request, error, admission) => scheduler.fail(request, error, admission),
    };
  }

  /** Engines ask here for the tokens of a request that they have been assigned. */
  #prompts = {
    prompt: (request) => this.#requests.get(request).prompt,
    maxNewTokens: (request) => this.#requests.get(request).maxNewTokens,
    limits: (request) => ({ signal: this.#requests.get(request)?.signal }),
  };

  /** @returns the request's name, how much of it is stored, and its tokens as they come */
  async submit({ prompt, maxNewTokens, signal }) {
    const request = `request-${++this.#count}`;
    const stream = new TokenStream();
    this.#requests.set(request, { prompt, maxNewTokens, signal, stream });
    stream.ended.catch(() => {}).finally(() => this.#requests.delete(request));
    try {
      const chain = await this.prefill.traffic.lookup(prompt);
      const { hitTokens } = chain;
      chain.release();
      const description = { request, promptTokens: prompt.length, hitTokens, maxNewTokens };
      await this.scheduler.submit(description);
      return { request, hitTokens, stream };
    } catch (error) {
      stream.reject(error);
      throw error;
    }
  }

  async close() {
    this.scheduler.close();
    await Promise.all([this.prefill.close(), this.decode.close()]);
    await Promise.all(this.#loops);
  }
}
