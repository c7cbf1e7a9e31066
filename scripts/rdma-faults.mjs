#!/usr/bin/env node
/**
 * Breaks the link and kills engines while two hosts replay sessions over soft-RoCE, and looks at what came of it.
 *
 * Every flap takes the wire down for 0.3 s, every --long-every-th for 10 s. A kill hits one of three decode engines, never the
 * fourth. What must hold: every replay ends, none has a wrong byte, no canary is harmed, and what an engine had to send gets through
 * again within 2 s of the link's return.
 */
import { randomBytes } from 'node:crypto';
import {
  cpSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { parseArgs } from 'node:util';

const usage = `Usage: npm run test:rdma-faults -- [options]

Link flaps and kills of engines while two hosts replay sessions over soft-RoCE. Prints one JSON document.

  --flaps N         times that the link goes down (100)
  --kills N         decode engines that are killed (50)
  --long-every N    of N flaps one lasts 10 s, the others 0.3 s (10)
  --seed N          of what is hit and when (1)
  --time-limit-s N  the hosts' time; no new fault in the last 150 s of it (14400)
  --keep FOLDER     copies logs and results there

Exit status: 0; 1 when something did not hold; 130 or 143 when interrupted.

  npm run test:rdma-faults -- --flaps 5 --kills 2 --time-limit-s 600
`;

function readOptions() {
  const names = { flaps: '100', kills: '50', 'long-every': '10', seed: '1', 'time-limit-s': '14400' };
  const options = Object.fromEntries(
    Object.entries(names).map(([name, value]) => [name, { type: 'string', default: value }]),
  );
  const rest = { keep: { type: 'string' }, help: { type: 'boolean' } };
  const { keep, help, ...values } = parseArgs({ options: { ...options, ...rest } }).values;
  if (help) {
    process.stdout.write(usage);
    process.exit();
  }
  const numbers = Object.entries(values).map(([name, text]) => {
    if (/^\d+$/.test(text)) return [name, Number(text)];
    throw new Error(`--${name} ${text}: give a whole number`);
  });
  return { keep, ...Object.fromEntries(numbers) };
}

const killable = ['d1', 'd2', 'd3'];
const engines = ['p0', 'd0', ...killable];
const recoveryLimitMs = 2000;
/** For the last replay, once there are no more faults. */
const endingS = 150;

/** Park and Miller's generator: the same faults for the same seed. */
function randomFrom(seed) {
  let state = (seed % 2147483646) + 1;
  return () => (state = (state * 48271) % 2147483647) / 2147483647;
}

async function appears(file, signal) {
  while (!existsSync(file)) await sleep(200, undefined, { signal });
}

/**
 * Takes what the engines say in their logs, as it is written: who is run by a replay, and of each outage {atMs, engine, outageMs}.
 */
async function hearEngines(out, { running, outages }, signal) {
  const heard = new Map();
  while (!signal.aborted) {
    for (const engine of engines) {
      const log = join(out, `${engine}.log`);
      const text = existsSync(log) ? readFileSync(log, 'utf8') : '';
      const lines = text.slice(heard.get(engine) ?? 0, text.lastIndexOf('\n') + 1);
      heard.set(engine, text.lastIndexOf('\n') + 1);
      for (const line of lines.split('\n')) {
        if (line.includes(': run by ')) running.add(engine);
        else if (/ ends: | engine on /.test(line)) running.delete(engine);
        const outage = /bytes reach '\w+' again, after (\d+) ms/.exec(line)?.[1];
        if (outage !== undefined) outages.push({ atMs: performance.now(), engine, outageMs: Number(outage) });
      }
    }
    await sleep(20, undefined, { signal }).catch(() => undefined);
  }
}

/** Of each flap, by how much the last outage that it caused outlasted it; null: nothing was held up. */
function recoveriesOf({ flaps, outages }) {
  return flaps.map(({ downMs, upMs }) => {
    const caused = outages.filter(({ atMs, outageMs }) => atMs > downMs && atMs - outageMs < upMs);
    return caused.length === 0 ? null : Math.max(...caused.map(({ atMs }) => Math.max(0, atMs - upMs)));
  });
}

/** Any that may be now: a flap while a replay is under way, a kill of an engine that it runs. */
function nextFault(left, running, random) {
  if (!['p0', 'd0'].every((engine) => running.has(engine))) return undefined;
  const hit = killable.filter((engine) => running.has(engine));
  const flaps = left.flaps.length;
  const kills = hit.length === 0 ? 0 : left.kills;
  if (flaps + kills === 0) return undefined;
  if (random() * (flaps + kills) < kills) {
    left.kills--;
    return { engine: hit[Math.floor(random() * hit.length)] };
  }
  return { downMs: left.flaps.pop(), host: random() < 0.5 ? 1 : 2 };
}

async function injectFaults(hosts, out, options, seen, signal) {
  const random = randomFrom(options.seed);
  const { flaps, kills, 'long-every': longEvery } = options;
  const left = {
    flaps: Array.from({ length: flaps }, (_, i) => ((i + 1) % longEvery === 0 ? 10_000 : 300)),
    kills,
  };
  left.flaps.sort(() => random() - 0.5);
  const stopMs = performance.now() + 1000 * (options['time-limit-s'] - endingS);
  while (left.flaps.length + left.kills > 0 && performance.now() < stopMs) {
    // The last fault is over for longer than recovery may take.
    await sleep(2200 + 1500 * random(), undefined, { signal });
    const fault = nextFault(left, seen.running, random);
    if (fault === undefined) continue;
    const { engine, downMs, host } = fault;
    const rest = `${left.flaps.length} flaps and ${left.kills} kills are left`;
    process.stderr.write(
      `${engine === undefined ? `link down for ${downMs} ms` : `kill of ${engine}`}; ${rest}\n`,
    );
    if (engine === undefined) {
      await hosts.setLink(host, false);
      const began = performance.now();
      await sleep(downMs, undefined, { signal });
      await hosts.setLink(host, true);
      seen.flaps.push({ downMs: began, upMs: performance.now() });
    } else {
      const number = kills - left.kills;
      seen.running.delete(engine);
      writeFileSync(join(out, 'kill.part'), engine);
      renameSync(join(out, 'kill.part'), join(out, `kill-${number}`));
      await appears(join(out, `killed-${number}`), signal);
      seen.kills++;
    }
  }
}

function recovery(seen) {
  const recoveries = recoveriesOf(seen);
  const held = recoveries.filter((ms) => ms !== null).sort((a, b) => a - b);
  const at = (share) => Math.round(held[Math.min(held.length - 1, Math.floor(share * held.length))] ?? 0);
  return {
    flaps_that_held_something_up: held.length,
    p50_ms: at(0.5),
    p90_ms: at(0.9),
    max_ms: at(1),
    late: held.filter((ms) => ms > recoveryLimitMs).length,
    each_ms: recoveries.map((ms) => ms && Math.round(ms)),
  };
}

/** What the replays say, all together. */
function gather(out, seen) {
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
    flaps: seen.flaps.length,
    kills: seen.kills,
    replays: replays.length,
    ended_with_result: done.length,
    ended_with_error: replays.flatMap(({ error }) => error?.message ?? []),
    hung: replays.filter(({ status }) => status === 124).length,
    hung_engines: readdirSync(out).filter((name) => name.startsWith('hung-')).length,
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
async function faultsOrEnd(hosts, out, options, seen, signal, ended) {
  try {
    await injectFaults(hosts, out, options, seen, signal);
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
  const interrupted = new AbortController();
  for (const [name, status] of Object.entries({ SIGINT: 130, SIGTERM: 143 })) {
    process.once(name, () => {
      process.exitCode = status;
      interrupted.abort();
    });
  }
  const toStderr = (_host, chunk) => process.stderr.write(chunk);
  const seen = { running: new Set(), outages: [], flaps: [], kills: 0 };
  const hearing = hearEngines(out, seen, over.signal);
  let hosts;
  try {
    hosts = await startRxe({
      commands: [command, command],
      timeLimitMs: options['time-limit-s'] * 1000,
      out,
      shares: [{ path: store }],
      cpus: 2,
      signal: interrupted.signal,
      onStdout: toStderr,
      onStderr: toStderr,
    });
    const ended = hosts.statuses.finally(() => over.abort());
    ended.catch(() => undefined);
    await faultsOrEnd(hosts, out, options, seen, over.signal, ended);
    writeFileSync(join(out, 'done'), '');
    await ended;
    report({ carried_by: hosts.carriedBy, ...gather(out, seen), recovery: recovery(seen) }, options);
  } catch (error) {
    if (!interrupted.signal.aborted) throw error;
    process.stderr.write('interrupted\n');
  } finally {
    over.abort();
    await hearing;
    await hosts?.close();
    if (options.keep !== undefined) cpSync(out, options.keep, { recursive: true });
    rmSync(directory, { recursive: true, force: true });
  }
}

function report(result, options) {
  process.stdout.write(`${JSON.stringify(result, null, 2)}\n`);
  const { mismatched_bytes, canary_mismatched_bytes, ended_with_result } = result;
  const hung = result.hung + result.hung_engines;
  const wrong = mismatched_bytes + canary_mismatched_bytes + hung + result.recovery.late;
  const all = result.flaps === options.flaps && result.kills === options.kills;
  if (wrong > 0 || ended_with_result === 0 || !all) process.exitCode = 1;
}

await main();
