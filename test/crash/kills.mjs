/**
 * Kills writers at random moments and looks at what they leave. Every finding is a sentence in `findings`; a sound
 * store has none.
 */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { readdirSync } from 'node:fs';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { setTimeout as sleep } from 'node:timers/promises';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import * as dualpath from '../../dist/index.js';
import { words } from './sequences.mjs';
import { Survivor } from './survivor.mjs';

setFlagsFromString('--expose-gc');
const collect = runInNewContext('gc');

const writer = new URL('./writer.mjs', import.meta.url).pathname;
const openLimitMs = 20_000;
const atTheEnd = 'at the end';

/** From when, and for how long at most, a writer lives on: its opening, its first writes, anywhere. */
const moments = [
  { from: 'opening', upToMs: 10 },
  { from: 'open', upToMs: 12 },
  { from: 'open', upToMs: 200 },
  { from: 'open', upToMs: 200 },
];

/** Runs one writer and kills it; what it had acknowledged: sequence -> leading blocks. */
export async function killOne({ draw, writerOptions }) {
  const moment = moments[draw() % moments.length];
  const delayUs = draw() % (moment.upToMs * 1000);
  const child = spawn(process.execPath, [writer, JSON.stringify(writerOptions)], {
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  let complaints = '';
  child.stderr.setEncoding('utf8').on('data', (text) => (complaints += text));
  const lines = createInterface({ input: child.stdout });
  const acknowledged = new Map();
  const reached = new Promise((resolve) => {
    lines.on('line', (line) => {
      if (line === moment.from) resolve();
      const [n, blocks] = line.split(' ').map(Number);
      if (blocks > 0) acknowledged.set(n, blocks);
    });
  });
  const ended = Promise.all([once(child, 'close'), once(lines, 'close')]);
  const limit = new AbortController();
  await Promise.race([reached, ended, sleep(openLimitMs, undefined, { signal: limit.signal })]);
  limit.abort();
  await sleep(Math.floor(delayUs / 1000));
  Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, (delayUs % 1000) / 1000);
  child.kill('SIGKILL');
  const [[code, signal]] = await ended;
  if (signal !== 'SIGKILL') throw new Error(`the writer ended by itself (${code ?? signal}): ${complaints}`);
  return { acknowledged, moment: moment.from, delayUs };
}

export class KillRun {
  findings = [];
  kills = 0;
  acknowledgedBlocks = 0;
  readBlocks = 0;
  /** Acknowledged, but not found at the end: only writers that evict may lose any. */
  evictedBlocks = 0;
  /** Sequence -> leading blocks that were acknowledged, over all lives. */
  #acknowledged = new Map();
  #next = 0;
  path;
  #seed;
  #draw;
  #capacityBytes;

  /** @param capacityBytes the writers evict beyond it; then an acknowledged block may be gone, but never wrong */
  constructor({ directory, seed, capacityBytes }) {
    this.path = join(directory, capacityBytes === undefined ? 'store' : 'store-evicting');
    this.#seed = seed;
    this.#draw = words(seed ^ (capacityBytes ?? 0));
    this.#capacityBytes = capacityBytes;
  }

  async kill() {
    const fdsBefore = await openFds();
    const first = this.#next;
    const life = await killOne({
      draw: this.#draw,
      writerOptions: {
        ...{ path: this.path, seed: this.#seed, first },
        ...(this.#capacityBytes === undefined ? {} : { capacityBytes: this.#capacityBytes, gc: true }),
      },
    });
    this.kills++;
    this.#next = Math.max(first, ...life.acknowledged.keys()) + 4;
    for (const [n, blocks] of life.acknowledged) this.#note(n, blocks);
    // All of this life, also what it had begun; of the lives before some.
    const numbers = new Set(Array.from({ length: this.#next - first }, (_, i) => first + i));
    for (let i = 0; i < 16 && first > 0; i++) numbers.add(this.#draw() % first);
    await this.#look(numbers, `kill ${this.kills} (${life.delayUs} us after '${life.moment}')`);
    const fds = await openFds();
    // The first survivor starts what a process keeps: the pool's threads, say.
    if (this.kills > 1)
      this.#expect(fds <= fdsBefore, `kill ${this.kills}: ${fds} open files, ${fdsBefore} before`);
  }

  /** Everything that was ever acknowledged. */
  async end() {
    await this.#look(new Set(this.#acknowledged.keys()), atTheEnd);
    await openFds();
    const processes = await this.#collect(atTheEnd);
    this.#expect(processes === 0, `${atTheEnd}: ${processes} processes have the store open, it is said`);
  }

  /** What `dualpath store gc` leaves of the dead must be nothing. @returns processes that have the store open */
  async #collect(when) {
    const admin = dualpath.StoreAdmin.open(this.path);
    await admin.gc();
    const { temps, trashNamespaces, foreignNames, processes } = await admin.stat();
    const dead = processes.filter((process) => process.dead).length;
    this.#expect(temps.files === 0, `${when}: ${temps.files} temporary files after gc`);
    this.#expect(dead === 0, `${when}: pins of ${dead} dead processes after gc`);
    this.#expect(trashNamespaces + foreignNames === 0, `${when}: files that belong to nothing after gc`);
    const { badBlocks, bad } = await admin.verify();
    this.#expect(badBlocks === 0, `${when}: verify finds ${badBlocks} bad blocks: ${bad[0]?.fault}`);
    return processes.length;
  }

  #note(n, blocks) {
    this.acknowledgedBlocks += blocks - (this.#acknowledged.get(n) ?? 0);
    this.#acknowledged.set(n, blocks);
  }

  async #look(numbers, when) {
    const survivor = new Survivor(this.path, this.#seed);
    try {
      for (const n of numbers) await this.#read(survivor, n, when);
      const saved = await survivor.save(this.#next);
      const { blocks, wrongBlock } = await survivor.read(this.#next);
      this.#expect(blocks === saved && wrongBlock < 0, `${when}: a new sequence is not served`);
      this.#note(this.#next++, saved);
      // Nothing torn ever gets a name: a process that dies takes no written page with it.
      this.#expect(survivor.badBlocks === 0, `${when}: ${survivor.badBlocks} bad blocks`);
    } finally {
      await survivor.close();
    }
    await this.#collect(when);
  }

  async #read(survivor, n, when) {
    const { blocks, wrongBlock } = await survivor.read(n);
    this.readBlocks += blocks;
    this.#expect(wrongBlock < 0, `${when}: sequence ${n}, block ${wrongBlock} has wrong bytes`);
    const acknowledged = this.#acknowledged.get(n) ?? 0;
    if (when === atTheEnd) this.evictedBlocks += Math.max(acknowledged - blocks, 0);
    if (this.#capacityBytes !== undefined) return;
    this.#expect(blocks >= acknowledged, `${when}: sequence ${n}: ${blocks} blocks of ${acknowledged}`);
  }

  #expect(holds, finding) {
    if (!holds) this.findings.push(finding);
  }
}

/** After what is no longer referred to has gone, natives and all. */
async function openFds() {
  for (let i = 0; i < 3; i++) {
    collect();
    await new Promise((resolve) => setImmediate(resolve));
  }
  return readdirSync('/proc/self/fd').length;
}
