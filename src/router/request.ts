import type { Instance } from './instance.js';

/** What a caller says about a request. Keys are read until the request ends and must stay as they are. */
export interface RequestInput {
  /** The caller's own name for it; comes back with every decision. */
  readonly id: number;
  /**
   * Keys of the prompt's full blocks, two u32 each, beginning with block `firstBlock`. A key stands for its block and
   * all before it.
   */
  readonly keys: Uint32Array;
  readonly firstBlock: number;
  readonly blocks: number;
  /** All of them, the partial last block included. */
  readonly promptTokens: number;
  /** Its keys are those of `ReportedBlocks`, too. Default: they are not. */
  readonly reportable?: boolean | undefined;
}

export type RequestState = 'waiting' | 'dispatched' | 'decoding' | 'ended';

/** A request in the router, from submit to its end. Only the router changes it. */
export class RoutedRequest implements RequestInput {
  readonly id: number;
  readonly keys: Uint32Array;
  readonly firstBlock: number;
  readonly blocks: number;
  readonly promptTokens: number;
  readonly reportable: boolean;
  /** Blocks that can hit: a prompt is never cached whole, since its last token must be computed. */
  readonly hitBlocksMax: number;
  readonly submittedS: number;
  state: RequestState = 'waiting';
  instance: Instance;
  /** The two candidates, set by policies that have them. */
  primary: Instance | null = null;
  secondary: Instance | null = null;
  /** On `instance`, as the router saw it last. */
  hitBlocks = 0;
  uncachedTokens = 0;
  moves = 0;
  /** Links of the list it is in. */
  previous: RoutedRequest | null = null;
  next: RoutedRequest | null = null;

  constructor(input: RequestInput, blockTokens: number, submittedS: number, instance: Instance) {
    this.id = input.id;
    this.keys = input.keys;
    this.firstBlock = input.firstBlock;
    this.blocks = input.blocks;
    this.promptTokens = input.promptTokens;
    this.reportable = input.reportable === true;
    this.hitBlocksMax = Math.min(input.blocks, Math.floor((input.promptTokens - 1) / blockTokens));
    this.submittedS = submittedS;
    this.instance = instance;
  }
}

/** Requests in order, each in one list at most: constant time to add at the end and to remove anywhere. */
export class RequestList {
  first: RoutedRequest | null = null;
  last: RoutedRequest | null = null;
  size = 0;

  push(request: RoutedRequest): void {
    request.previous = this.last;
    request.next = null;
    if (this.last === null) this.first = request;
    else this.last.next = request;
    this.last = request;
    this.size++;
  }

  remove(request: RoutedRequest): void {
    if (request.previous === null) this.first = request.next;
    else request.previous.next = request.next;
    if (request.next === null) this.last = request.previous;
    else request.next.previous = request.previous;
    request.previous = request.next = null;
    this.size--;
  }
}
