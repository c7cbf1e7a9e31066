import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { readReplicasFile, readTenants, watchReplicasFile } from '../../src/proxy/index.js';
import { completion, post, stage, until } from './support.js';

interface Status {
  replicas: { name: string; draining: boolean; targets: { ejected: string | null }[] }[];
  peers: string[];
}

describe('the admin API', () => {
  it('adds, drains and removes replicas while requests come', async () => {
    await using at = await stage(1);
    await using more = await stage(1);
    const { url } = more.replicas[0]!;
    const name = url.slice('http://'.length);
    const admin = async (method: string, path: string, body?: object): Promise<number> =>
      (
        await fetch(at.adminUrl + path, {
          method,
          ...(body === undefined ? {} : { body: JSON.stringify(body) }),
        })
      ).status;
    const status = async (): Promise<Status> =>
      (await (await fetch(`${at.adminUrl}/replicas`)).json()) as Status;
    let stop = false;
    const statuses: number[] = [];
    const asking = (async (): Promise<void> => {
      for (let i = 0; !stop; i++) {
        const body = completion(`${i} `.repeat(300), { stream: i % 2 === 0 });
        statuses.push((await post(`${at.url}/v1/completions`, body)).status);
      }
    })();
    expect(await admin('POST', '/replicas', { url })).toBe(201);
    expect(await admin('POST', '/replicas', { url })).toBe(409);
    expect(await admin('POST', '/replicas', { url: 'x' })).toBe(409);
    expect(await admin('POST', '/replicas', { rul: 'x' })).toBe(400);
    await until(() => more.replicas[0]!.engines[0]!.finished > 0, 'the new one is used');
    expect(await admin('POST', `/replicas/${name}/drain`)).toBe(200);
    expect((await status()).replicas.map(({ draining }) => draining)).toEqual([false, true]);
    expect(await admin('DELETE', `/replicas/${name}`)).toBe(200);
    expect(await admin('DELETE', `/replicas/${name}`)).toBe(404);
    expect(await admin('GET', '/nothing')).toBe(404);
    stop = true;
    await asking;
    expect(statuses.filter((code) => code !== 200)).toEqual([]);
    const metrics = await (await fetch(`${at.adminUrl}/metrics`)).text();
    expect(metrics).toMatch(/dualpath_router_requests_total\{api="completions",outcome="ok"\} \d+/);
  });

  it('asks for its token', async () => {
    await using at = await stage(0, { adminToken: 'a token of some length' });
    expect((await fetch(`${at.adminUrl}/replicas`)).status).toBe(401);
    const headers = { authorization: 'Bearer a token of some length' };
    expect((await fetch(`${at.adminUrl}/replicas`, { headers })).status).toBe(200);
  });

  it('lets routers side by side tell each other loads and depths', async () => {
    await using one = await stage(2);
    const replicas = one.replicas.map(({ url }) => ({ url }));
    await using two = await stage(0, { replicas, peers: [one.adminUrl] });
    one.replicas[0]!.setFault({ kind: 'hang' });
    one.replicas[1]!.setFault({ kind: 'hang' });
    const controller = new AbortController();
    const pending = fetch(`${two.url}/v1/completions`, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify(completion('x'.repeat(40_000), { stream: true })),
      signal: controller.signal,
    }).catch(() => undefined);
    const heard = (): number[] =>
      [...one.proxy.fleet.routing.targets.values()].map(({ peerTokens }) => peerTokens);
    await until(() => heard().some((tokens) => tokens > 9000), 'the other router has heard of it');
    controller.abort();
    await pending;
    await until(() => heard().every((tokens) => tokens === 0), 'and of its end');
  });
});

describe('files', () => {
  it('of replicas are followed, bad ones are not', async () => {
    const folder = mkdtempSync(join(tmpdir(), 'replicas-'));
    const path = join(folder, 'replicas.json');
    try {
      writeFileSync(path, '["http://a:1", {"url": "http://b:1", "ranks": 2, "cache_tokens": 5}]');
      expect(readReplicasFile(path)).toEqual([
        { url: 'http://a:1' },
        { url: 'http://b:1', ranks: 2, cacheTokens: 5 },
      ]);
      const seen: number[] = [];
      let errors = 0;
      const stop = watchReplicasFile(
        path,
        (replicas) => seen.push(replicas.length),
        () => errors++,
        20,
      );
      writeFileSync(path, '["http://a:1"]  ');
      await until(() => seen.at(-1) === 1, 'the change is seen');
      writeFileSync(path, '[{"rul": "http://a:1"}]');
      await until(() => errors > 0, 'the mistake is reported');
      stop();
    } finally {
      rmSync(folder, { recursive: true });
    }
  });

  it('of tenants name digests, each once', () => {
    const folder = mkdtempSync(join(tmpdir(), 'tenants-'));
    const path = join(folder, 'tenants.json');
    const digest = 'ab'.repeat(32);
    try {
      writeFileSync(path, JSON.stringify({ a: [digest] }));
      expect(readTenants(path).get(digest)).toBe('a');
      for (const bad of ['{', '{"a": ["token"]}', JSON.stringify({ a: [digest], b: [digest] })]) {
        writeFileSync(path, bad);
        expect(() => readTenants(path)).toThrow(path);
      }
    } finally {
      rmSync(folder, { recursive: true });
    }
  });
});
