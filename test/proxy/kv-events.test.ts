/** The router beside replicas that publish what they cache. */
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { PromptKeys } from '../../src/openai/index.js';
import { Proxy, readReplicasFile, type ProxyOptions } from '../../src/proxy/index.js';
import { EmulatedReplica } from '../../src/replica/index.js';
import { batch, promptOf, stored, TestPublisher } from '../kv-events/support.js';
import { completion, post, stage, until, type Stage } from './support.js';
import { mkdtempSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

const ids = Array.from({ length: 1024 }, (_, i) => 31 * i);

describe('KV events at the router', () => {
  let publishers: TestPublisher[];
  let replicas: EmulatedReplica[];

  beforeEach(async () => {
    publishers = [await TestPublisher.open(), await TestPublisher.open()];
    replicas = [0, 1].map(() => new EmulatedReplica({ port: 0, tokenMs: 1 }));
    for (const replica of replicas) await replica.start();
  });

  afterEach(async () => {
    for (const publisher of publishers) publisher.close();
    for (const replica of replicas) await replica.close();
  });

  function route(options: Partial<Omit<ProxyOptions, 'limits' | 'times'>> = {}): Promise<Stage> {
    const configs = replicas.map(({ url }, i) => ({
      url,
      name: `r${i}`,
      kvEvents: { endpoint: publishers[i]!.endpoint, replay: publishers[i]!.replayEndpoint },
    }));
    return stage(0, { replicas: configs, policy: 'max-hit', ...options });
  }

  /** All of the ids but the last block. */
  function wholePrompt(size = 16): Uint8Array {
    const hashes = Array.from({ length: ids.length / size }, (_, i) => Buffer.from([i >> 8, i & 255, 1]));
    return batch([stored(hashes, null, ids, size)]);
  }

  /** Sends nothing, again and again, until the router knows what is cached at both. */
  async function known(at: Stage): Promise<void> {
    await until(() => {
      for (const publisher of publishers) void publisher.send(batch([]));
      return [...at.proxy.fleet.routing.targets.values()].every(
        ({ accounts }) => accounts.get('emulated')?.instance.reported?.isWhole === true,
      );
    }, 'what is cached is known');
  }

  function requestsAt(index: number): number {
    return replicas[index]!.engines[0]!.promptTokens;
  }

  it('sends ids where others have brought them into the cache, and text by its own prediction', async () => {
    for (const index of [0, 1]) {
      const other = await route();
      try {
        for (const each of publishers) await each.send(batch([['AllBlocksCleared']]));
        await publishers[index]!.send(wholePrompt());
        await known(other);
        const before = requestsAt(1 - index);
        for (let i = 0; i < 4; i++) await post(`${other.url}/v1/completions`, completion(ids));
        expect(requestsAt(1 - index)).toBe(before);
        await post(`${other.url}/v1/completions`, completion('text that nobody has'));
        const { values } = await other.proxy.metrics.kvEvents.get();
        expect(values.find(({ labels }) => labels.type === 'stored')?.value).toBeGreaterThan(0);
      } finally {
        await other[Symbol.asyncDispose]();
      }
    }
  });

  it('counts on nothing that has been evicted, although it sent it there itself', async () => {
    await using at = await route();
    await known(at);
    await publishers[0]!.send(wholePrompt());
    await post(`${at.url}/v1/completions`, completion(ids));
    const [account] = [...at.proxy.fleet.routing.targets.get('r0')!.accounts.values()];
    const { instance, router } = account!;
    await until(() => instance.reported!.size === 8, 'eight blocks are cached');
    const keyed = new PromptKeys(at.proxy.options).keysOf(promptOf([...ids, 1]), '');
    instance.cache.touch(keyed.keys, 0, keyed.blocks);
    const hits = (): number => {
      const request = router.submit({ ...keyed, id: 1, firstBlock: 0 }, performance.now() / 1000, 'r0');
      const { hitBlocks } = request;
      router.cancelled(request, performance.now() / 1000);
      return hitBlocks;
    };
    expect(hits()).toBe(8);
    const evicted = Array.from({ length: 60 }, (_, i) => Buffer.from([0, 63 - i, 1]));
    await publishers[0]!.send(batch([{ type: 'BlockRemoved', block_hashes: evicted, medium: 'GPU' }]));
    await until(() => hits() === 0, 'all but half a block is gone');
    expect(instance.cache.match(keyed.keys, 0, keyed.blocks)).toBe(8);
    await publishers[0]!.send(batch([['AllBlocksCleared']]));
    await until(() => instance.cache.size === 0, 'the prediction is gone with the cache');
  });

  it('says what it knows in its metrics, and stops when a replica goes', async () => {
    await using at = await route();
    await publishers[0]!.send(wholePrompt());
    await known(at);
    const text = async (): Promise<string> => (await fetch(`${at.adminUrl}/metrics`)).text();
    expect(await text()).toContain('dualpath_router_kv_event_blocks{target="r0",model="emulated"} 64');
    expect(await text()).toContain('dualpath_router_kv_event_whole{target="r1",model="emulated"} 1');
    await publishers[0]!.send(batch([]), true);
    await publishers[0]!.send(batch([]));
    const { kvEventGaps } = at.proxy.metrics;
    const filled = async (): Promise<number> =>
      (await kvEventGaps.get()).values.find(({ labels }) => labels['outcome'] === 'replayed')?.value ?? 0;
    while ((await filled()) === 0) await new Promise((resolve) => setTimeout(resolve, 10));
    await at.proxy.fleet.remove('r0');
    expect(await text()).not.toContain('kv_event_blocks{target="r0"');
  });

  it('refuses them beside tenants, since events do not say whose a block is', () => {
    const [publisher] = publishers;
    const kvEvents = { endpoint: publisher!.endpoint };
    const proxy = new Proxy({ tenants: new Map([['a'.repeat(64), 'a']]), port: 0 });
    expect(() => proxy.fleet.add({ url: replicas[0]!.url, kvEvents })).toThrow(/run without tenants/);
  });

  it('refuses endpoints that are none, and reads them from a file', () => {
    const proxy = new Proxy({ port: 0 });
    const { url } = replicas[0]!;
    expect(() => proxy.fleet.add({ url, kvEvents: { endpoint: 'tcp://*:5557' } })).toThrow(/tcp:\/\/10/);
    const path = join(mkdtempSync(join(tmpdir(), 'replicas-')), 'replicas.json');
    const events = { endpoint: 'tcp://h:5557', replay: 'tcp://h:5558' };
    writeFileSync(path, JSON.stringify([{ url, kv_events: events }]));
    expect(readReplicasFile(path)).toMatchObject([{ url, kvEvents: events }]);
  });
});
