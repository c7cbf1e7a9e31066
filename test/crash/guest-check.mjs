/**
 * Runs in a guest after the crash: node guest-check.mjs JSON {path, seed, acknowledged: [[n, blocks], ...], upTo}.
 * Writes what it found as one line of JSON.
 */
import { Survivor } from './survivor.mjs';

const { path, seed, acknowledged, upTo } = JSON.parse(process.argv[2]);
const blocksOf = new Map(acknowledged);
const result = { acknowledgedBlocks: 0, missingBlocks: 0, servedBlocks: 0, wrong: [], badBlocks: 0 };
const survivor = new Survivor(path, seed);
for (let n = 0; n <= upTo; n++) {
  const { blocks, wrongBlock } = await survivor.read(n);
  const promised = blocksOf.get(n) ?? 0;
  result.acknowledgedBlocks += promised;
  result.missingBlocks += Math.max(promised - blocks, 0);
  result.servedBlocks += blocks;
  if (wrongBlock >= 0) result.wrong.push(`sequence ${n}, block ${wrongBlock}`);
}
result.badBlocks = survivor.badBlocks;
await survivor.save(upTo + 1);
await survivor.close();
process.stdout.write(`${JSON.stringify(result)}\n`);
