/** A scheduler (`dualpath serve`), a prefill engine and a decode engine in processes of their own; the front is here. */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { BlockStore, blockLayout, RequestClient, TrafficManager } from 'dualpath';
import { defaults, paths } from './cluster.mjs';

const program = (name) => join(import.meta.dirname, name);
const cli = program('../../dist/cli/main.js');

/** A child of this process. `stop(signal)` resolves when it has ended. */
class Child {
  #child;
  #name;

  constructor(name, args) {
    this.#name = name;
    this.#child = spawn(process.execPath, args, { stdio: ['ignore', 'pipe', 'pipe'] });
  }

  /** What `pattern` finds in what it says; that, and all the rest, goes to stderr if `loud`. */
  async says(pattern, loud) {
    const { stdout, stderr } = this.#child;
    let said = '';
    return await new Promise((resolve, reject) => {
      const take = (chunk) => {
        said += chunk;
        const found = pattern.exec(said);
        if (found !== null) resolve(found);
      };
      stdout.setEncoding('utf8').on('data', take);
      stderr.setEncoding('utf8').on('data', (chunk) => {
        if (loud) process.stderr.write(chunk);
        take(chunk);
      });
      this.#child.once('exit', (code) => reject(new Error(`${this.#name} ended with ${code}: ${said}`)));
    });
  }

  async stop(signal = 'SIGTERM') {
    if (this.#child.exitCode !== null || this.#child.signalCode !== null) return;
    const ended = once(this.#child, 'exit');
    this.#child.kill(signal);
    await ended;
  }
}

/** An engine on this host. @param options of process.mjs */
export async function launchEngine(options) {
  const child = new Child(options.name, [program('process.mjs'), JSON.stringify(options)]);
  await child.says(/^ready$/m, true);
  return child;
}

/** `dualpath route` in front of a server. @returns its URL, and how to stop it */
export async function launchRouter(replica) {
  const child = new Child('dualpath route', [cli, 'route', '--replica', replica, '--port', '0']);
  const [, url] = await child.says(/routing on (\S+) by/, false);
  return { url, stop: () => child.stop() };
}

/** `dualpath serve` takes a model as a file. */
async function launchScheduler(model, { blockTokens, path, host, tokenFile, records, leaseS }) {
  const description = join(records, 'model.json');
  const { groups, ...rest } = model.description;
  const inJson = groups.map(({ windowTokens: window_tokens, planes, ...group }) => ({
    ...{ ...group, window_tokens },
    planes: planes.map(({ name, bytesPerToken: bytes_per_token }) => ({ name, bytes_per_token })),
  }));
  writeFileSync(description, JSON.stringify({ ...rest, groups: inJson }));
  const options = {
    ...{ model: description, listen: `${host}:0`, policy: paths[path].policy, 'block-size': blockTokens },
    ...{
      lease: leaseS,
      grace: 0,
      'max-tries': 5,
      ...(tokenFile === undefined ? {} : { 'token-file': tokenFile }),
    },
  };
  const flags = Object.entries(options).flatMap(([name, value]) => [`--${name}`, String(value)]);
  const child = new Child('dualpath serve', [cli, 'serve', ...flags]);
  const [, endpoint] = await child.says(/scheduler on (\S+), model/, false);
  return { child, endpoint };
}

export class ProcessCluster {
  /** How many times an engine was started. */
  started = 0;
  #engines = new Map();
  #options;
  #scheduler;
  #killAfter = Infinity;
  #count = 0;

  /**
   * @param options as of LocalCluster, and records; transport; shape or gguf: which model the processes open; host: the address
   * to listen on, tokenFile beyond this host; leaseS: an engine not heard so long is lost; launch(options): launchEngine, or another way
   */
  static async open(model, options) {
    const cluster = new ProcessCluster();
    const all = {
      ...defaults,
      host: '127.0.0.1',
      leaseS: 4,
      transport: 'shared-memory',
      launch: launchEngine,
      ...options,
    };
    const layout = blockLayout(model.description, { blockTokens: all.blockTokens });
    cluster.#options = all;
    cluster.store = BlockStore.open({ path: all.storePath, layout });
    const { child, endpoint } = await launchScheduler(model, all);
    cluster.#scheduler = child;
    cluster.endpoint = endpoint;
    cluster.client = new RequestClient({
      ...{ endpoints: [endpoint], model: model.name, client: 'front' },
      ...(all.tokenFile === undefined ? {} : { token: readFileSync(all.tokenFile) }),
    });
    // Looks prompts up; moves nothing.
    cluster.front = new TrafficManager({
      ...{ name: 'front', network: endpoint, layout, store: cluster.store, bufferBlocks: 1 },
    });
    await Promise.all(['prefill', 'decode'].map((role) => cluster.start(role)));
    return cluster;
  }

  /** A name of its own each time: what was said to one that is gone is not heard by the next. */
  async start(role) {
    const { storePath, blockTokens, records, path, contextTokens, windowLayers, layerwise } = this.#options;
    const { transport, shape, gguf, host, tokenFile, launch } = this.#options;
    const name = `${role}-${++this.started}`;
    const engine = await launch({
      ...{ role, name, scheduler: this.endpoint, listen: { host, port: 0 }, storePath, blockTokens, records },
      ...{ transport, path, contextTokens, windowLayers, layerwise, shape, gguf, tokenFile },
    });
    this.#engines.set(role, engine);
  }

  /** kill -9, and another one in its place. */
  async killAndReplace(role) {
    await this.#engines.get(role).stop('SIGKILL');
    await this.start(role);
  }

  async submit({ prompt, maxNewTokens, signal }) {
    const request = `request-${++this.#count}`;
    const chain = await this.front.lookup(prompt);
    const { hitTokens } = chain;
    chain.release();
    const payload = new Uint8Array(prompt.buffer, prompt.byteOffset, prompt.byteLength);
    const submitted = this.client.submit({
      ...{ key: request, promptTokens: prompt.length, hitTokens, maxNewTokens, payload, signal },
    });
    await submitted.accepted;
    return { request: `front/${request}`, hitTokens, stream: this.#watched(submitted.tokens()) };
  }

  /** Kills the decode engine once so many tokens of the next request have come. */
  killDuring(tokens) {
    this.#killAfter = tokens;
  }

  async *#watched(stream) {
    let killing;
    for await (const part of stream) {
      yield part;
      if (part.first + part.tokens.length < this.#killAfter) continue;
      this.#killAfter = Infinity;
      killing = this.killAndReplace('decode');
    }
    await killing;
  }

  async close() {
    await this.client.close();
    for (const engine of this.#engines.values()) await engine.stop();
    await this.#scheduler.stop();
    await this.front.close();
  }
}
