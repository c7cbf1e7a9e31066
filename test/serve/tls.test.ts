/** The service over TLS: both clients by the authority that they are given, and nobody else. */
import { execFileSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, afterEach, expect, it } from 'vitest';
import { RequestClient } from '../../src/scheduler-client/index.js';
import { endpointOf, FakeEngine, model, openServer, request, until } from './support.js';

const folder = mkdtempSync(join(tmpdir(), 'dualpath-tls-'));
afterAll(() => rmSync(folder, { recursive: true, force: true }));
const closing: { close(): Promise<void> }[] = [];
const closes = <T extends { close(): Promise<void> }>(one: T): T => {
  closing.push(one);
  return one;
};
afterEach(async () => {
  for (const one of closing.splice(0).reverse()) await one.close();
});

function certificate(name: string): { key: Buffer; cert: Buffer } {
  const [key, cert] = [join(folder, `${name}-key.pem`), join(folder, `${name}.pem`)];
  const curve = ['-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:prime256v1', '-nodes', '-days', '2'];
  const subject = ['-subj', `/CN=${name}`, '-addext', 'subjectAltName=IP:127.0.0.1'];
  execFileSync('openssl', ['req', '-x509', ...curve, ...subject, '-keyout', key, '-out', cert], {
    stdio: 'pipe',
  });
  return { key: readFileSync(key), cert: readFileSync(cert) };
}

it('engines and clients that have the certificate and the token are served, others are not', async () => {
  const own = certificate('scheduler');
  const token = Buffer.from('a token of more than sixteen bytes');
  const server = closes(await openServer({}, { tls: own, token }));
  const at = [endpointOf(server)];
  const tls = { ca: own.cert };
  closes(new FakeEngine('prefill', 'p1', at, { tls, token }));
  closes(new FakeEngine('decode', 'd1', at, { tls, token }));
  const client = (options: object): RequestClient =>
    closes(new RequestClient({ endpoints: at, model, client: 'front', ...options }));
  expect(await client({ tls, token }).submit(request).ended).toMatchObject({ tokens: 3 });

  const without = client({ tls, client: 'without' }).submit(request);
  await expect(without.ended).rejects.toMatchObject({ code: 'UNAUTHENTICATED' });
  const strangers = [
    client({ token, client: 'plain' }), // speaks no TLS
    client({ tls: { ca: certificate('other').cert }, token, client: 'stranger' }), // trusts another
  ].map((one) => one.submit(request));
  await client({ tls, token, client: 'later' }).submit(request).ended;
  await until(() => server.ledger!.statistics().completed === 2, 'two are through');
  expect(strangers.map(({ wasAccepted }) => wasAccepted)).toEqual([false, false]);
});

it('with an authority each client must have a certificate of it, too', async () => {
  const own = certificate('both');
  const token = Buffer.from('a token of more than sixteen bytes');
  const server = closes(await openServer({}, { tls: { ...own, ca: own.cert }, token }));
  const at = [endpointOf(server)];
  closes(new FakeEngine('prefill', 'p1', at, { tls: { ...own, ca: own.cert }, token }));
  closes(new FakeEngine('decode', 'd1', at, { tls: { ...own, ca: own.cert }, token }));
  const options = { endpoints: at, model, token };
  const bare = closes(new RequestClient({ ...options, client: 'bare', tls: { ca: own.cert } }));
  const waits = bare.submit(request);
  const known = closes(new RequestClient({ ...options, client: 'known', tls: { ...own, ca: own.cert } }));
  await known.submit(request).ended;
  expect(waits.wasAccepted).toBe(false);
});
