/**
 * What a prefill engine (PE) and a decode engine (DE) say to each other about one request. Plain data, so
 * that any carrier will do. Bytes and layer-by-layer progress never go this way: they go through the
 * transport and its counters.
 */
import type { ErrorCode } from '../errors/index.js';

/**
 * What `request` is in a message. A name may come again while its first use still winds up
 * somewhere; with the number of its admission it is unique.
 */
export function requestKey(assignment: { readonly request: string; readonly admission: number }): string {
  return `${assignment.admission}:${assignment.request}`;
}

/** Blocks that the DE is to send into the PE's staging, layer by layer. */
export interface StageSegment {
  readonly firstBlock: number;
  readonly blocks: number;
  readonly tokenBegin: number;
  readonly tokenEnd: number;
}

export type ControlMessage =
  /** DE -> PE: memory for the whole prompt is reserved; the PE may write it. */
  | {
      readonly kind: 'decode-ready';
      readonly request: string;
      /** Geometry and slots of the DE buffer, block i of the prompt in slots[i]. */
      readonly geometry: number;
      readonly slots: Uint32Array;
      /** DE counter: the PE adds 1 when the whole prompt's KV is in the DE buffer. */
      readonly mergedCounter: number;
      /** DE counter: the PE adds 1 for every layer whose staging has become free. */
      readonly freeCounter: number;
    }
  /** DE -> PE: how many of the blocks it was to read have arrived; fewer when one was bad. */
  | { readonly kind: 'decode-read'; readonly request: string; readonly blocks: number }
  /** PE -> DE: a forward batch that holds the request has been formed. */
  | {
      readonly kind: 'stage';
      readonly request: string;
      /** 0, 1, ...: the chunks of the request's prefill. */
      readonly stage: number;
      /** The last chunk: after it the prompt is complete. */
      readonly last: boolean;
      /** Leading blocks that came from the store, known for good now. */
      readonly hitBlocks: number;
      /** Geometry and slots of the PE's staging, block i of the sequence in slots[i]. */
      readonly geometry: number;
      readonly slots: Uint32Array;
      readonly segments: readonly StageSegment[];
      /** PE counters: layer l's arrival of a segment adds 1 to arriveCounter + l * arriveStep. */
      readonly arriveCounter: number;
      readonly arriveStep: 0 | 1;
      /** Layers of staging: layer l may be written when layer l - windowLayers is free. */
      readonly windowLayers: number;
    }
  /** PE -> DE: the tokens that were sampled from the prompt's last logits. */
  | { readonly kind: 'sampled'; readonly request: string; readonly tokens: Uint32Array }
  /** DE -> PE: nothing of that stage is in flight any more; `error` when it did not arrive whole. */
  | {
      readonly kind: 'stage-done';
      readonly request: string;
      readonly stage: number;
      readonly error?: { readonly code: ErrorCode; readonly message: string };
    }
  /** PE -> DE: the batch was given up; the DE stops sending for the stage and answers stage-done. */
  | { readonly kind: 'stage-abort'; readonly request: string; readonly stage: number }
  /**
   * Either way: the sender has stopped work on the request and nothing of its is in flight to the receiver,
   * whose memory is its own again. The receiver stops. A PE always says so too; a DE only where the PE had not
   * said it first, for a PE that has ended a request has forgotten it.
   */
  | {
      readonly kind: 'abort';
      readonly request: string;
      readonly code: ErrorCode;
      readonly message: string;
    };

/** Carries messages between engines by name; in order for each pair, each message once. */
export interface ControlLink {
  /** Never throws for an engine that is gone: the transport tells of that. */
  send(to: string, from: string, message: ControlMessage): void;
  /** One listener an engine; the returned function ends it. */
  listen(engine: string, listener: (from: string, message: ControlMessage) => void): () => void;
}
