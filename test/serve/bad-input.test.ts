/** What is wrong is refused, with the value, the limit and the remedy, and hurts nobody else. */
import { Client, credentials, Metadata, status, type ServiceError } from '@grpc/grpc-js';
import { afterEach, describe, expect, it } from 'vitest';
import { isDualPathError } from '../../src/errors/index.js';
import { RequestClient } from '../../src/scheduler-client/index.js';
import {
  engineMessage,
  schedulerService,
  type EngineCommand,
  type EngineMessage,
} from '../../src/wire/index.js';
import { SchedulerServer } from '../../src/serve/index.js';
import {
  capacityOf,
  endpointOf,
  FakeEngine,
  model,
  openClient,
  openServer,
  request,
  until,
} from './support.js';

const closing: { close(): Promise<void> }[] = [];
const closes = <T extends { close(): Promise<void> }>(one: T): T => {
  closing.push(one);
  return one;
};

afterEach(async () => {
  for (const one of closing.splice(0).reverse()) await one.close();
});

/** A stream that says what it likes. */
class RawLeader {
  readonly received: EngineCommand[] = [];
  error: ServiceError | undefined;
  readonly #client: Client;
  readonly #stream;

  constructor(server: SchedulerServer, metadata = new Metadata()) {
    this.#client = new Client(endpointOf(server), credentials.createInsecure());
    const { path, requestSerialize, responseDeserialize } = schedulerService.Engines;
    this.#stream = this.#client.makeBidiStreamRequest(path, requestSerialize, responseDeserialize, metadata);
    this.#stream.on('data', (command: EngineCommand) => this.received.push(command));
    this.#stream.on('error', (error: ServiceError) => {
      this.error = error;
    });
  }

  say(message: EngineMessage): void {
    this.#stream.write(message);
  }

  hello(changes: object = {}): void {
    const engines = [engineMessage({ capacity: capacityOf('prefill', 'p1'), incarnation: 1, addresses: {} })];
    const hello = { version: { min: 1, max: 1 }, model, group: 'p1', engines, ...changes };
    this.say({ sequence: 1, renewal: 1, hello });
  }

  async refused(): Promise<ServiceError> {
    await until(() => this.error !== undefined, 'the stream has ended');
    return this.error!;
  }

  close(): Promise<void> {
    this.#stream.cancel();
    this.#client.close();
    return Promise.resolve();
  }
}

describe('requests that cannot be', () => {
  it.each([
    ['unknown model', { model: 'other' }, 'INVALID_ARGUMENT', /'other'.*serves 'tiny'/],
    [
      'larger than any HBM',
      { promptTokens: 390, hitTokens: 0, maxNewTokens: 500 },
      'REQUEST_TOO_LARGE',
      /the most is 100 buffer blocks and 200 HBM/,
    ],
    [
      'larger than any buffer',
      { promptTokens: 404, hitTokens: 0 },
      'REQUEST_TOO_LARGE',
      /needs 102 buffer blocks/,
    ],
    ['no prompt', { promptTokens: 0, hitTokens: 0 }, 'INVALID_ARGUMENT', /promptTokens.*is 0/],
    ['negative', { promptTokens: -5, hitTokens: 0 }, 'INVALID_ARGUMENT', /is -5/],
    ['hits that are no blocks', { hitTokens: 7 }, 'INVALID_ARGUMENT', /hitTokens.*is 7/],
    [
      'a payload too large',
      { payload: new Uint8Array((1 << 20) + 1) },
      'REQUEST_TOO_LARGE',
      /1048577 bytes, the limit is 1048576/,
    ],
    ['a key too long', { key: 'k'.repeat(513) }, 'INVALID_ARGUMENT', /513 characters/],
    ['a deadline before now', { deadlineS: -1e-9 }, 'DEADLINE', /within/],
  ])('%s', async (_what, changes, code, message) => {
    const server = closes(await openServer());
    const at = [endpointOf(server)];
    const engines = [closes(new FakeEngine('prefill', 'p1', at)), closes(new FakeEngine('decode', 'd1', at))];
    for (const engine of engines) engine.idle = true;
    const client = closes(openClient(at));
    await until(() => server.ledger!.statistics().engines === 2, 'both engines have joined');
    const error: unknown = await client
      .submit({ ...request, ...changes })
      .ended.catch((cause: unknown) => cause);
    expect(error).toMatchObject({ code, message: expect.stringMatching(message) as string });
  });

  it('a full queue says its limit and when to come again', async () => {
    const server = closes(await openServer({ maxWaiting: 2 }));
    const client = closes(openClient([endpointOf(server)]));
    const all = [1, 2, 3].map((i) => client.submit({ ...request, key: `k${i}` }));
    const error: unknown = await all[2]!.accepted.catch((cause: unknown) => cause);
    expect(error).toMatchObject({
      code: 'CAPACITY_EXHAUSTED',
      message: expect.stringMatching(/limit is 2/) as string,
    });
    expect(isDualPathError(error) && error.details['retry_after_s']).toBeGreaterThan(0);
    expect(server.ledger!.statistics()).toMatchObject({ waiting: 2, refused: 1 });
  });
});

describe('leaders that cannot be believed', () => {
  it.each([
    ['no hello', { sequence: 1, fetch: {} }, status.INVALID_ARGUMENT, /no hello/],
    ['another version', { version: { min: 2, max: 9 } }, status.INVALID_ARGUMENT, /versions 2 to 9.*1 to 1/],
    ['another model', { model: 'other' }, status.INVALID_ARGUMENT, /serves 'tiny'/],
    ['no engines', { engines: [] }, status.INVALID_ARGUMENT, /has 0 engines/],
    [
      'a role that is none',
      { engines: [{ name: 'x', group: 'p1', incarnation: 1 }] },
      status.INVALID_ARGUMENT,
      /role/,
    ],
    [
      'negative HBM',
      {
        engines: [
          engineMessage({
            capacity: capacityOf('prefill', 'p1', { hbmBlocks: -1 }),
            incarnation: 1,
            addresses: {},
          }),
        ],
      },
      status.INVALID_ARGUMENT,
      /hbmBlocks.*is -1/,
    ],
    [
      'a rate that is no number',
      {
        engines: [
          engineMessage({
            capacity: capacityOf('prefill', 'p1', { readRateBytesPerS: NaN }),
            incarnation: 1,
            addresses: {},
          }),
        ],
      },
      status.INVALID_ARGUMENT,
      /NaN/,
    ],
  ])('%s', async (_what, said, code, message) => {
    const server = closes(await openServer());
    const leader = closes(new RawLeader(server));
    if ('sequence' in said) leader.say(said);
    else leader.hello(said);
    const error = await leader.refused();
    expect(error.code).toBe(code);
    expect(error.details).toMatch(message);
    expect(server.ledger!.statistics().engines).toBe(0);
  });

  it('nonsense in a load is counted and not used; the leader stays', async () => {
    const server = closes(await openServer());
    const leader = closes(new RawLeader(server));
    leader.hello();
    const load = {
      engine: 'p1',
      sequence: 1,
      unfinishedRequests: 1,
      unfinishedTokens: 1,
      nodeReadQueueBlocks: 1,
    };
    leader.say({ sequence: 2, fetch: { loads: [{ ...load, unfinishedTokens: -3 }], credits: 4 } });
    leader.say({
      sequence: 3,
      fetch: { loads: [{ ...load, nodeReadBytes: NaN, nodeReadBusyS: 1 }], credits: 4 },
    });
    leader.say({ sequence: 4, fetch: { loads: [{ ...load, engine: 'stranger' }], credits: 4 } });
    const notices = (): string[] =>
      leader.received.flatMap((one) => (one.notices ?? []).map((n) => n.message ?? ''));
    await until(() => notices().length === 3, 'three notices');
    expect(notices()[0]).toMatch(/unfinishedTokens.*is -3/);
    expect(notices()[1]).toMatch(/NaN/);
    expect(notices()[2]).toMatch(/stranger/);
    expect(leader.error).toBeUndefined();
    expect(server.ledger!.admission.engine('p1').reported).toBeUndefined();
    expect(server.ledger!.statistics().badReports).toBe(3);
  });

  it('a gap in the numbers ends the stream; what comes twice does not', async () => {
    const server = closes(await openServer());
    const leader = closes(new RawLeader(server));
    leader.hello();
    leader.hello();
    leader.say({ sequence: 3 });
    expect(await leader.refused()).toMatchObject({ code: status.ABORTED });
  });

  it('words of leases that are not are dropped and counted', async () => {
    const server = closes(await openServer());
    const leader = closes(new RawLeader(server));
    leader.hello();
    leader.say({
      sequence: 2,
      stages: [{ admission: 7, stages: [5] }],
      tokens: [{ admission: 7, first: 0, tokens: [1] }],
    });
    await until(() => server.ledger!.statistics().dropped.result === 1, 'the result is dropped');
    expect(server.ledger!.statistics().dropped).toMatchObject({ result: 1, tokens: 1 });
  });

  it('bytes that are no message end that stream alone', async () => {
    const server = closes(await openServer());
    const client = new Client(endpointOf(server), credentials.createInsecure());
    const stream = client.makeBidiStreamRequest(
      schedulerService.Engines.path,
      (bytes: Buffer) => bytes,
      (bytes) => bytes,
    );
    const ended = new Promise<ServiceError>((resolve) => void stream.on('error', resolve));
    stream.write(Buffer.from([0xff, 0xff, 0xff, 0xff]));
    expect((await ended).code).toBe(status.INTERNAL);
    client.close();
    const front = closes(openClient([endpointOf(server)]));
    await front.submit({ ...request }).accepted;
  });
});

describe('who may speak', () => {
  const token = Buffer.from('a token of more than sixteen bytes');

  it.each([
    ['none', undefined],
    ['another', Buffer.from('another token, as long as it is')],
  ])('%s: refused, and not tried again', async (_what, given) => {
    const server = closes(await openServer({}, { token }));
    const client = closes(openClient([endpointOf(server)], 'front', given));
    await expect(client.submit(request).ended).rejects.toMatchObject({ code: 'UNAUTHENTICATED' });
  });

  it('the right one may', async () => {
    const server = closes(await openServer({}, { token }));
    await closes(openClient([endpointOf(server)], 'front', token)).submit(request).accepted;
  });

  it('without a token the service stays on this host', async () => {
    await expect(openServer({}, { listen: { host: '0.0.0.0', port: 0 } })).rejects.toMatchObject({
      code: 'INVALID_ARGUMENT',
      message: expect.stringMatching(/without a token; use 127\.0\.0\.1/) as string,
    });
    await expect(openServer({}, { token: Buffer.from('short') })).rejects.toMatchObject({
      code: 'INVALID_ARGUMENT',
    });
  });

  it('a client without a scheduler waits for one', async () => {
    const first = await openServer();
    const at = endpointOf(first);
    await first.close();
    const client = closes(new RequestClient({ endpoints: [at], model }));
    const submitted = client.submit(request);
    await SchedulerServer.open({
      listen: { host: '127.0.0.1', port: Number(at.split(':')[1]) },
      leases: { model, policy: 'split', blockTokens: 4, blockBytes: 1, decodeSpareBlocks: 1, seed: 1 },
    }).then(closes);
    await submitted.accepted;
  });
});
