#!/usr/bin/env node
/**
 * The model against an independent runtime: greedy tokens of llama.cpp (node-llama-cpp 3.21.1) from the same weights and the same
 * prompts. Over 4-bit weights llama.cpp quantises activations, too; so it is given the same values as floats, in a GGUF file made for it.
 *
 *   npm install --no-save --ignore-scripts node-llama-cpp@3.21.1   (in examples/engine; 730 MB installed)
 *   node examples/engine/independent.mjs [FILE.gguf]
 */
import { closeSync, mkdtempSync, openSync, readSync, rmSync, writeSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { openGguf } from './gguf.mjs';
import { fetchWeights, installPackages } from './install.mjs';

installPackages();
const { getLlama } = await import('node-llama-cpp');
const { LlamaModel } = await import('./model.mjs');
const { ggufWeights } = await import('./weights.mjs');
const { ChatTokenizer } = await import('./tokenizer.mjs');

const path = process.argv[2] ?? fetchWeights();
const count = 32;
/** More than this between any two logits is not rounding: some 500 units in the last place of a logit of 20. */
const mostDifference = 1e-3;

const questions = [
  'What is the capital of France?',
  'List three prime numbers.',
  'Write one sentence about the sea.',
];

/** The same model with every tensor as F32: the metadata as it is, then tensors one after the other. */
function writeFloats(from, to) {
  const file = openGguf(from);
  const head = Buffer.alloc(file.metadataEnd);
  const source = openSync(from, 'r');
  readSync(source, head, 0, head.length, 0);
  closeSync(source);
  const infos = [];
  let offset = 0;
  for (const name of file.names) {
    const { dims } = file.tensor(name);
    const info = Buffer.alloc(8 + Buffer.byteLength(name) + 4 + 8 * dims.length + 12);
    let at = info.writeBigUInt64LE(BigInt(Buffer.byteLength(name)), 0);
    at += info.write(name, at);
    at = info.writeUInt32LE(dims.length, at);
    for (const dim of dims) at = info.writeBigUInt64LE(BigInt(dim), at);
    at = info.writeUInt32LE(0, at);
    info.writeBigUInt64LE(BigInt(offset), at);
    infos.push(info);
    offset += Math.ceil((4 * dims.reduce((product, dim) => product * dim, 1)) / 32) * 32;
  }
  const before = Buffer.concat([head, ...infos]);
  const out = openSync(to, 'w');
  writeSync(out, Buffer.concat([before, Buffer.alloc((32 - (before.length % 32)) % 32)]));
  for (const name of file.names) {
    const { data } = file.tensor(name);
    const bytes = Buffer.alloc(Math.ceil(data.byteLength / 32) * 32);
    bytes.set(new Uint8Array(data.buffer));
    writeSync(out, bytes);
  }
  closeSync(out);
  file.close();
}

const scratch = mkdtempSync(join(tmpdir(), 'dualpath-independent-'));
const floatsPath = join(scratch, 'floats.gguf');
writeFloats(path, floatsPath);
const weights = ggufWeights(path);
const tokenizer = new ChatTokenizer(weights.metadata);
const model = await LlamaModel.open(weights);
const llama = await getLlama({ gpu: false, build: 'never', logLevel: 'error' });
const other = await llama.loadModel({ modelPath: floatsPath });

/** Greedy tokens with their logits. */
async function ours(prompt) {
  const kv = Array.from(
    { length: model.shape.layers },
    () => new Float32Array((prompt.length + count) * model.rowFloats),
  );
  const steps = [];
  let [tokens, start] = [prompt, 0];
  while (steps.length < count) {
    const forward = await model.begin(tokens, start);
    for (const [layer, rows] of kv.entries()) await model.layer(forward, layer, rows);
    const next = await model.next(forward);
    steps.push(next);
    if (next.token === tokenizer.endToken) break;
    start += tokens.length;
    tokens = [next.token];
  }
  return steps;
}

/** Tokens with the logarithms of all probabilities: logits but for a constant. */
async function theirs(prompt) {
  // Its flash attention computes with 16-bit floats: logits would differ by 0.05.
  const context = await other.createContext({
    ...{ contextSize: 1024, threads: 1, flashAttention: false },
    ...{ experimentalKvCacheKeyType: 'F32', experimentalKvCacheValueType: 'F32' },
  });
  const steps = [];
  const evaluation = context
    .getSequence()
    .evaluateWithMetadata([...prompt], { probabilities: true }, { temperature: 0 });
  for await (const { token, probabilities } of evaluation) {
    const logits = new Float32Array(model.shape.vocab);
    for (const [id, probability] of probabilities) logits[id] = Math.log(probability);
    steps.push({ token, logits });
    if (steps.length === count || token === tokenizer.endToken) break;
  }
  await context.dispose();
  return steps;
}

/** By how much two logits can come closer or move apart from one runtime to the other: a constant for all of them means nothing. */
function spread(a, b) {
  let [least, most] = [Infinity, -Infinity];
  for (let i = 0; i < a.length; i++) {
    least = Math.min(least, a[i] - b[i]);
    most = Math.max(most, a[i] - b[i]);
  }
  return most - least;
}
const results = [];
for (const question of questions) {
  const prompt = tokenizer.prompt([{ role: 'user', content: question }]);
  const [mine, other] = [await ours(prompt), await theirs(prompt)];
  // llama.cpp does not give the token that ends a reply: it ends.
  const next = mine[other.length]?.token ?? tokenizer.endToken;
  const atEnd = next === tokenizer.endToken ? -1 : other.length;
  const found = other.findIndex(({ token }, i) => token !== mine[i]?.token);
  const differing = found < 0 ? atEnd : found;
  const same = differing < 0 ? other.length : differing;
  results.push({
    ...{ question, tokens: other.length, identical: differing < 0 },
    // Measured where both chose the same token: at the first differing step it exceeds the margin of necessity.
    logit_difference: Math.max(
      ...mine.slice(0, same).map(({ logits }, i) => spread(logits, other[i].logits)),
    ),
    ...(differing < 0 ? {} : { first_difference: differing, margin_there: mine[differing]?.margin }),
    smallest_margin: Math.min(...mine.map(({ margin }) => margin)),
    reply: tokenizer.decode(other.map(({ token }) => token).filter((token) => token !== tokenizer.endToken)),
  });
}
console.log(JSON.stringify({ runtime: 'llama.cpp (node-llama-cpp 3.21.1)', prompts: results }, null, 2));
const rounding = Math.max(...results.map(({ logit_difference }) => logit_difference));
const fine = ({ identical, margin_there }) => identical || margin_there < rounding;
if (rounding > mostDifference || !results.every(fine)) process.exitCode = 1;
rmSync(scratch, { recursive: true });
process.exit();
