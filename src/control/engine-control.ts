/** Control messages between engines of different processes: a channel of a control node. */
import { z } from 'zod';
import { errorCodes, type ErrorCode } from '../errors/index.js';
import type { ControlLink, ControlMessage } from './messages.js';
import type { ControlNode } from './node.js';

const channel = 'engine';
const request = z.string().min(1).max(1024);
const index = z.int().min(0).max(0xffff_ffff);
const count = z
  .int()
  .min(0)
  .max(2 ** 31);
const slots = z.instanceof(Uint32Array);
const code = z.enum(Object.keys(errorCodes) as [ErrorCode, ...ErrorCode[]]);
const message = z.string().max(65_536);

export const controlMessageSchema: z.ZodType<ControlMessage> = z.discriminatedUnion('kind', [
  z.object({
    kind: z.literal('decode-ready'),
    request,
    geometry: index,
    slots,
    mergedCounter: index,
    freeCounter: index,
  }),
  z.object({ kind: z.literal('decode-read'), request, blocks: count }),
  z.object({
    kind: z.literal('stage'),
    request,
    stage: count,
    last: z.boolean(),
    hitBlocks: count,
    geometry: index,
    slots,
    segments: z
      .array(z.object({ firstBlock: count, blocks: count, tokenBegin: count, tokenEnd: count }))
      .max(16),
    arriveCounter: index,
    arriveStep: z.union([z.literal(0), z.literal(1)]),
    windowLayers: z.int().min(1).max(4096),
  }),
  z.object({ kind: z.literal('sampled'), request, tokens: z.instanceof(Uint32Array) }),
  z.object({
    kind: z.literal('stage-done'),
    request,
    stage: count,
    error: z.object({ code, message }).exactOptional(),
  }),
  z.object({ kind: z.literal('stage-abort'), request, stage: count }),
  z.object({ kind: z.literal('abort'), request, code, message }),
]);

const envelope = z.object({
  to: z.string().max(128),
  from: z.string().max(128),
  message: controlMessageSchema,
});

type Listener = (from: string, message: ControlMessage) => void;

/** Engines are found at the node of their name; those of this process are listened for. */
export class EngineControl implements ControlLink {
  readonly #node: ControlNode;
  readonly #listeners = new Map<string, Listener>();

  constructor(node: ControlNode) {
    this.#node = node;
    node.channel(channel, envelope, (sender, { to, from, message: said }) => {
      // Nobody speaks for another.
      if (from === sender) this.#listeners.get(to)?.(from, said);
    });
  }

  send(to: string, from: string, said: ControlMessage): void {
    this.#node.send(to, channel, { to, from, message: said });
  }

  listen(engine: string, listener: Listener): () => void {
    this.#listeners.set(engine, listener);
    return () => {
      if (this.#listeners.get(engine) === listener) this.#listeners.delete(engine);
    };
  }
}
