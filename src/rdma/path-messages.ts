/** What engines say to each other about the connections between them, over the control connection. */
import { z } from 'zod';
import type { ControlNode } from '../control/index.js';
import { errorCodes, type ErrorCode } from '../errors/index.js';
import { trafficClassNames, type TrafficClassName } from './classes.js';

const u32 = z.int().min(0).max(0xffff_ffff);
const count = z
  .int()
  .min(0)
  .max(2 ** 31);

const hello = z.object({
  version: z.int(),
  identity: z.string().max(1024),
  trafficClass: z.enum(trafficClassNames),
  linkLayer: z.enum(['ethernet', 'infiniband', 'unknown']),
  mtuBytes: count,
  lid: z.int().min(0).max(0xffff),
  gid: z.string().max(64),
  qpNum: u32,
  psn: u32,
  receives: count,
  creditAddress: z.bigint(),
  creditKey: u32,
});

/** Where this engine's memory is, for the other side's native half to check. */
const memory = z.unknown();
/** Names one queue pair on each side. */
const attempt = z.string().min(1).max(64);
const code = z.enum(Object.keys(errorCodes) as [ErrorCode, ...ErrorCode[]]);

const word = z.discriminatedUnion('kind', [
  /** From the side whose name sorts first: a queue pair has been made. */
  z.object({ kind: z.literal('offer'), attempt, candidate: count, hello, memory }),
  /** The other side has made and connected its own. */
  z.object({ kind: z.literal('answer'), attempt, hello, memory }),
  /** It has not; `final` when trying again would not help. An answer to `wanted` names no attempt. */
  z.object({
    kind: z.literal('reject'),
    attempt: attempt.nullable(),
    final: z.boolean(),
    code,
    message: z.string().max(4096),
  }),
  /** The first side's is connected, too: the other may send. */
  z.object({ kind: z.literal('ready'), attempt }),
  /** From the other side: it needs a connection. */
  z.object({ kind: z.literal('wanted') }),
  /** From the other side: it has use of the connection; and has no longer. */
  z.object({ kind: z.literal('hold') }),
  z.object({ kind: z.literal('unhold') }),
  /** Either: it has failed; the other side's queue pair must not take anything any more. */
  z.object({ kind: z.literal('broken'), attempt, cause: z.string().max(4096) }),
  /** Either: it is no longer wanted. */
  z.object({ kind: z.literal('closed'), attempt }),
]);

export type PathMessage = z.infer<typeof word>;
export type PathMessageOf<Kind extends PathMessage['kind']> = Extract<PathMessage, { kind: Kind }>;

const envelope = z.object({
  to: z.string().max(128),
  from: z.string().max(128),
  trafficClass: z.enum(trafficClassNames),
  word,
});

const channel = 'path';

export interface PathListener {
  take(from: string, trafficClass: TrafficClassName, message: PathMessage): void;
  /** The control connection to an engine works again: so may the path. */
  reached(peer: string): void;
}

/** Carries these messages between the engines of a node and those of others; engines come and go. */
export class PathExchange {
  readonly #node: ControlNode;
  readonly #engines = new Map<string, PathListener>();

  constructor(node: ControlNode) {
    this.#node = node;
    node.channel(channel, envelope, (sender, { to, from, trafficClass, word: said }) => {
      if (from !== sender) return; // nobody speaks for another
      const listener = this.#engines.get(to);
      if (listener !== undefined) listener.take(from, trafficClass, said);
      else if (said.kind === 'offer') {
        const message = `'${to}' is not open`;
        this.send(from, to, trafficClass, {
          kind: 'reject',
          attempt: said.attempt,
          final: false,
          code: 'PEER_LOST',
          message,
        });
      }
    });
    node.listen({
      reached: (peer) => {
        for (const listener of this.#engines.values()) listener.reached(peer);
      },
    });
  }

  send(to: string, from: string, trafficClass: TrafficClassName, said: PathMessage): void {
    this.#node.send(to, channel, { to, from, trafficClass, word: said });
  }

  /** Whether a word would be heard now. */
  reachable(peer: string): boolean {
    return this.#node.reachable(peer);
  }

  listen(engine: string, listener: PathListener): () => void {
    this.#engines.set(engine, listener);
    return () => {
      if (this.#engines.get(engine) === listener) this.#engines.delete(engine);
    };
  }
}
