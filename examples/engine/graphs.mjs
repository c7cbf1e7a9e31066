/**
 * A Llama-type decoder as ONNX graphs: one for the embedding, one for each decoder layer, one for the head. A layer's KV is
 * token-major, [tokens, K row | V row]: what is cached goes in as it lies in the engine's memory, what is new comes out
 * as it is to lie there.
 */
import onnxProto from 'onnx-proto';

const { onnx } = onnxProto;
const { DataType } = onnx.TensorProto;
const { AttributeType } = onnx.AttributeProto;
/** The first opset with Attention, and the IR version that goes with it. */
const opset = 23;
const irVersion = 11;

const attributeOf = (name, value) => {
  if (Array.isArray(value)) return { name, type: AttributeType.INTS, ints: value };
  return { name, type: AttributeType.INT, i: value };
};

class GraphBuilder {
  #nodes = [];
  #initializers = [];
  #count = 0;

  /** Adds a node and returns its output's name, or the names of several. */
  op(opType, inputs, attributes = {}, outputs = 1) {
    const names = Array.isArray(outputs)
      ? outputs
      : Array.from({ length: outputs }, () => `v${this.#count++}`);
    this.#nodes.push({
      ...{ opType, name: `n${this.#nodes.length}`, input: inputs, output: names },
      attribute: Object.entries(attributes).map(([name, value]) => attributeOf(name, value)),
    });
    return names.length === 1 ? names[0] : names;
  }

  floats(dims, data) {
    return this.#constant(
      DataType.FLOAT,
      dims,
      new Uint8Array(data.buffer, data.byteOffset, data.byteLength),
    );
  }

  ints(values) {
    const data = BigInt64Array.from(values, BigInt);
    return this.#constant(DataType.INT64, [values.length], new Uint8Array(data.buffer));
  }

  #constant(dataType, dims, rawData) {
    const name = `c${this.#count++}`;
    this.#initializers.push({ name, dataType, dims, rawData });
    return name;
  }

  model(inputs, outputs) {
    const info = ([name, elemType, dims]) => ({
      name,
      type: {
        tensorType: {
          elemType,
          shape: { dim: dims.map((d) => (typeof d === 'string' ? { dimParam: d } : { dimValue: d })) },
        },
      },
    });
    const graph = {
      ...{ name: 'graph', node: this.#nodes, initializer: this.#initializers },
      ...{ input: inputs.map(info), output: outputs.map(info) },
    };
    return onnx.ModelProto.encode({
      irVersion,
      opsetImport: [{ domain: '', version: opset }],
      graph,
    }).finish();
  }

  /** x / sqrt(mean(x^2) + epsilon) * weight */
  rmsNorm(x, weight, epsilon) {
    const squares = this.op('Mul', [x, x]);
    const mean = this.op('ReduceMean', [squares, this.ints([-1])], { keepdims: 1 });
    const root = this.op('Sqrt', [this.op('Add', [mean, this.floats([1], Float32Array.of(epsilon))])]);
    return this.op('Mul', [this.op('Div', [x, root]), this.floats([weight.length], weight)]);
  }

  /** x times a matrix [out, in], as GGUF has it. */
  linear(x, out, data) {
    return this.op('Gemm', [x, this.floats([out, data.length / out], data)], { transB: 1 });
  }

  columns(x, from, to) {
    return this.op('Slice', [x, this.ints([from]), this.ints([to]), this.ints([-1])]);
  }

  reshape(x, dims) {
    return this.op('Reshape', [x, this.ints(dims)]);
  }

  /** Rotates neighbouring pairs, as GGUF's Llama models have their rows: [n, heads, pairs, 2]. */
  rope(x, heads, headDim, cos, sin) {
    const pairs = this.reshape(x, [-1, heads, headDim / 2, 2]);
    const [a, b] = [this.columns(pairs, 0, 1), this.columns(pairs, 1, 2)];
    const first = this.op('Sub', [this.op('Mul', [a, cos]), this.op('Mul', [b, sin])]);
    const second = this.op('Add', [this.op('Mul', [a, sin]), this.op('Mul', [b, cos])]);
    return this.reshape(this.op('Concat', [first, second], { axis: -1 }), [-1, heads * headDim]);
  }
}

/** Tokens at positions [start, start + n) to hidden states; what every layer needs of positions is made here once. */
export function embeddingGraph({ shape, tensor }) {
  const g = new GraphBuilder();
  const { hidden, headDim, vocab, ropeBase } = shape;
  const embedding = g.floats([vocab, hidden], tensor('token_embd.weight'));
  g.op('Gather', [embedding, 'tokens'], {}, ['hidden']);
  const zero = g.op('Sub', ['start', 'start']);
  const one = g.ints([1]);
  const n = g.op('Shape', ['tokens']);
  const scalar = (x) => g.op('Squeeze', [x]);
  const end = g.op('Add', ['start', n]);
  const positions = g.op('Range', [scalar('start'), scalar(end), scalar(one)]);
  const frequencies = Float32Array.from({ length: headDim / 2 }, (_, i) => ropeBase ** ((-2 * i) / headDim));
  const angles = g.op('Mul', [
    g.reshape(g.op('Cast', [positions], { to: DataType.FLOAT }), [-1, 1, 1, 1]),
    g.floats([1, 1, headDim / 2, 1], frequencies),
  ]);
  g.op('Cos', [angles], {}, ['cos']);
  g.op('Sin', [angles], {}, ['sin']);
  // A query sees keys up to its own position: 0 there, far below everything beyond.
  const keys = g.op('Range', [scalar(zero), scalar(end), scalar(one)]);
  const seen = g.op('LessOrEqual', [g.reshape(keys, [1, -1]), g.reshape(positions, [-1, 1])]);
  const [open, shut] = [0, -1e9].map((x) => g.floats([1], Float32Array.of(x)));
  g.op('Where', [seen, open, shut], {}, ['mask']);
  return g.model(
    [
      ['tokens', DataType.INT64, ['n']],
      ['start', DataType.INT64, [1]],
    ],
    [
      ['hidden', DataType.FLOAT, ['n', hidden]],
      ['cos', DataType.FLOAT, ['n', 1, headDim / 2, 1]],
      ['sin', DataType.FLOAT, ['n', 1, headDim / 2, 1]],
      ['mask', DataType.FLOAT, ['n', 'all']],
    ],
  );
}

/** Heads that share a KV head lie one after the other. @param all KV rows of every token that is seen */
function attention(g, { heads, kvHeads, headDim }, q, all) {
  const kvWidth = kvHeads * headDim;
  const batch = (x, width) => g.reshape(x, [1, -1, width]);
  const [k, v] = [0, kvWidth].map((from) => batch(g.columns(all, from, from + kvWidth), kvWidth));
  const attended = g.op('Attention', [batch(q, heads * headDim), k, v, 'mask'], {
    ...{ q_num_heads: heads, kv_num_heads: kvHeads },
  });
  return g.reshape(attended, [-1, heads * headDim]);
}

/** Joins matrices [out, in] that are applied to the same input: one product instead of several. */
function stacked(...matrices) {
  const data = new Float32Array(matrices.reduce((sum, { length }) => sum + length, 0));
  matrices.reduce((at, matrix) => (data.set(matrix, at), at + matrix.length), 0);
  return data;
}

export function layerGraph({ shape, tensor }, layer) {
  const g = new GraphBuilder();
  const { hidden, heads, kvHeads, headDim, feedForward, epsilon } = shape;
  const [width, kvWidth] = [heads * headDim, kvHeads * headDim];
  const weight = (name) => tensor(`blk.${layer}.${name}.weight`);
  const normed = g.rmsNorm('hidden', weight('attn_norm'), epsilon);
  const qkvWeight = stacked(weight('attn_q'), weight('attn_k'), weight('attn_v'));
  const qkv = g.linear(normed, width + 2 * kvWidth, qkvWeight);
  const q = g.rope(g.columns(qkv, 0, width), heads, headDim, 'cos', 'sin');
  const k = g.rope(g.columns(qkv, width, width + kvWidth), kvHeads, headDim, 'cos', 'sin');
  g.op('Concat', [k, g.columns(qkv, width + kvWidth, width + 2 * kvWidth)], { axis: -1 }, ['new_kv']);
  const all = g.op('Concat', ['past_kv', 'new_kv'], { axis: 0 });
  const attended = g.linear(attention(g, shape, q, all), hidden, weight('attn_output'));
  const middle = g.op('Add', ['hidden', attended]);
  const fedNormed = g.rmsNorm(middle, weight('ffn_norm'), epsilon);
  const gateUp = g.linear(fedNormed, 2 * feedForward, stacked(weight('ffn_gate'), weight('ffn_up')));
  const gate = g.columns(gateUp, 0, feedForward);
  const silu = g.op('Mul', [gate, g.op('Sigmoid', [gate])]);
  const fed = g.op('Mul', [silu, g.columns(gateUp, feedForward, 2 * feedForward)]);
  g.op('Add', [middle, g.linear(fed, hidden, weight('ffn_down'))], {}, ['hidden_out']);
  return g.model(
    [
      ['hidden', DataType.FLOAT, ['n', hidden]],
      ['cos', DataType.FLOAT, ['n', 1, headDim / 2, 1]],
      ['sin', DataType.FLOAT, ['n', 1, headDim / 2, 1]],
      ['mask', DataType.FLOAT, ['n', 'all']],
      ['past_kv', DataType.FLOAT, ['past', 2 * kvWidth]],
    ],
    [
      ['hidden_out', DataType.FLOAT, ['n', hidden]],
      ['new_kv', DataType.FLOAT, ['n', 2 * kvWidth]],
    ],
  );
}

/** The last token's hidden state to logits, and the two tokens that are most likely. */
export function headGraph({ shape, tensor, has }) {
  const g = new GraphBuilder();
  const { hidden, vocab, epsilon } = shape;
  const last = g.op('Gather', ['hidden', g.ints([-1])], { axis: 0 });
  const normed = g.rmsNorm(last, tensor('output_norm.weight'), epsilon);
  const output = has?.('output.weight') === true ? 'output.weight' : 'token_embd.weight';
  const logits = g.linear(normed, vocab, tensor(output));
  g.op('Reshape', [logits, g.ints([vocab])], {}, ['logits']);
  g.op('TopK', ['logits', g.ints([2])], { axis: 0 }, ['top_logits', 'top_tokens']);
  return g.model(
    [['hidden', DataType.FLOAT, ['n', hidden]]],
    [
      ['logits', DataType.FLOAT, [vocab]],
      ['top_logits', DataType.FLOAT, [2]],
      ['top_tokens', DataType.INT64, [2]],
    ],
  );
}
