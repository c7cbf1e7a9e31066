/**
 * `dualpath route` in front of two real servers: llama.cpp's, with SmolLM2-135M-Instruct on the processor. Answers and streams are
 * compared with the server's own, byte for byte; prompts with one prefix must meet at one server; a client leaves; a trace is
 * replayed; one server is killed under load. Takes two to four minutes of two cores. What cannot be had (Python, the package, the
 * weights) is named, and the exit status is 2: nothing is skipped.
 *
 *   npm run test:real-server -- [--qps N] [--requests N] [--json]
 */
import { spawn } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { parseArgs } from 'node:util';
import { ask, bodyOnWire, eventsOf, json, openTap } from './real-server/http.mjs';
import { bring, main, startRouter, startServer, stop } from './real-server/processes.mjs';

const { values: flags } = parseArgs({
  options: {
    qps: { type: 'string', default: '1' },
    requests: { type: 'string', default: '30' },
    json: { type: 'boolean', default: false },
  },
});
const trace = resolve(import.meta.dirname, '../examples/traces/conversation-sample.jsonl');

const results = [];
/** Notes whether something holds, with its figures. */
function check(name, holds, figures = {}) {
  results.push({ name, passed: holds, ...figures });
  const list = Object.entries(figures).map(([key, value]) => `${key} ${JSON.stringify(value)}`);
  process.stderr.write(
    `${holds ? 'passed' : 'FAILED'} ${name}${list.length > 0 ? `: ${list.join(', ')}` : ''}\n`,
  );
}

/** Greedy and without what earlier prompts left, so that an answer depends on its prompt alone. */
const exact = { model: 'smollm2', max_tokens: 24, temperature: 0, seed: 1, cache_prompt: false };
const prompts = ['The capital of France is', 'Three prime numbers are', 'Über den Wolken 🌥️ und'];
const kinds = [
  ['/v1/completions', (text) => ({ ...exact, prompt: text })],
  ['/v1/chat/completions', (text) => ({ ...exact, messages: [{ role: 'user', content: text }] })],
];

/** An answer without what is different each time: identities and times. */
function lasting(text) {
  if (text === '[DONE]') return text;
  const differs = ['id', 'created', 'timings'];
  return JSON.stringify(JSON.parse(text), (key, value) => (differs.includes(key) ? undefined : value));
}

async function answers(servers, taps, router) {
  const ids = async (url) => (await json(`${url}/v1/models`)).data.map(({ id }) => id);
  const listed = await ids(router.url);
  check('/v1/models lists what the servers list', listed.join() === (await ids(servers[0].url)).join(), {
    listed,
  });
  for (const [path, bodyOf] of kinds) {
    for (const stream of [false, true]) {
      let [bytes, sameBytes, sameText] = [0, 0, 0];
      for (const prompt of prompts) {
        const body = { ...bodyOf(prompt), stream };
        for (const tap of taps) tap.exchanges.length = 0;
        const direct = await ask(servers[0].url + path, body);
        const routed = await ask(router.url + path, body);
        const [exchange] = taps.flatMap(({ exchanges }) => exchanges);
        const texts = ({ body: its }) => (stream ? eventsOf(its) : [its.toString()]).map(lasting).join('\n');
        bytes += routed.body.length;
        if (routed.ended === 'end' && bodyOnWire(exchange).equals(routed.body)) sameBytes++;
        if (direct.status === 200 && routed.status === 200 && texts(direct) === texts(routed)) sameText++;
      }
      const all = prompts.length;
      const figures = { answers: all, bytes, as_on_the_wire: sameBytes, as_asked_directly: sameText };
      const name = `${path}, ${stream ? 'streamed' : 'whole'}: bytes as the server sent them, text as asked directly`;
      check(name, sameBytes === all && sameText === all, figures);
    }
  }
  const wrong = { model: 'smollm2', messages: 'no list' };
  const [direct, routed] = [servers[0], router].map(({ url }) => ask(`${url}/v1/chat/completions`, wrong));
  const statuses = [(await direct).status, (await routed).status];
  check(
    'a bad request is refused with a 4xx',
    statuses.every((status) => status >= 400 && status < 500),
    { statuses },
  );
}

const passedOver = (router) => router.said().match(/\S+ is passed over.*: \S+/g) ?? [];

/** Words that no other family begins with, some 150 tokens. */
function familyText(family) {
  const words = Array.from({ length: 32 }, (_, i) => `item${(family * 7919 + i * 31) % 997}`);
  return `Rules of family ${family}: ${words.join(' ')}.`;
}

async function affinity(taps, router) {
  const [families, turns] = [6, 4];
  const [places, failures] = [[], []];
  let [prompt, cached] = [0, 0];
  for (let turn = 0; turn < turns; turn++) {
    for (let family = 0; family < families; family++) {
      for (const tap of taps) tap.exchanges.length = 0;
      const messages = [
        { role: 'system', content: familyText(family) },
        { role: 'user', content: `Question ${turn}: what is next?` },
      ];
      const answer = await ask(`${router.url}/v1/chat/completions`, {
        model: 'smollm2',
        max_tokens: 2,
        messages,
      });
      if (answer.status !== 200) {
        failures.push(`${answer.status} ${answer.body.toString()}`);
        continue;
      }
      const { usage } = JSON.parse(answer.body.toString());
      (places[family] ??= []).push(taps.findIndex(({ exchanges }) => exchanges.length > 0));
      if (turn === 0) continue;
      prompt += usage.prompt_tokens;
      cached += usage.prompt_tokens_details.cached_tokens;
    }
  }
  const together = places.filter((list) => new Set(list).size === 1).length;
  const figures = {
    families,
    requests: families * turns,
    families_at_one_server: together,
    servers_used: new Set(places.flat()).size,
    cached_share: Number((cached / prompt).toFixed(3)),
    passed_over: passedOver(router),
    failures,
  };
  const holds =
    failures.length === 0 && together === families && figures.servers_used === 2 && cached / prompt > 0.8;
  check('prompts with one prefix meet at one server and find it cached', holds, figures);
}

async function working(servers) {
  const texts = await Promise.all(
    servers.map(async ({ url }) => (await ask(`${url}/metrics`)).body.toString()),
  );
  const sum = (name) =>
    texts.reduce((total, text) => total + Number(new RegExp(`^${name} (\\S+)$`, 'm').exec(text)?.[1]), 0);
  return { running: sum('llamacpp:requests_processing'), predicted: sum('llamacpp:tokens_predicted_total') };
}

const inFlight = async ({ adminUrl }) => {
  const { replicas } = await json(`${adminUrl}/replicas`);
  return replicas.flatMap(({ targets }) => targets).reduce((sum, { in_flight: count }) => sum + count, 0);
};

/** Tokens that a client who stays would get: at 50 tokens a second, longer than the wait below. */
const longAnswer = { model: 'smollm2', max_tokens: 1500, ignore_eos: true, stream: true };

async function leaving(servers, router) {
  const body = { ...longAnswer, prompt: 'Count to a million: one, two,' };
  const left = await ask(`${router.url}/v1/completions`, body, { leaveAfter: 5 });
  const startedMs = performance.now();
  let state;
  do {
    await sleep(50);
    state = { ...(await working(servers)), inFlight: await inFlight(router) };
  } while (state.running + state.inFlight > 0 && performance.now() - startedMs < 5000);
  const figures = {
    server_idle_after_ms: Math.round(performance.now() - startedMs),
    running: state.running,
    in_flight: state.inFlight,
  };
  check(
    'a client that leaves ends its request at the server',
    left.ended === 'left' && state.running + state.inFlight === 0,
    figures,
  );
}

function load(router, requests, args = []) {
  const options = [
    '--qps',
    flags.qps,
    '--requests',
    String(requests),
    '--max-prompt',
    '192',
    '--max-output',
    '16',
  ];
  const child = spawn(
    process.execPath,
    [main, 'load', trace, '--url', router.url, ...options, ...args, '--json'],
    {
      stdio: ['ignore', 'pipe', 'ignore'],
    },
  );
  let text = '';
  child.stdout.on('data', (data) => (text += data));
  return new Promise((resolve) => child.once('exit', () => resolve(JSON.parse(text))));
}

async function replay(router) {
  const summary = await load(router, Number(flags.requests));
  const { succeeded, failed, attainment, ttft_ms: ttft, cached_tokens: cached, errors } = summary;
  const figures = {
    succeeded,
    failed,
    attainment,
    ttft_p50_ms: Math.round(ttft?.p50),
    cached_tokens: cached,
    errors,
  };
  check('dualpath load: no request fails', failed === 0 && summary.complete && cached !== null, figures);
}

/** Conversations' beginnings, eight of them, and an end of its own for each request. */
const sessions = (count) =>
  Array.from({ length: count }, (_, i) => ({
    id: `request-${i}`,
    prefix: [],
    turns: [
      {
        ...{ promptTokens: 96, outputTokens: 16, traceHitTokens: null, arrivalMs: null, thinkMs: null },
        identity: { kind: 'blocks', blockTokens: 32, hashIds: [i % 8, 100 + (i % 8), 1000 + i] },
      },
    ],
  }));

async function killing(servers, router) {
  const { runLoad } = await import(resolve(main, '../../load/index.js'));
  // Before the load, so that what runs there is one of these.
  const streams = Array.from({ length: 4 }, (_, i) => {
    const prompt = `Story ${i * 7919} of the sea.`;
    return ask(`${router.url}/v1/completions`, { ...longAnswer, max_tokens: 400, prompt });
  });
  for (let tries = 0; tries < 100 && (await working([servers[1]])).running === 0; tries++) await sleep(50);
  const sent = [];
  const count = 2 * Number(flags.requests);
  const loaded = runLoad(sessions(count), {
    ...{
      url: router.url,
      model: 'smollm2',
      endpoint: 'completions',
      vocabulary: null,
      arrivals: 'poisson',
      seed: 1,
    },
    ...{ qps: 2 * Number(flags.qps), maxPromptTokens: 96, maxOutputTokens: 16, sloS: 5, concurrency: 64 },
    signal: AbortSignal.timeout(180_000),
    onSent: (result) => sent.push(result),
  });
  await sleep(3000);
  const { running } = await working([servers[1]]);
  await stop(servers[1]);
  await loaded;
  const ended = await Promise.all(streams);
  const whole = ended.filter(
    ({ ended: how, body }) => how === 'end' && eventsOf(body).at(-1) === '[DONE]',
  ).length;
  const broken = ended.filter(({ ended: how, body }) => how !== 'end' && eventsOf(body).length > 0).length;
  const failed = sent.filter(({ ok }) => !ok);
  const lost = failed.filter(({ firstMs }) => firstMs === 0);
  check(
    'one server killed: no request is lost that had not begun to stream',
    lost.length === 0 && sent.length === count,
    {
      requests: sent.length,
      running_on_it: running,
      lost: lost.length,
      cut_while_streaming: failed.length - lost.length,
      passed_over: passedOver(router),
      errors: [...new Set(lost.map(({ status, error }) => `${status} ${error}`))],
    },
  );
  const ends = { long_streams: ended.length, whole, broken };
  check(
    'one server killed: its streams break, and never look whole',
    broken > 0 && whole + broken === ended.length,
    ends,
  );
}

const kit = await Promise.resolve()
  .then(bring)
  .catch((error) => {
    process.stderr.write(`cannot run: ${error.message}\n`);
    process.exit(2);
  });
const scratch = mkdtempSync(join(tmpdir(), 'dualpath-real-server-'));
const secretFile = join(scratch, 'secret');
// The same keys in every run.
writeFileSync(secretFile, 'a secret of this test alone');
const opened = [];
const open = async (promise) => {
  opened.push(await promise);
  return opened.at(-1);
};
for (const signal of ['SIGINT', 'SIGTERM']) {
  process.once(signal, () => {
    for (const { child } of opened) child.kill('SIGKILL');
    rmSync(scratch, { recursive: true, force: true });
    process.exit(1);
  });
}
try {
  const servers = await Promise.all([0, 1].map(() => open(startServer(kit))));
  const taps = await Promise.all(servers.map(({ url }) => openTap(url)));
  const tapped = await open(
    startRouter(
      taps.map(({ url }) => url),
      secretFile,
    ),
  );
  await answers(servers, taps, tapped);
  await affinity(taps, tapped);
  await stop(tapped);
  for (const tap of taps) tap.close();
  const router = await open(
    startRouter(
      servers.map(({ url }) => url),
      secretFile,
    ),
  );
  await leaving(servers, router);
  await replay(router);
  await killing(servers, router);
} finally {
  await Promise.all(opened.map(stop));
  rmSync(scratch, { recursive: true, force: true });
}
const passed = results.every((result) => result.passed);
if (flags.json)
  console.log(JSON.stringify({ server: kit.requirement, emulated: false, passed, results }, null, 2));
process.exitCode = passed ? 0 : 1;
