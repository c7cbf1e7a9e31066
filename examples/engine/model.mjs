/** A Llama-type model on onnxruntime, layer by layer, over KV memory that belongs to somebody else. */
import { InferenceSession, Tensor } from 'onnxruntime-node';
import { embeddingGraph, headGraph, layerGraph } from './graphs.mjs';

/** A session a layer: none may keep memory of its own, nor threads that spin while others compute. */
const sessionOptions = {
  ...{ executionProviders: ['cpu'], graphOptimizationLevel: 'all', logSeverityLevel: 3 },
  ...{ enableCpuMemArena: false, enableMemPattern: false },
  extra: { session: { intra_op: { allow_spinning: '0' } } },
};
const empty = new Float32Array(0);

export class LlamaModel {
  #embedding;
  #layers = [];
  #head;

  /** @param threads of matrix products; the result does not depend on it, rounding may */
  static async open(weights, { threads = 1 } = {}) {
    const model = new LlamaModel();
    const options = { ...sessionOptions, intraOpNumThreads: threads };
    const session = (graph) => InferenceSession.create(graph, options);
    const { shape } = weights;
    model.name = weights.name;
    model.revision = weights.revision;
    model.shape = shape;
    model.rowFloats = 2 * shape.kvHeads * shape.headDim;
    model.#embedding = await session(embeddingGraph(weights));
    for (let layer = 0; layer < shape.layers; layer++) {
      model.#layers.push(await session(layerGraph(weights, layer)));
    }
    model.#head = await session(headGraph(weights));
    weights.close();
    return model;
  }

  /** What the data plane must know: one plane of K and V rows, which lie together for each token. */
  get description() {
    const { layers } = this.shape;
    return {
      ...{ name: this.name, revision: this.revision, dtype: 'float32', layers },
      groups: [
        {
          ...{ name: 'attention', windowTokens: 0, sharding: 'replicated' },
          layers: Array.from({ length: layers }, (_, layer) => layer),
          planes: [{ name: 'kv', bytesPerToken: 4 * this.rowFloats }],
        },
      ],
    };
  }

  /** A forward pass of tokens whose first has position `start`, to be taken layer by layer. */
  async begin(tokens, start) {
    const { hidden } = this.shape;
    const ids = new Tensor('int64', BigInt64Array.from(tokens, BigInt), [tokens.length]);
    const at = new Tensor('int64', BigInt64Array.of(BigInt(start)), [1]);
    const { hidden: states, cos, sin, mask } = await this.#embedding.run({ tokens: ids, start: at });
    // Layers take turns between two buffers of hidden states.
    const spare = new Tensor('float32', new Float32Array(states.data.length), [tokens.length, hidden]);
    return { start, count: tokens.length, states, spare, cos, sin, mask };
  }

  /**
   * Computes one layer. `kv` is the sequence's KV of this layer, [start + count, row] floats: attention reads what is
   * before `start`, onnxruntime writes the new rows behind it. Nothing is copied here.
   */
  async layer(forward, layer, kv) {
    const { start, count, states, spare, cos, sin, mask } = forward;
    const row = this.rowFloats;
    const past = new Tensor('float32', start === 0 ? empty : kv.subarray(0, start * row), [start, row]);
    const fresh = new Tensor('float32', kv.subarray(start * row, (start + count) * row), [count, row]);
    await this.#layers[layer].run(
      { hidden: states, cos, sin, mask, past_kv: past },
      { hidden_out: spare, new_kv: fresh },
    );
    [forward.states, forward.spare] = [spare, states];
  }

  /** The most likely next token, by how much it leads, and all logits. */
  async next(forward) {
    const { logits, top_logits, top_tokens } = await this.#head.run({ hidden: forward.states });
    const [first, second] = top_logits.data;
    return { token: Number(top_tokens.data[0]), margin: first - second, logits: logits.data };
  }

  async close() {
    await Promise.all([this.#embedding, ...this.#layers, this.#head].map((session) => session.release()));
  }
}
