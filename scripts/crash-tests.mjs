#!/usr/bin/env node
/**
 * Kills processes that store blocks, at random moments, and looks at what is left.
 *
 *   npm run test:crash -- [--kills 40] [--seed N] [--guest]
 *
 * Half of the kills hit writers of a store without a limit, where every acknowledged block must be found, half
 * writers that evict. --guest kills a whole guest under QEMU besides, with `durable` blocks and, as a control, without;
 * it fetches Debian's kernel, and needs what `npm run setup -- --test` installs. Exit status 1: something was not as it must be.
 */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { SetupError } from './setup/common.mjs';

const capacityBytes = 1 << 19;

function readOptions() {
  const { values } = parseArgs({
    options: {
      kills: { type: 'string', default: '40' },
      seed: { type: 'string', default: String(Date.now() % 1_000_000) },
      guest: { type: 'boolean', default: false },
    },
  });
  const number = (name) => {
    const value = /^\d+$/.test(values[name]) ? Number(values[name]) : NaN;
    if (Number.isSafeInteger(value)) return value;
    throw new SetupError(`--${name} ${values[name]}: give a whole number`);
  };
  return { kills: number('kills'), seed: number('seed'), guest: values.guest };
}

async function killProcesses(directory, { kills, seed }) {
  const { KillRun } = await import('../test/crash/kills.mjs');
  const runs = [new KillRun({ directory, seed }), new KillRun({ directory, seed, capacityBytes })];
  const began = performance.now();
  for (let i = 0; i < kills; i++) {
    await runs[i % 2].kill();
    if ((i + 1) % 10 === 0) console.error(`${i + 1} of ${kills} kills`);
  }
  for (const run of runs) await run.end();
  const sum = (field) => runs.reduce((total, run) => total + run[field], 0);
  const seconds = ((performance.now() - began) / 1000).toFixed(0);
  console.log(
    `${kills} processes killed in ${seconds} s: ${sum('acknowledgedBlocks')} blocks acknowledged, ` +
      `${sum('evictedBlocks')} of them evicted, ${sum('readBlocks')} read again and compared`,
  );
  return runs.flatMap(({ findings }) => findings);
}

async function killGuests(directory, { seed }) {
  const { chooseAcceleration, guestImages, requirePackages } = await import('../dist/guest/index.js');
  const { killGuest } = await import('../test/crash/guest-run.mjs');
  requirePackages();
  const images = await guestImages({ modules: ['ext4'] });
  const acceleration = await chooseAcceleration(images);
  const findings = [];
  for (const durable of [true, false]) {
    const r = await killGuest({ images, acceleration, directory, durable, seed });
    console.log(
      `guest killed (emulated machine, ${acceleration}), durable: ${durable}: ${r.acknowledgedBlocks} blocks ` +
        `acknowledged, ${r.missingBlocks} lost, ${r.servedBlocks} served, ${r.badBlocks} refused as bad`,
    );
    findings.push(...r.wrong.map((what) => `guest, durable ${durable}: ${what} has wrong bytes`));
    if (durable && r.missingBlocks > 0) findings.push(`guest: ${r.missingBlocks} durable blocks are lost`);
  }
  return findings;
}

try {
  const options = readOptions();
  console.log(`seed ${options.seed}`);
  const directory = mkdtempSync(join(tmpdir(), 'dualpath-crash-'));
  try {
    const findings = await killProcesses(directory, options);
    if (options.guest) findings.push(...(await killGuests(directory, options)));
    for (const finding of findings) console.log(`not as it must be: ${finding}`);
    console.log(
      findings.length === 0 ? 'all as it must be' : `${findings.length} findings, seed ${options.seed}`,
    );
    process.exitCode = findings.length === 0 ? 0 : 1;
  } finally {
    rmSync(directory, { recursive: true, force: true });
  }
} catch (error) {
  if (!(error instanceof SetupError)) throw error;
  console.error(`error: ${error.message}`);
  process.exitCode = 2;
}
