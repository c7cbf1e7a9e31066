/**
 * A guest that stores is killed without warning and booted again. What it had given to its disk is in this host's
 * memory and so survives; what it had not is lost, as with a failure of power behind a disk without a volatile cache.
 */
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { Guest, makeDisk } from '../../dist/guest/index.js';
import { words } from './sequences.mjs';

const here = new URL('.', import.meta.url).pathname;
const node = process.execPath;
const bootLimitMs = 180_000;
const pollMs = 20;
const diskMiB = 96;
const portName = 'dualpath.lines';
/** Acknowledgements before the kill: 20 and up to 60 more. */
const leastLines = 20;

/** A guest that runs a program of this folder, and the whole lines that it has written so far. */
async function startProgram(guestOptions, file, options) {
  let text = '';
  const script =
    `mount /dev/vda /mnt && exec ${node} ${here}${file} '${JSON.stringify(options)}' ` +
    `>/dev/virtio-ports/${portName}\n`;
  const ports = { [portName]: (chunk) => void (text += chunk) };
  const guest = await Guest.start({ ...guestOptions, script, ports });
  return { guest, lines: () => text.split('\n').slice(0, -1) };
}

const failed = (guest, what) =>
  new Error(`${what}; the guest's console ends:\n${guest.console.slice(-2000)}`);

async function writeAndKill(guestOptions, writerOptions, draw) {
  const { guest, lines } = await startProgram(guestOptions, 'writer.mjs', writerOptions);
  try {
    let over = false;
    void guest.ended.then(() => (over = true));
    const wanted = leastLines + (draw() % 60);
    while (lines().length < wanted) {
      if (over) throw failed(guest, `the guest ended before it had acknowledged ${wanted} times`);
      await sleep(pollMs);
    }
    await sleep(draw() % 500);
    await guest.kill();
    const pairs = lines().map((line) => line.split(' ').map(Number));
    return new Map(pairs.filter(([, blocks]) => blocks > 0));
  } finally {
    await guest.close();
  }
}

async function check(guestOptions, checkOptions) {
  const { guest, lines } = await startProgram(guestOptions, 'guest-check.mjs', checkOptions);
  try {
    const { status } = await guest.ended;
    if (status !== 0) throw failed(guest, `the guest's check ended with ${status}`);
    return JSON.parse(lines().at(-1));
  } finally {
    await guest.close();
  }
}

/** @returns {acknowledgedBlocks, missingBlocks, servedBlocks, wrong, badBlocks} */
export async function killGuest({ images, acceleration, directory, durable, seed }) {
  const disk = makeDisk(join(directory, `disk-${durable ? 'durable' : 'plain'}.raw`), diskMiB);
  const machine = { memoryMiB: 2048, cpus: 2, disks: [disk], shares: [] };
  const guestOptions = { images, acceleration, ...machine, limitMs: bootLimitMs };
  const common = { path: '/mnt/store', seed };
  const acknowledged = await writeAndKill(guestOptions, { ...common, first: 0, durable }, words(seed));
  const upTo = Math.max(...acknowledged.keys()) + 3;
  return await check(guestOptions, { ...common, acknowledged: [...acknowledged], upTo });
}
