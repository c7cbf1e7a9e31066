/** Calls to whichever member of an etcd answers. */
import { fileURLToPath } from 'node:url';
import { Client, credentials, status, type MethodDefinition, type ServiceError } from '@grpc/grpc-js';
import { loadSync } from '@grpc/proto-loader';
import { DualPathError } from '../errors/index.js';

/** 64-bit numbers are texts: leases have all bits. */
export interface KeyValue {
  readonly createRevision?: string;
  readonly modRevision?: string;
  readonly value?: Uint8Array;
  readonly lease?: string;
}

interface Compare {
  readonly target: 'CREATE' | 'MOD';
  readonly key: Uint8Array;
  readonly createRevision?: string;
  readonly modRevision?: string;
}

interface Op {
  readonly requestRange?: { readonly key: Uint8Array };
  readonly requestPut?: { readonly key: Uint8Array; readonly value: Uint8Array; readonly lease?: string };
}

export interface Txn {
  readonly compare?: readonly Compare[];
  readonly success?: readonly Op[];
  readonly failure?: readonly Op[];
}

interface TxnResponse {
  readonly succeeded?: boolean;
  readonly responses?: readonly { readonly responseRange?: { readonly kvs?: readonly KeyValue[] } }[];
}

type Method<I, O> = MethodDefinition<I, O>;

interface Services {
  readonly kv: { readonly Txn: Method<Txn, TxnResponse> };
  readonly lease: {
    readonly LeaseGrant: Method<{ TTL: string }, { ID?: string; TTL?: string; error?: string }>;
    readonly LeaseRevoke: Method<{ ID: string }, object>;
    readonly LeaseKeepAlive: Method<{ ID: string }, { ID?: string; TTL?: string }>;
  };
}

const protoFile = fileURLToPath(new URL('../../proto/etcd/etcd.proto', import.meta.url));
const definitions = loadSync(protoFile, { longs: String, enums: String });
const services = {
  kv: definitions['etcdserverpb.KV'],
  lease: definitions['etcdserverpb.Lease'],
} as unknown as Services;

/** What another member may be able to do. */
const another: readonly number[] = [status.UNAVAILABLE, status.DEADLINE_EXCEEDED, status.CANCELLED];

export class EtcdClient {
  readonly #endpoints: readonly string[];
  readonly #timeoutMs: number;
  #current = 0;
  #client: Client | undefined;
  #closed = false;

  /** @param timeoutMs of a call at one member */
  constructor(endpoints: readonly string[], timeoutMs: number) {
    this.#endpoints = endpoints;
    this.#timeoutMs = timeoutMs;
  }

  /** The newest value of keys as they were read: one for each range in what was chosen. @throws PEER_LOST */
  async txn(txn: Txn): Promise<{ succeeded: boolean; kvs: (KeyValue | undefined)[] }> {
    const { succeeded = false, responses = [] } = await this.#call(services.kv.Txn, txn);
    const ranges = responses.filter(({ responseRange }) => responseRange !== undefined);
    return { succeeded, kvs: ranges.map(({ responseRange }) => responseRange?.kvs?.[0]) };
  }

  /** @throws PEER_LOST */
  async grant(ttlS: number): Promise<string> {
    const { ID = '0', error = '' } = await this.#call(services.lease.LeaseGrant, { TTL: String(ttlS) });
    if (ID !== '0') return ID;
    throw new DualPathError('PEER_LOST', `etcd grants no lease: ${error}`);
  }

  /** @throws PEER_LOST */
  async revoke(lease: string): Promise<void> {
    await this.#call(services.lease.LeaseRevoke, { ID: lease });
  }

  /** False when the lease is gone. @throws PEER_LOST */
  async keepAlive(lease: string): Promise<boolean> {
    const { TTL = '0' } = await this.#try((client, deadline) => {
      const { path, requestSerialize, responseDeserialize } = services.lease.LeaseKeepAlive;
      return new Promise<{ TTL?: string }>((resolve, reject) => {
        const stream = client.makeBidiStreamRequest(path, requestSerialize, responseDeserialize, {
          deadline,
        });
        stream.once('data', (answer: { TTL?: string }) => {
          resolve(answer);
          stream.cancel();
        });
        stream.on('error', reject);
        stream.once('end', () => reject(new Error('it ended the stream')));
        stream.write({ ID: lease });
      });
    });
    return Number(TTL) > 0;
  }

  #call<I, O>({ path, requestSerialize, responseDeserialize }: Method<I, O>, request: I): Promise<O> {
    return this.#try(
      (client, deadline) =>
        new Promise<O>((resolve, reject) => {
          client.makeUnaryRequest(
            path,
            requestSerialize,
            responseDeserialize,
            request,
            { deadline },
            (error: ServiceError | null, answer?: O) => {
              if (error) reject(error);
              else resolve(answer!);
            },
          );
        }),
    );
  }

  /** At each member once, from the one that answered last. */
  async #try<O>(call: (client: Client, deadline: number) => Promise<O>): Promise<O> {
    let why = 'the client has been closed';
    for (let tries = 0; tries < this.#endpoints.length && !this.#closed; tries++) {
      const endpoint = this.#endpoints[this.#current]!;
      this.#client ??= new Client(endpoint, credentials.createInsecure(), {
        'grpc.use_local_subchannel_pool': 1,
      });
      try {
        return await call(this.#client, Date.now() + this.#timeoutMs);
      } catch (error) {
        const { code, message } = error as Partial<ServiceError>;
        why = `${endpoint}: ${message ?? String(error)}`;
        if (code !== undefined && !another.includes(code)) break;
        this.#drop();
        this.#current = (this.#current + 1) % this.#endpoints.length;
      }
    }
    throw new DualPathError('PEER_LOST', `etcd: ${why}`, {
      endpoints: this.#endpoints.join(','),
    });
  }

  #drop(): void {
    this.#client?.close();
    this.#client = undefined;
  }

  /** Idempotent. */
  close(): void {
    this.#closed = true;
    this.#drop();
  }
}
