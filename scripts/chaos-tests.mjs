/**
 * Seeded schedules of faults over the lease ledger, in virtual time: engines, leaders and hosts die, the scheduler restarts
 * and stops, connections break, messages are lost, doubled, late and out of order, clocks leap. Every request must end
 * exactly once for its client, no token may be repeated or skipped, no two leases of one request be believed in. Options:
 * --schedules N, --seed FIRST, --json. With --kills N instead: real processes, killed under load; --etcd: with two schedulers and an
 * etcd of three members.
 */
import { existsSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { parseArgs } from 'node:util';
import { Worker, isMainThread, parentPort, workerData } from 'node:worker_threads';

const built = join(resolve(import.meta.dirname, '..'), 'dist/chaos/index.js');
if (!existsSync(built)) throw new Error('build first: npm run setup');
const { runSchedule } = await import(built);

const add = (into, counts) => {
  for (const [name, count] of Object.entries(counts)) into[name] = (into[name] ?? 0) + count;
};

function runRange(first, count) {
  const result = {
    schedules: 0,
    requests: 0,
    late_results: 0,
    outcomes: {},
    faults: {},
    ledger: {},
    failed: [],
  };
  for (let seed = first; seed < first + count; seed++) {
    const { requests, outcomes, faults, totals, lateResults, violations } = runSchedule(seed);
    result.schedules++;
    result.requests += requests;
    result.late_results += lateResults;
    add(result.outcomes, outcomes);
    add(result.faults, faults);
    add(result.ledger, totals);
    if (violations.length > 0) result.failed.push({ seed, violations });
  }
  return result;
}

function merge(results) {
  const all = {
    schedules: 0,
    requests: 0,
    late_results: 0,
    outcomes: {},
    faults: {},
    ledger: {},
    failed: [],
  };
  for (const { outcomes, faults, ledger, failed, ...counts } of results) {
    add(all, counts);
    add(all.outcomes, outcomes);
    add(all.faults, faults);
    add(all.ledger, ledger);
    all.failed.push(...failed);
  }
  return all;
}

async function kill(kills, etcd, json) {
  const { killTests } = await import('./kills/run.mjs');
  const result = await killTests({ kills, etcd, note: (text) => console.error(text) });
  if (json) console.log(JSON.stringify(result, null, 2));
  for (const violation of result.violations.slice(0, 20)) console.error(violation);
  console.error(
    `${kills} kills, ${result.requests} requests, ${result.leases} leases, ` +
      `${result.violations.length} violations; ${result.seconds.toFixed(0)} s`,
  );
  process.exitCode = result.violations.length === 0 ? 0 : 1;
}

async function main() {
  const { values } = parseArgs({
    options: {
      schedules: { type: 'string', default: '2000' },
      seed: { type: 'string', default: '1' },
      threads: { type: 'string', default: '2' },
      json: { type: 'boolean', default: false },
      kills: { type: 'string' },
      etcd: { type: 'boolean', default: false },
    },
  });
  if (values.kills !== undefined) return kill(Number(values.kills), values.etcd, values.json);
  const [schedules, first, threads] = [values.schedules, values.seed, values.threads].map(Number);
  const piece = 500;
  const pieces = Array.from({ length: Math.ceil(schedules / piece) }, (_, i) => i * piece);
  const results = [];
  const started = performance.now();
  const work = async () => {
    for (let from = pieces.shift(); from !== undefined; from = pieces.shift()) {
      const data = { first: first + from, count: Math.min(piece, schedules - from) };
      const worker = new Worker(new URL(import.meta.url), { workerData: data });
      results.push(
        await new Promise((done, fail) => {
          worker.once('message', done);
          worker.once('error', fail);
        }),
      );
      console.error(`${results.reduce((sum, { schedules: n }) => sum + n, 0)} of ${schedules} schedules`);
    }
  };
  await Promise.all(Array.from({ length: threads }, work));
  const all = merge(results);
  const seconds = (performance.now() - started) / 1000;
  if (values.json) console.log(JSON.stringify({ ...all, seconds }, null, 2));
  for (const { seed, violations } of all.failed.slice(0, 10))
    console.error(`seed ${seed}: ${violations.join('; ')}`);
  console.error(
    `${all.schedules} schedules, ${all.requests} requests, ${all.late_results} late results dropped, ` +
      `${all.failed.length} schedules failed; ${seconds.toFixed(0)} s`,
  );
  process.exitCode = all.failed.length === 0 && all.schedules === schedules ? 0 : 1;
}

if (isMainThread) await main();
else parentPort.postMessage(runRange(workerData.first, workerData.count));
