import type { TokenLog } from '../leases/index.js';
import { nameOf } from '../leases/index.js';
import { tokenOf, type ClientDown, type ClientUp } from './messages.js';
import { Stream, type NetworkFaults } from './network.js';
import type { ModelScheduler } from './scheduler.js';
import type { World } from './world.js';

export interface ModelRequest {
  readonly key: string;
  readonly promptTokens: number;
  readonly hitTokens: number;
  /** It generates so many. */
  readonly tokens: number;
  readonly deadlineS: number | undefined;
  readonly log: TokenLog;
  cancelled: boolean;
  /** How it ended for its client. */
  outcome: string | undefined;
}

/** A front end: submits until it has heard how each request ended, checks all it hears. */
export class ModelClient {
  readonly name: string;
  readonly requests: ModelRequest[] = [];
  readonly #world: World;
  readonly #faults: NetworkFaults;
  readonly #scheduler: ModelScheduler;
  #stream: Stream<ClientUp, ClientDown> | undefined;
  #welcomed = false;

  constructor(world: World, faults: NetworkFaults, scheduler: ModelScheduler, name: string) {
    this.#world = world;
    this.#faults = faults;
    this.#scheduler = scheduler;
    this.name = name;
    this.#connect();
    this.#watch();
  }

  submit(request: ModelRequest): void {
    this.requests.push(request);
    if (this.#welcomed) this.#send(request);
  }

  cancel(request: ModelRequest): void {
    if (request.outcome !== undefined) return;
    request.cancelled = true;
    if (this.#welcomed) this.#stream?.toScheduler({ cancel: request.key });
  }

  /** Its connection is lost. */
  disconnect(): void {
    this.#stream?.break();
  }

  #connect(): void {
    const stream: Stream<ClientUp, ClientDown> = new Stream(
      this.#world,
      this.#faults,
      {
        take: (message: ClientUp) => this.#scheduler.fromClient(stream, this.name, message),
        broken: () => this.#scheduler.clientGone(stream, this.name),
      },
      { take: (message: ClientDown) => this.#take(message), broken: () => this.#lost(stream) },
    );
    this.#stream = stream;
    this.#welcomed = false;
    stream.toScheduler({ hello: true });
  }

  #lost(stream: Stream<ClientUp, ClientDown>): void {
    if (this.#stream !== stream) return;
    this.#stream = undefined;
    this.#welcomed = false;
    this.#world.after(this.#world.between(0.02, 0.4), () => this.#connect());
  }

  /** A stream that stays silent is given up: the last message may be the one that was lost. */
  #watch(): void {
    const waits = this.requests.some(({ outcome }) => outcome === undefined);
    if (waits && this.#world.chance(0.3)) this.#stream?.break();
    this.#world.after(3, () => this.#watch());
  }

  #send({ key, promptTokens, hitTokens, tokens, deadlineS, log }: ModelRequest): void {
    this.#stream?.toScheduler({
      submit: {
        ...{ key, model: 'model', promptTokens, hitTokens, maxNewTokens: tokens },
        ...(deadlineS === undefined ? {} : { deadlineS }),
        received: log.from(0),
      },
    });
  }

  #take(message: ClientDown): void {
    if (message.welcome) {
      this.#welcomed = true;
      for (const request of this.requests) {
        if (request.outcome !== undefined) continue;
        this.#send(request);
        if (request.cancelled) this.#stream?.toScheduler({ cancel: request.key });
      }
    }
    if (message.refused) this.#refused(message.refused.key, message.refused.error);
    if (message.tokens) this.#tokens(message.tokens.key, message.tokens.first, message.tokens.tokens);
    if (message.ended) this.#ended(message.ended.key, message.ended.outcome);
  }

  #find(key: string): ModelRequest | undefined {
    return this.requests.find((request) => request.key === key);
  }

  #refused(key: string, { code, message }: { code: string; message: string }): void {
    const request = this.#find(key);
    if (!request || request.outcome !== undefined) return;
    if (code === 'CAPACITY_EXHAUSTED') {
      this.#world.after(this.#world.between(0.1, 0.5), () => {
        if (request.outcome === undefined && this.#welcomed) this.#send(request);
      });
      return;
    }
    this.#world.violate(`${key} was refused: ${code} ${message}`);
    request.outcome = code;
  }

  #tokens(key: string, first: number, tokens: Uint32Array): void {
    const request = this.#find(key);
    if (!request) return;
    if (request.outcome !== undefined) this.#world.violate(`${key} got tokens after its end`);
    if (first < request.log.count) this.#world.violate(`token ${first} of ${key} was repeated`);
    if (first > request.log.count) this.#world.violate(`tokens of ${key} before ${first} were skipped`);
    const name = nameOf(this.name, key);
    tokens.forEach((token, i) => {
      if (token !== tokenOf(name, first + i)) this.#world.violate(`token ${first + i} of ${key} is wrong`);
    });
    request.log.append(first, tokens);
    if (request.log.count > request.tokens) this.#world.violate(`${key} has too many tokens`);
  }

  #ended(key: string, { error, attempts }: { error: { code: string } | undefined; attempts: number }): void {
    this.#stream?.toScheduler({ acknowledge: key });
    const request = this.#find(key);
    if (!request || request.outcome !== undefined) return;
    request.outcome = error?.code ?? 'OK';
    if (!error && request.log.count !== request.tokens) {
      this.#world.violate(`${key} ended with ${request.log.count} of ${request.tokens} tokens`);
    }
    const expected =
      !error ||
      (error.code === 'CANCELLED' && request.cancelled) ||
      (error.code === 'DEADLINE' && request.deadlineS !== undefined) ||
      (['PEER_LOST', 'RDMA_FAILED'].includes(error.code) && attempts === 3);
    if (!expected) this.#world.violate(`${key} ended with ${error.code} after ${attempts} attempts`);
  }
}
