/** A scheduler, a prefill engine and a decode engine in processes of their own; the front is here. */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { join } from 'node:path';
import { BlockStore, blockLayout, RequestClient, SchedulerServer, TrafficManager } from 'dualpath';
import { defaults, schedulerOptions } from './cluster.mjs';

const local = { host: '127.0.0.1', port: 0 };

export class ProcessCluster {
  /** How many times an engine was started. */
  started = 0;
  #processes = new Map();
  #options;
  #killAfter = Infinity;
  #count = 0;

  /** @param options as of LocalCluster, and records, transport, and shape or gguf: which model the processes open */
  static async open(model, options) {
    const cluster = new ProcessCluster();
    const all = { ...defaults, ...options };
    const layout = blockLayout(model.description, { blockTokens: all.blockTokens });
    cluster.#options = all;
    cluster.store = BlockStore.open({ path: all.storePath, layout });
    const leases = schedulerOptions(cluster.store, all.path);
    cluster.scheduler = await SchedulerServer.open({
      listen: local,
      leases: { ...leases, model: model.name, leaseS: 2, graceS: 0, maxTries: 5 },
    });
    const { host, port } = cluster.scheduler.address;
    cluster.endpoint = `${host}:${port}`;
    cluster.client = new RequestClient({ endpoints: [cluster.endpoint], model: model.name, client: 'front' });
    // Looks prompts up; moves nothing.
    cluster.front = new TrafficManager({
      ...{ name: 'front', network: cluster.endpoint, layout, store: cluster.store, bufferBlocks: 1 },
    });
    await Promise.all(['prefill', 'decode'].map((role) => cluster.start(role)));
    return cluster;
  }

  /** A name of its own each time: what was said to one that is gone is not heard by the next. */
  async start(role) {
    const { storePath, blockTokens, records, path, contextTokens, windowLayers, layerwise } = this.#options;
    const { transport = 'shared-memory', shape, gguf } = this.#options;
    const options = {
      ...{
        role,
        name: `${role}-${++this.started}`,
        scheduler: this.endpoint,
        listen: local,
        storePath,
        blockTokens,
        records,
      },
      ...{ transport, path, contextTokens, windowLayers, layerwise, shape, gguf },
    };
    const child = spawn(
      process.execPath,
      [join(import.meta.dirname, 'process.mjs'), JSON.stringify(options)],
      {
        stdio: ['ignore', 'pipe', 'inherit'],
      },
    );
    this.#processes.set(role, child);
    await Promise.race([
      once(child.stdout, 'data'),
      once(child, 'exit').then(([code]) =>
        Promise.reject(new Error(`the ${role} process ended with ${code}`)),
      ),
    ]);
  }

  /** kill -9, and another one in its place. */
  async killAndReplace(role) {
    const child = this.#processes.get(role);
    child.kill('SIGKILL');
    await once(child, 'exit');
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
    for (const child of this.#processes.values()) {
      if (child.exitCode !== null) continue;
      child.kill('SIGTERM');
      await once(child, 'exit');
    }
    await this.scheduler.close();
    await this.front.close();
  }
}
