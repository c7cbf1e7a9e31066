/** The decode engine's compute: one token after the other, greedily, over the merged KV of the whole prompt. */
import { floats } from './prefill.mjs';

/**
 * Decodes every sequence of the engine until it is closed; sequences take turns token by token.
 * @param hooks.emit(request, first, tokens) tokens that were generated after `first` others
 * @param hooks.ended(request, result) the sequence is over, its full blocks are stored, its memory is free
 */
export async function runDecode(engine, model, endToken, hooks) {
  const running = new Set();
  for await (const sequence of engine.sequences()) {
    const run = serve(sequence, model, endToken, hooks).finally(() => running.delete(run));
    running.add(run);
  }
  await Promise.all(running);
}

async function serve(sequence, model, endToken, hooks) {
  try {
    await generate(sequence, model, endToken, hooks);
  } catch (error) {
    if (!sequence.signal.aborted) hooks.failed?.(sequence.request, error);
  }
  const result = await sequence.finish();
  if (!sequence.signal.aborted) hooks.ended(sequence.request, result);
}

async function generate(sequence, model, endToken, { emit, recorder, attempt }) {
  const { request, maxNewTokens, signal } = sequence;
  const layers = Array.from({ length: model.shape.layers }, (_, layer) => floats(sequence.rows(layer)));
  let [token] = await sequence.sampled(); // the first token came with the prefill
  emit(request, 0, [token]);
  for (let count = 1; count < maxNewTokens && token !== endToken; count++) {
    signal.throwIfAborted();
    const forward = await model.begin([token], sequence.length);
    for (const [layer, kv] of layers.entries()) await model.layer(forward, layer, kv);
    // Its KV is in HBM, in every layer; a block that is now full is stored in the background.
    sequence.append(Uint32Array.of(token));
    const next = await model.next(forward);
    recorder?.token(request, attempt(request), count, next);
    ({ token } = next);
    emit(request, count, [token]);
  }
}
