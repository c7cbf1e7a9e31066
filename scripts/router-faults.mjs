/**
 * One of eight replicas is killed, stopped, hung, slowed down or made to answer 500 while requests come at a steady rate:
 * no request may be lost that had not begun to stream, and the share within the SLO must be back within 5 s. Replicas are
 * emulated, each a process of its own, as is the router. Options: --faults LIST, --qps N, --seconds N, --slo S, --json.
 */
import { spawn } from 'node:child_process';
import { existsSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { parseArgs } from 'node:util';

const root = resolve(import.meta.dirname, '..');
const main = join(root, 'dist/cli/main.js');
if (!existsSync(main)) throw new Error('build first: npm run setup');
const { runLoad } = await import(join(root, 'dist/load/index.js'));

const { values } = parseArgs({
  options: {
    faults: { type: 'string', default: 'kill,stop,hang,slow,error' },
    qps: { type: 'string', default: '20' },
    seconds: { type: 'string', default: '20' },
    slo: { type: 'string', default: '2' },
    json: { type: 'boolean', default: false },
  },
});
const [qps, seconds, sloS] = [Number(values.qps), Number(values.seconds), Number(values.slo)];
const replicaCount = 8;
const faultAtS = Math.min(8, seconds / 3);
const backWithinS = 5;
const goodShare = 0.9;

/** A process of the command line, and the port that it says it listens on. */
function start(args) {
  return new Promise((resolve, reject) => {
    const child = spawn(process.execPath, [main, ...args], { stdio: ['ignore', 'ignore', 'pipe'] });
    let said = '';
    child.stderr.on('data', (data) => {
      said += data;
      const port = /(?:replica|routing) on http:\/\/127\.0\.0\.1:(\d+)/.exec(said)?.[1];
      if (port !== undefined) resolve({ child, port: Number(port), said: () => said });
    });
    child.once('exit', () => reject(new Error(`it did not start: ${said}`)));
  });
}

const stop = ({ child }) =>
  new Promise((resolve) => {
    if (child.exitCode !== null || child.signalCode !== null) return resolve();
    child.once('exit', resolve);
    child.kill('SIGKILL');
  });

/** Sixty conversations' beginnings of two blocks, and an end of its own for each request. */
function sessions(count) {
  return Array.from({ length: count }, (_, i) => ({
    id: `request-${i}`,
    prefix: [],
    turns: [
      {
        promptTokens: 768,
        outputTokens: 16,
        traceHitTokens: null,
        arrivalMs: null,
        thinkMs: null,
        identity: {
          kind: 'blocks',
          blockTokens: 256,
          hashIds: [(i * 7) % 60, 100 + ((i * 7) % 60), 1000 + i],
        },
      },
    ],
  }));
}

async function inflict(fault, replica) {
  if (fault === 'kill') return replica.child.kill('SIGKILL');
  if (fault === 'stop') return replica.child.kill('SIGSTOP');
  const body = JSON.stringify({ kind: fault, factor: 20 });
  await fetch(`http://127.0.0.1:${replica.port}/fault`, { method: 'POST', body });
}

async function run(fault) {
  const replicas = await Promise.all(
    Array.from({ length: replicaCount }, () => start(['replica', '--port', '0', '--token-ms', '10'])),
  );
  const flags = replicas.flatMap(({ port }) => ['--replica', `http://127.0.0.1:${port}`]);
  const router = await start(['route', '--port', '0', '--slo', String(sloS), ...flags]);
  const sent = [];
  try {
    const timer = setTimeout(() => void inflict(fault, replicas[3]), 1000 * faultAtS);
    await runLoad(sessions(Math.round(qps * seconds)), {
      url: `http://127.0.0.1:${router.port}`,
      model: 'emulated',
      endpoint: 'completions',
      vocabulary: null,
      qps,
      arrivals: 'poisson',
      seed: 1,
      maxPromptTokens: 768,
      maxOutputTokens: 16,
      sloS,
      concurrency: 1024,
      signal: AbortSignal.timeout(1000 * (seconds + 60)),
      onSent: (result, { atS }) => sent.push({ ...result, atS }),
    });
    clearTimeout(timer);
  } finally {
    await Promise.all([...replicas, router].map(stop));
  }
  return judge(fault, sent, router.said());
}

function judge(fault, sent, said) {
  const isGood = ({ ok, firstMs, startMs }) => ok && firstMs - startMs <= 1000 * sloS;
  const share = (list) => (list.length === 0 ? 1 : list.filter(isGood).length / list.length);
  const between = (fromS, toS) => sent.filter(({ atS }) => atS >= fromS && atS < toS);
  const afterS = faultAtS + backWithinS;
  const cut = sent.filter(({ ok, firstMs }) => !ok && firstMs > 0).length;
  const lost = sent.filter(({ ok, firstMs }) => !ok && firstMs === 0);
  const attainment = {
    before: share(between(0, faultAtS)),
    within_5_s: share(between(faultAtS, afterS)),
    after_5_s: share(between(afterS, Infinity)),
  };
  return {
    fault,
    requests: sent.length,
    lost: lost.length,
    lost_errors: [...new Set(lost.map(({ status, error }) => `${status} ${error}`))].slice(0, 5),
    cut_while_streaming: cut,
    attainment,
    passed_over: said.split('\n').filter((line) => line.includes('passed over')).length,
    passed: lost.length === 0 && attainment.after_5_s >= goodShare,
  };
}

const results = [];
for (const fault of values.faults.split(',')) {
  const result = await run(fault);
  results.push(result);
  const { before, within_5_s: within, after_5_s: after } = result.attainment;
  const percent = (value) => `${(100 * value).toFixed(1)} %`;
  console.error(
    `${result.passed ? 'passed' : 'FAILED'} ${fault}: ${result.requests} requests, ${result.lost} lost, ` +
      `${result.cut_while_streaming} cut while streaming; within ${sloS} s: ${percent(before)} before, ` +
      `${percent(within)} in the 5 s after, ${percent(after)} from then on ${result.lost_errors.join('; ')}`,
  );
}
if (values.json)
  console.log(JSON.stringify({ replicas: replicaCount, qps, slo_s: sloS, emulated: true, results }, null, 2));
process.exitCode = results.every(({ passed }) => passed) ? 0 : 1;
