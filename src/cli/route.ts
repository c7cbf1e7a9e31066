import { hash, randomBytes } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { setFlagsFromString } from 'node:v8';
import { Command, InvalidArgumentError } from 'commander';
import { DualPathError } from '../errors/index.js';
import type { ProxyOptions, ReplicaConfig } from '../proxy/index.js';
import { addLogOptions, openCommandLog, type LogFlags } from './log-options.js';
import {
  addExamples,
  addOutputOptions,
  contextOf,
  listOf,
  nonNegativeInteger,
  positiveInteger,
  positiveNumber,
  sizeBytes,
  untilAborted,
} from './support.js';

interface Flags extends LogFlags {
  replica: ReplicaConfig[];
  replicasFile?: string;
  host: string;
  port: number;
  adminHost: string;
  adminPort?: number;
  adminTokenFile?: string;
  policy: string;
  slo: number;
  prefillUs: number;
  cacheTokens: number;
  stepTokens: number;
  blockTokens: number;
  bytesPerToken: number;
  secretFile?: string;
  tenants?: string;
  volatileLine: RegExp[];
  peers?: string[];
  maxBody: number;
  maxWaiting: number;
  timeoutS: number;
  hungS: number;
}

/** `dualpath route`: the router as an HTTP proxy. */
export function routeCommand(): Command {
  const command = new Command('route')
    .description('route requests to OpenAI-compatible servers by prefix and load (HTTP/1.1)')
    .option(
      '--replica <url[,key=value]>',
      'a server; keys: name, ranks, engine (vllm or sglang), weight, cache_tokens, kv_events, kv_replay; repeat',
      replicaFlag,
      [],
    )
    .option('--replicas-file <path>', 'JSON list of servers, followed as it changes')
    .option('--host <address>', 'address to listen on', '127.0.0.1')
    .option('--port <port>', 'port; 0: any', nonNegativeInteger, 8000)
    .option('--admin-port <port>', 'port of metrics and administration (default: none)', nonNegativeInteger)
    .option('--admin-host <address>', 'its address', '127.0.0.1')
    .option('--admin-token-file <path>', 'file with its bearer token; needed beyond this machine')
    .option('--policy <name>', 'dualmap, dualmap-variant, late-lane, or another of route-eval', 'dualmap')
    .option('--slo <seconds>', 'time to first token that is good', positiveNumber, 5)
    .option('--prefill-us <us>', "the servers' prefill time of an uncached token", positiveNumber, 160)
    .option('--cache-tokens <count>', 'tokens that a prefix cache holds', positiveInteger, 1_000_000)
    .option(
      '--step-tokens <count>',
      'tokens of a prefill step; two are with a server at once',
      positiveInteger,
      8192,
    )
    .option('--block-tokens <count>', 'tokens of a block of the router', positiveInteger, 128)
    .option('--bytes-per-token <count>', 'bytes of text that count as a token', positiveInteger, 4)
    .option(
      '--secret-file <path>',
      'secret of the keys; the same for routers side by side (default: made up)',
    )
    .option('--tenants <path>', 'JSON {"tenant": ["SHA-256 of its bearer token, hex"]}; others get 401')
    .option(
      '--volatile-line <regexp>',
      'line of system prompts that is no part of the key; repeat',
      regexFlag,
      [],
    )
    .option('--peers <list>', 'admin URLs of the other routers', listOf(String))
    .option('--max-body <size>', 'largest body', sizeBytes, 64 * 1024 * 1024)
    .option(
      '--max-waiting <count>',
      'requests that wait at the router before it answers 429',
      positiveInteger,
      4096,
    )
    .option('--timeout-s <seconds>', 'deadline of a request', positiveNumber, 600)
    .option('--hung-s <seconds>', 'without bytes and progress so long, a server hangs', positiveNumber, 3);
  addLogOptions(command);
  addOutputOptions(command);
  addExamples(
    command,
    'dualpath route --replica http://127.0.0.1:8001 --replica http://127.0.0.1:8002',
    'dualpath route --replica http://gpu-1:8000,ranks=8 --replica http://gpu-2:30000,engine=sglang --admin-port 9000',
  );
  return command.action(runRoute);
}

async function runRoute(flags: Flags, command: Command): Promise<void> {
  const context = contextOf(command);
  // A full collection takes the router's core for tens of milliseconds: one for each tenfold of what the last one left.
  setFlagsFromString('--heap-growing-percent=900');
  const { Proxy, readReplicasFile, watchReplicasFile } = await import('../proxy/index.js');
  const { replicasFile } = flags;
  const listed = replicasFile === undefined ? [] : readReplicasFile(replicasFile);
  if (flags.replica.length + listed.length === 0 && flags.adminPort === undefined) {
    throw new DualPathError(
      'INVALID_ARGUMENT',
      'there is no server to route to: give --replica, --replicas-file, or --admin-port to add some later',
    );
  }
  const log = await openCommandLog(flags, context, { service: 'router' });
  const options = await optionsOf(flags, [...flags.replica, ...listed]);
  const proxy = new Proxy({ ...options, log: log?.log ?? null }, (message) => context.note(message));
  let stopWatching = (): void => undefined;
  try {
    await proxy.start();
    context.note(`routing on http://${flags.host}:${proxy.port} by ${flags.policy}`);
    if (proxy.adminPort !== null) context.note(`admin on http://${flags.adminHost}:${proxy.adminPort}`);
    for (const { name, models } of proxy.fleet.status()) {
      context.note(`  ${name}: ${models === null ? 'no answer yet' : models.join(', ')}`);
    }
    if (replicasFile !== undefined) {
      const note = (error: unknown): void => context.note(`kept the replicas as they were: ${String(error)}`);
      stopWatching = watchReplicasFile(
        replicasFile,
        (configs) => void proxy.fleet.set([...flags.replica, ...configs]).catch(note),
        note,
      );
    }
    await untilAborted(context.signal);
    context.note('closing: requests under way are given 10 s');
  } finally {
    stopWatching();
    await proxy.close();
  }
  const requests = await proxy.metrics.requests.get();
  const ended = requests.values.map(({ labels, value }) => ({ ...labels, count: value }));
  context.result(
    { requests: ended },
    () => `requests ended: ${ended.reduce((sum, { count }) => sum + count, 0)}`,
  );
}

async function optionsOf(flags: Flags, replicas: ReplicaConfig[]): Promise<Partial<ProxyOptions>> {
  const { defaultLimits, defaultTimes, defaultOptions, readTenants } = await import('../proxy/index.js');
  const { adminTokenFile, secretFile, tenants } = flags;
  return {
    host: flags.host,
    port: flags.port,
    adminHost: flags.adminHost,
    adminPort: flags.adminPort ?? null,
    adminToken: adminTokenFile === undefined ? null : readSecret(adminTokenFile).toString('utf8').trim(),
    replicas,
    policy: flags.policy,
    sloS: flags.slo,
    prefillSPerToken: flags.prefillUs / 1e6,
    cacheTokens: flags.cacheTokens,
    dispatchedTokensMax: 2 * flags.stepTokens,
    blockTokens: flags.blockTokens,
    bytesPerToken: flags.bytesPerToken,
    secret: secretFile === undefined ? randomBytes(32) : hash('sha256', readSecret(secretFile), 'buffer'),
    tenants: tenants === undefined ? null : readTenants(tenants),
    volatileLines: [...defaultOptions.volatileLines, ...flags.volatileLine],
    peers: flags.peers ?? [],
    limits: { ...defaultLimits, bodyBytes: flags.maxBody, waitingRequests: flags.maxWaiting },
    times: { ...defaultTimes, deadlineMs: 1000 * flags.timeoutS, hungMs: 1000 * flags.hungS },
  };
}

function readSecret(path: string): Buffer {
  let secret: Buffer;
  try {
    secret = readFileSync(path);
  } catch (error) {
    throw new DualPathError('INVALID_ARGUMENT', `${path} cannot be read: ${String(error)}`, { path });
  }
  if (secret.length >= 16) return secret;
  throw new DualPathError(
    'INVALID_ARGUMENT',
    `the secret in ${path} has ${secret.length} bytes: give 16 or more, such as from openssl rand -hex 32`,
    { path },
  );
}

const replicaKeys = ['name', 'ranks', 'engine', 'weight', 'cache_tokens', 'kv_events', 'kv_replay'];

function replicaFlag(text: string, before: ReplicaConfig[]): ReplicaConfig[] {
  const [url = '', ...pairs] = text.split(',');
  const values: Record<string, string> = {};
  for (const pair of pairs) {
    const [key = '', value = ''] = pair.split('=');
    if (!replicaKeys.includes(key) || value === '') {
      throw new InvalidArgumentError(`${pair} is none of ${replicaKeys.join('=, ')}= with a value.`);
    }
    values[key] = value;
  }
  const number = (key: string): number | undefined =>
    values[key] === undefined ? undefined : Number(values[key]);
  const { kv_events: endpoint, kv_replay: replay } = values;
  if (endpoint === undefined && replay !== undefined) {
    throw new InvalidArgumentError(`kv_replay=${replay} needs kv_events= beside it.`);
  }
  const config: ReplicaConfig = {
    url,
    name: values['name'],
    ranks: number('ranks'),
    engine: values['engine'] as ReplicaConfig['engine'],
    weight: number('weight'),
    cacheTokens: number('cache_tokens'),
    kvEvents: endpoint === undefined ? undefined : { endpoint, replay },
  };
  return [...before, config];
}

function regexFlag(text: string, before: RegExp[]): RegExp[] {
  try {
    return [...before, new RegExp(text, 'gm')];
  } catch (error) {
    throw new InvalidArgumentError(`Give a regular expression: ${String(error)}`);
  }
}
