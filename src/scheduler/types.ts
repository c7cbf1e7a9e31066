/**
 * What engines and the central request scheduler say to each other. All values are plain data, so a message
 * can carry them as they are. Terms follow DualPath (arXiv 2602.21548): PE is a prefill engine, DE a decode
 * engine, a group is a set of engines of one role that fetches its tasks together.
 */

export type EngineRole = 'prefill' | 'decode';

/** What one engine can hold. A block is one Full Block of the model. */
export interface EngineCapacity {
  /** Unique name. */
  readonly engine: string;
  /** The host whose storage link the engine reads over; engines of one node share one read queue. */
  readonly node: string;
  /** Engines that fetch together, all of one role. */
  readonly group: string;
  readonly role: EngineRole;
  /** PE buffer or DE buffer in host memory, in blocks. */
  readonly bufferBlocks: number;
  /**
   * Decode: HBM for whole sequences, in blocks. Prefill: HBM for whole prompts, in blocks, or 0 where it is
   * not accounted, as with layerwise prefill, whose staging bounds a batch (see `packBatch`), not admission.
   */
  readonly hbmBlocks: number;
  /** Rate of the node's storage link in bytes per second, the same for every engine of the node. */
  readonly readRateBytesPerS: number;
}

export interface RequestDescription {
  /** Unique among requests that have not ended. */
  readonly request: string;
  /** Tokens of the prompt, at least 1. */
  readonly promptTokens: number;
  /** Leading prompt tokens whose KV-Cache is stored: whole blocks, at most `promptTokens`. */
  readonly hitTokens: number;
  /** Most tokens the request may generate. */
  readonly maxNewTokens: number;
  /** Who shares: one of the scheduler's `tenants`, where it has any. */
  readonly tenant?: string;
  /** From 0 (default) to 255: so many times the scheduler's `priorityHeadStartS` ahead of its arrival. */
  readonly priority?: number;
  /** Its hits are read on the other side, whatever the policy: this side's read path has just failed it. */
  readonly avoidSide?: EngineRole;
}

/** Which side's storage link reads the hit blocks. */
export type ReadSide = 'prefill' | 'decode' | 'split';

/** What each policy means; the table is the documentation. */
export const readPolicies = {
  prefill:
    'the prefill side reads everything, and waits for PE buffer (Basic, with or without layerwise prefill)',
  'shorter-queue':
    'the side whose storage link would finish the whole request first; the decode side if PE buffer is short',
  split: 'both sides read so that they finish together, the prefill side no more than PE buffer allows',
  'round-robin':
    'the sides take turns whatever the load, and wait for room (the baseline without scheduling)',
  none: 'nothing is read: hits cost nothing (Oracle)',
} as const;

export type ReadPolicy = keyof typeof readPolicies;

/** In what order requests get their engines; the table is the documentation. */
export const waitingOrders = {
  fifo: 'by arrival (the paper)',
  slack: 'by arrival and a slack in proportion to what the prompt costs, so that short prompts wait less',
} as const;

export type WaitingOrder = keyof typeof waitingOrders;

/**
 * A request's engines and all it holds there. Of its hit blocks the first `prefillReadBlocks` are read by the
 * prefill side and the next `decodeReadBlocks` by the decode side.
 */
export interface Assignment {
  readonly request: string;
  /**
   * The scheduler's epoch when the request was admitted. The assignment stays good until its request ends, also
   * when the loss of an engine that it does not use raises the scheduler's epoch.
   */
  readonly epoch: number;
  /**
   * Admission number: grows by one with each assignment of the scheduler. A report that carries another number
   * is about another assignment of the same name and is ignored, so a name may be used again at once.
   */
  readonly admission: number;
  readonly prefillEngine: string;
  readonly decodeEngine: string;
  /** 'split' when both sides read; 'prefill' when nothing is read. */
  readonly side: ReadSide;
  /** Also the blocks of PE buffer that the request holds. */
  readonly prefillReadBlocks: number;
  readonly decodeReadBlocks: number;
  /** Blocks that cover the prompt; the DE buffer holds all of them, whichever side reads. */
  readonly promptBlocks: number;
  /** Blocks of PE HBM: `promptBlocks` where the PE's HBM is accounted, else 0. */
  readonly prefillHbmBlocks: number;
  /** Blocks of DE HBM: they cover the prompt and every token that may be generated. */
  readonly decodeHbmBlocks: number;
}

/** What an engine reports done, and what that gives back; the table is the documentation. */
export const stages = {
  'prefill-read': "the prefill side has read its blocks: shortens the PE node's read queue",
  'decode-read': "the decode side has read its blocks: shortens the DE node's read queue",
  prefill: 'the last layer has reached the DE buffer: frees PE buffer and PE HBM; the PE is done with it',
  'decode-buffer': 'the prompt is in DE HBM and its new blocks are stored: frees the DE buffer of the prompt',
  request: 'the request has ended well: frees DE HBM, the spare DE buffer and whatever is left',
} as const;

export type Stage = keyof typeof stages;

/** An engine's own view of its load, sent with each fetch. */
export interface EngineLoad {
  readonly engine: string;
  /** Grows with each report of the engine; a report that is not newer than the last is dropped and counted. */
  readonly sequence: number;
  /** seq_e: requests that have not finished on the engine. */
  readonly unfinishedRequests: number;
  /** tok_e: their tokens, hits included. */
  readonly unfinishedTokens: number;
  /** read_q: blocks that the engine's node has still to read. */
  readonly nodeReadQueueBlocks: number;
  /**
   * The newest admission that the engine's group had received when it counted. With it the counts are used:
   * load is what was reported, and assigned since, less what has ended since. Without it they are only kept.
   */
  readonly lastAdmission?: number;
  /** Bytes that the node's storage link has read while it was busy since the last report, and for how long. */
  readonly nodeRead?: { readonly bytes: number; readonly busyS: number };
}

/** A request that ended with an error. */
export interface RequestFailure {
  readonly request: string;
  /** Where it was running; undefined if it was still waiting. */
  readonly assignment: Assignment | undefined;
  readonly error: Error;
}

/** The scheduler as engines and front ends see it, in this process or another. */
export interface SchedulerClient {
  /**
   * Resolves once the request is queued.
   *
   * @throws INVALID_ARGUMENT, REQUEST_TOO_LARGE (no engine could ever hold it), CAPACITY_EXHAUSTED (the queue
   * is full), PEER_LOST (no engine of a role is left), CLOSED; as a rejection.
   */
  submit(request: RequestDescription): Promise<void>;

  /**
   * Waits for work: resolves with at least one assignment to an engine of the group. Each assignment goes to
   * the PE's group and to the DE's group, once to each. A group has at most one fetch outstanding.
   *
   * @throws INVALID_ARGUMENT, CAPACITY_EXHAUSTED (a fetch of the group is outstanding), CANCELLED (by
   * `signal`; no assignment is lost), PEER_LOST (no engine of the group is left), CLOSED; as a rejection.
   */
  fetch(group: string, loads: readonly EngineLoad[], signal?: AbortSignal): Promise<Assignment[]>;

  /**
   * Reports a stage done. A report for an unknown request, for another admission than the assignment's, or
   * made twice is ignored and counted: after the loss of an engine such reports are normal.
   */
  complete(request: string, stage: Stage, admission?: number): void;

  /** Ends a request with an error and frees all it holds; ignored and counted as for `complete`. */
  fail(request: string, error: Error, admission?: number): void;

  /** Ends a request, waiting or admitted, on the user's behalf; ignored and counted if it has ended. */
  cancel(request: string): void;

  /** Grows by one each time an engine is lost. */
  epoch(): number;
}
