#!/usr/bin/env node
/**
 * Breaks the link and kills engines while two hosts replay sessions over soft-RoCE, and looks at what came of it.
 *
 *   npm run test:rdma-faults -- [--flaps 100] [--kills 50] [--long-every 10] [--seed N] [--time-limit-s 14400]
 *
 * Every flap takes the wire down for 0.3 s, every --long-every-th for 10 s. A kill hits one of two decode engines. What must
 * hold: every replay ends, none has a wrong byte, no canary is harmed. Prints one JSON document; exit status 1 otherwise.
 */
import { randomBytes } from 'node:crypto';
import {
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { parseArgs } from 'node:util';

function readOptions() {
  const names = { flaps: '100', kills: '50', 'long-every': '10', seed: '1', 'time-limit-s': '14400' };
  const options = Object.fromEntries(
    Object.entries(names).map(([name, value]) => [name, { type: 'string', default: value }]),
  );
  const { values } = parseArgs({ options });
  return Object.fromEntries(
    Object.entries(values).map(([name, text]) => {
      if (/^\d+$/.test(text)) return [name, Number(text)];
      throw new Error(`--${name} ${text}: give a whole number`);
    }),
  );
}

/** Park and Miller's generator: the same faults for the same seed. */
function randomFrom(seed) {
  let state = (seed % 2147483646) + 1;
  return () => (state = (state * 48271) % 2147483647) / 2147483647;
}

/** Resolves when the file is there, with such text in it. */
async function appears(file, signal, text = '') {
  while (!existsSync(file) || !readFileSync(file, 'utf8').includes(text)) {
    await sleep(200, undefined, { signal });
  }
}

async function injectFaults(hosts, out, options, signal) {
  const random = randomFrom(options.seed);
  const faults = [
    ...Array.from({ length: options.flaps }, (_, i) =>
      (i + 1) % options['long-every'] === 0 ? 10_000 : 300,
    ),
    ...Array.from({ length: options.kills }, () => 'kill'),
  ];
  faults.sort(() => random() - 0.5);
  let kills = 0;
  for (const [index, fault] of faults.entries()) {
    await sleep(2000 + 8000 * random(), undefined, { signal });
    process.stderr.write(
      `fault ${index + 1} of ${faults.length}: ${fault === 'kill' ? fault : `link down for ${fault} ms`}\n`,
    );
    if (fault === 'kill') {
      kills++;
      writeFileSync(join(out, `kill-${kills}`), '');
      await appears(join(out, `killed-${kills}`), signal);
    } else {
      const host = random() < 0.5 ? 1 : 2;
      await hosts.setLink(host, false);
      await sleep(fault, undefined, { signal });
      await hosts.setLink(host, true);
    }
  }
}

/** What the replays say, all together. */
function gather(out, options) {
  const replays = readdirSync(out)
    .filter((name) => /^replay-\d+\.json$/.test(name))
    .map((name) => {
      const status = Number(readFileSync(join(out, name.replace('.json', '.status')), 'utf8'));
      const text = readFileSync(join(out, name), 'utf8');
      const document = text === '' ? {} : JSON.parse(text);
      return { status, error: document.error ?? null, mode: document.modes?.dualpath ?? null };
    });
  const done = replays.flatMap(({ mode }) => mode ?? []);
  const sum = (of) => done.reduce((total, mode) => total + of(mode), 0);
  return {
    flaps: options.flaps,
    kills: options.kills,
    replays: replays.length,
    ended_with_result: done.length,
    ended_with_error: replays.flatMap(({ error }) => error?.message ?? []),
    hung: replays.filter(({ status }) => status === 124).length,
    turns: sum(({ turns }) => turns),
    retries: sum(({ retries }) => retries),
    rebuilt_connections: sum((mode) => mode.rebuilt_connections),
    longest_outage_ms: Math.max(0, ...done.map((mode) => mode.longest_outage_ms)),
    verified_bytes: sum((mode) => mode.verified_bytes),
    mismatched_bytes: sum((mode) => mode.mismatched_bytes),
    canary_bytes: sum(({ canaries }) => canaries.checked_bytes),
    canary_mismatched_bytes: sum(({ canaries }) => canaries.mismatched_bytes),
    persist_errors: [...new Set(done.flatMap((mode) => mode.persist_error ?? []))],
  };
}

/** When the hosts end before the faults are over, why is the error. */
async function faultsOrEnd(hosts, out, options, signal, ended) {
  try {
    await appears(join(out, 'p0.log'), signal, 'run by');
    await injectFaults(hosts, out, options, signal);
  } catch (error) {
    if (!signal.aborted) throw error;
    const statuses = await ended;
    throw new Error(`the hosts ended before the faults, with status ${statuses.join(' and ')}`, {
      cause: error,
    });
  }
}

async function main() {
  const options = readOptions();
  const { startRxe } = await import('../dist/rxe/index.js');
  const directory = mkdtempSync(join(tmpdir(), 'dualpath-rdma-faults-'));
  const [out, store] = ['out', 'store'].map((name) => join(directory, name));
  mkdirSync(out);
  mkdirSync(store);
  writeFileSync(join(out, 'token'), randomBytes(32).toString('hex'));
  const command = ['sh', 'scripts/rdma-faults/host.sh', store];
  const over = new AbortController();
  const toStderr = (_host, chunk) => process.stderr.write(chunk);
  const hosts = await startRxe({
    commands: [command, command],
    timeLimitMs: options['time-limit-s'] * 1000,
    out,
    shares: [{ path: store }],
    onStdout: toStderr,
    onStderr: toStderr,
  });
  try {
    const ended = hosts.statuses.finally(() => over.abort());
    ended.catch(() => undefined);
    await faultsOrEnd(hosts, out, options, over.signal, ended);
    writeFileSync(join(out, 'done'), '');
    await ended;
    const result = { carried_by: hosts.carriedBy, ...gather(out, options) };
    process.stdout.write(`${JSON.stringify(result, null, 2)}\n`);
    const wrong = result.mismatched_bytes + result.canary_mismatched_bytes + result.hung;
    if (wrong > 0 || result.ended_with_result === 0) process.exitCode = 1;
  } finally {
    await hosts.close();
    rmSync(directory, { recursive: true, force: true });
  }
}

await main();
