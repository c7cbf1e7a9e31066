/** What can be said before a replay starts, so that it does not fail half-way. */
import { existsSync, statfsSync } from 'node:fs';
import { dirname } from 'node:path';
import { DualPathError } from '../errors/index.js';
import { slotBytes } from '../memory/index.js';
import type { Workload } from '../trace/index.js';
import { modePlans, type ClusterOptions, type ReplayMode } from './options.js';

const headerBytes = 4096;

/** Bytes of a stored block: header page, payload, padded to pages. */
export function storedBlockBytes({ layout }: ClusterOptions): number {
  return headerBytes + Math.ceil(layout.fullBlockBytes / headerBytes) * headerBytes;
}

/** Bytes that the store will hold at most: every session's last conversation. */
export function storeBytesNeeded(workload: Workload, options: ClusterOptions): number {
  const { layout } = options;
  let blocks = 0;
  for (const { turns } of workload.sessions) {
    let longest = 0;
    for (const { promptTokens, outputTokens } of turns)
      longest = Math.max(longest, promptTokens + outputTokens);
    // A prompt that was cut leaves its old blocks behind; appended ones are new in any case.
    const appended = turns.reduce(
      (sum, turn, i) => sum + Math.max(0, turn.promptTokens - (turns[i - 1]?.promptTokens ?? 0)),
      0,
    );
    blocks += layout.blocksFor(Math.max(longest, appended) + (turns.at(-1)?.outputTokens ?? 0));
  }
  return blocks * storedBlockBytes(options);
}

/** @throws REQUEST_TOO_LARGE when a prompt exceeds a buffer, NO_SPACE when the store will not fit its disk */
export function checkWorkload(
  workload: Workload,
  options: ClusterOptions,
  modes: readonly ReplayMode[],
): void {
  const { layout } = options;
  let longest = { session: '', turn: 0, tokens: 0 };
  for (const { id, turns } of workload.sessions) {
    turns.forEach(({ promptTokens, outputTokens }, turn) => {
      const tokens = promptTokens + outputTokens;
      if (tokens > longest.tokens) longest = { session: id, turn, tokens };
    });
  }
  const blocks = layout.blocksFor(longest.tokens);
  const layerwise = modes.every((mode) => modePlans[mode].layerwise);
  const window = layerwise ? options.windowLayers : layout.layers;
  const sizes = [
    ['--prefill-buffer', options.prefillBufferBytes, storedBlockBytes(options)],
    ['--decode-buffer', options.decodeBufferBytes, storedBlockBytes(options)],
    ['--prefill-hbm', options.prefillHbmBytes, slotBytes.staging(layout, window)],
    ['--decode-hbm', options.decodeHbmBytes, slotBytes.sequence(layout)],
  ] as const;
  for (const [option, bytes, blockBytes] of sizes) {
    const holds = Math.floor(bytes / blockBytes);
    if (holds > blocks) continue;
    throw new DualPathError(
      'REQUEST_TOO_LARGE',
      `session ${longest.session}, turn ${longest.turn} has ${longest.tokens} tokens, ${blocks} blocks; ` +
        `${option} ${bytes} holds ${holds} blocks of ${blockBytes} bytes: raise it to ` +
        `${(blocks + 1) * blockBytes}, or lower --scale or --max-context`,
      { tokens: longest.tokens, blocks, limit_blocks: holds, option },
    );
  }
  let directory = options.storePath;
  while (!existsSync(directory)) directory = dirname(directory);
  const { bavail, bsize } = statfsSync(directory);
  const needed = storeBytesNeeded(workload, options);
  if (needed > bavail * bsize) {
    throw new DualPathError(
      'NO_SPACE',
      `the replay would store ${needed} bytes, ${bavail * bsize} are free at ${directory}; ` +
        'choose another --store, or fewer --sessions or --turns, or a smaller --scale',
      { needed_bytes: needed, free_bytes: bavail * bsize, path: directory },
    );
  }
}
