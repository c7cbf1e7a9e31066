/** How engines of one host ask each other for a way into their memory, over the control connection. */
import { hostname } from 'node:os';
import { readlinkSync } from 'node:fs';
import { z } from 'zod';
import type { ControlNode } from '../control/index.js';
import { DualPathError, errorCodes, type ErrorCode } from '../errors/index.js';

const attempt = z.int().min(1);
const code = z.enum(Object.keys(errorCodes) as [ErrorCode, ...ErrorCode[]]);

const word = z.discriminatedUnion('kind', [
  /** The sender of this wants to write into the other's memory. */
  z.object({
    kind: z.literal('wanted'),
    attempt,
    host: z.string().max(256),
    pid: z.int().min(1),
    identity: z.string().max(1024),
  }),
  /** It may; the native half checks what it says. */
  z.object({ kind: z.literal('invited'), attempt, invitation: z.unknown() }),
  z.object({ kind: z.literal('refused'), attempt, code, message: z.string().max(4096) }),
]);

export type MemoryWord = z.infer<typeof word>;

type Listener = (from: string, said: MemoryWord) => void;

/** Of one node; the transport of whichever engine runs there listens. */
export class MemoryExchange {
  readonly #node: ControlNode;
  #listener: Listener | undefined;

  constructor(node: ControlNode) {
    this.#node = node;
    node.channel('shared-memory', word, (from, said) => {
      if (this.#listener !== undefined) this.#listener(from, said);
      else if (said.kind === 'wanted') {
        const message = `engine '${node.name}' is not open yet`;
        this.send(from, { kind: 'refused', attempt: said.attempt, code: 'CLOSED', message });
      }
    });
  }

  get name(): string {
    return this.#node.name;
  }

  /** False when the node is not connected. */
  send(to: string, said: MemoryWord): boolean {
    return this.#node.send(to, 'shared-memory', said);
  }

  /** @throws CAPACITY_EXHAUSTED while another listens */
  listen(listener: Listener): () => void {
    if (this.#listener !== undefined) {
      throw new DualPathError(
        'CAPACITY_EXHAUSTED',
        `node '${this.#node.name}' has an engine over shared memory already: close it first`,
      );
    }
    this.#listener = listener;
    return () => {
      this.#listener = undefined;
    };
  }
}

/** The kernel and the process namespace: who has the same can open this process's memory. */
export function hostIdentity(): string {
  return `${hostname()} ${readlinkSync('/proc/self/ns/pid')}`;
}
