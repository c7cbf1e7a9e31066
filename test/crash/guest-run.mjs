/**
 * A guest that stores is killed without warning and booted again. What it had given to its disk is in this host's
 * memory and so survives; what it had not is lost, as with a failure of power behind a disk without a volatile cache.
 */
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { Guest, makeDisk } from '../../scripts/guest/guest.mjs';
import { words } from './sequences.mjs';

const here = new URL('.', import.meta.url).pathname;
const node = process.execPath;
const bootLimitMs = 180_000;
const diskMiB = 96;
/** Acknowledgements before the kill: 20 and up to 60 more. */
const leastLines = 20;

const script = (file, options) =>
  `mount /dev/vda /mnt && exec ${node} ${here}${file} '${JSON.stringify(options)}' >$PORT`;

async function writeAndKill(guestOptions, writerOptions, draw) {
  const guest = new Guest({ ...guestOptions, script: script('writer.mjs', writerOptions) });
  try {
    const lines = leastLines + (draw() % 60);
    await guest.until(() => guest.portLines.length >= lines, `it had acknowledged ${lines} times`);
    await sleep(draw() % 500);
    await guest.kill();
    const pairs = guest.portLines.map((line) => line.split(' ').map(Number));
    return new Map(pairs.filter(([, blocks]) => blocks > 0));
  } finally {
    await guest.remove();
  }
}

async function check(guestOptions, checkOptions) {
  const guest = new Guest({ ...guestOptions, script: script('guest-check.mjs', checkOptions) });
  try {
    const lines = await guest.done();
    return JSON.parse(lines.at(-1));
  } finally {
    await guest.remove();
  }
}

/** @returns {acknowledgedBlocks, missingBlocks, servedBlocks, wrong, badBlocks} */
export async function killGuest({ images, accel, directory, durable, seed }) {
  const disk = makeDisk(join(directory, `disk-${durable ? 'durable' : 'plain'}.raw`), diskMiB);
  const guestOptions = { images, accel, disks: [disk], limitMs: bootLimitMs };
  const common = { path: '/mnt/store', seed };
  const acknowledged = await writeAndKill(guestOptions, { ...common, first: 0, durable }, words(seed));
  const upTo = Math.max(...acknowledged.keys()) + 3;
  return await check(guestOptions, { ...common, acknowledged: [...acknowledged], upTo });
}
