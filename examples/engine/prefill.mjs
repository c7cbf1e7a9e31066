/** The prefill engine's compute: forward batches, layer by layer, over the KV that the data plane brings. */

/** A layer's KV as floats, in place. */
export const floats = (bytes) => new Float32Array(bytes.buffer, bytes.byteOffset, bytes.byteLength / 4);

/**
 * Computes every batch of the engine until it is closed.
 * @param hooks.emit(request, first, tokens) the first token of a request is known
 * @param hooks.recorder what was computed, for whoever compares; hooks.attempt(request) which attempt at it this is
 * @param hooks.watch(batch) hears of a batch before its first layer
 */
export async function runPrefill(engine, model, hooks) {
  for await (const batch of engine.batches()) {
    try {
      await computeBatch(batch, model, hooks);
    } catch (error) {
      // A batch that was given up (a peer was lost) is tried again by the engine.
      if (!batch.givenUp) throw error;
    }
  }
}

async function computeBatch(batch, model, { emit, recorder, attempt, watch }) {
  const observed = watch?.(batch);
  const forwards = [];
  for (const { request, cachedTokens, newTokens } of batch.entries) {
    const tokens = request.tokens.subarray(cachedTokens, cachedTokens + newTokens);
    forwards.push(await model.begin(tokens, cachedTokens));
  }
  for (const layer of batch.layers()) {
    await layer.ready(); // the layer's hit KV has arrived, and there is room for what is computed
    observed?.begin(layer.layer);
    for (const [i, entry] of batch.entries.entries()) {
      await model.layer(forwards[i], layer.layer, floats(batch.rows(entry, layer.layer)));
    }
    observed?.end(layer.layer);
    layer.done(); // from here on it is on its way to the decode engine, while the next is computed
  }
  for (const [i, entry] of batch.entries.entries()) {
    const { request, cachedTokens, newTokens, last } = entry;
    recorder?.chunk(request.name, attempt(request.name), cachedTokens, newTokens);
    if (!last) continue; // the rest of a prompt that one forward could not take
    const next = await model.next(forwards[i]);
    recorder?.prompt(request.name, attempt(request.name), request.tokens);
    recorder?.token(request.name, attempt(request.name), 0, next);
    emit(request.name, 0, [next.token]);
    batch.sampled(entry, Uint32Array.of(next.token));
  }
}
