/** Descriptors as TypeScript writes them: what ../../native/include/dualpath_ring.h describes. */
import { descriptorWord as w, flag, none, op, signalMode, waitWord, waitWords } from './abi.js';

export type TrafficClass = 'inference' | 'kv' | 'control';

/** Step s waits until counter[counter + s * counterStep] >= value + s * valueStep; steps below skipSteps do not. */
export interface Wait {
  readonly counter: number;
  /** A safe integer; may be negative when skipSteps keeps the sum from being so. */
  readonly value: number;
  readonly counterStep?: number;
  readonly valueStep?: number;
  readonly skipSteps?: number;
}

/** Raised when a step (READ and WRITE: a block) has finished. */
export interface Signal {
  readonly counter: number;
  readonly value: number;
  /** Stands at value + finished leading steps instead of adding value for each. */
  readonly ordered?: boolean;
  /** The counter is the descriptor's peer's. */
  readonly remote?: boolean;
  readonly counterStep?: number;
}

/** A range of the slot table (or, for keys, of the key table). */
export interface ListRange {
  readonly offset: number;
  readonly count: number;
}

interface Common {
  readonly waits?: readonly Wait[];
  readonly signals?: readonly Signal[];
  readonly peer?: number;
  /** One record a step, through onStep of submit(). */
  readonly event?: boolean;
}

export interface NopDescriptor extends Common {
  readonly op: 'nop' | 'bump';
  /** Repetitions; default 1. */
  readonly steps?: number;
}

export interface BlocksDescriptor extends Common {
  /** read: keys -> slots of `geometry`; write: slots -> keys. */
  readonly op: 'read' | 'write';
  readonly geometry: number;
  readonly keys: number;
  readonly slots: number;
  readonly blocks: number;
}

export interface LayersDescriptor extends Common {
  /** copy: between geometries of this engine; send: `to` is a geometry of the peer. */
  readonly op: 'copy' | 'send';
  readonly from: number;
  readonly to: number;
  readonly fromSlots: number;
  readonly toSlots: number;
  readonly blocks: number;
  /** Position in the sequence of the lists' first block. */
  readonly firstBlock: number;
  /** Only these tokens of the sequence move. */
  readonly tokenBegin: number;
  readonly tokenEnd: number;
  readonly layers: number;
  readonly firstLayer?: number;
  /** Windowed planes move only what a query at this position sees; 0 or left out: everything. */
  readonly windowEnd?: number;
}

export type Descriptor = NopDescriptor | BlocksDescriptor | LayersDescriptor;

const opCodes: Record<Descriptor['op'], number> = op;
const kvClass = 1 << 8;

/** Writes descriptor number `entry` of the ring. */
export function writeDescriptor(
  words: Uint32Array,
  at: number,
  descriptor: Descriptor,
  program: number,
  last: boolean,
): void {
  const flags = (last ? flag.end : 0) | (descriptor.event === true ? flag.event : 0);
  words[at + w.head] = opCodes[descriptor.op] | kvClass | (flags << 16);
  words[at + w.program] = program;
  words[at + w.peer] = descriptor.peer ?? none;
  let steps = 1;
  let firstLayer = 0;
  switch (descriptor.op) {
    case 'nop':
    case 'bump':
      steps = descriptor.steps ?? 1;
      break;
    case 'read':
      words[at + w.srcGeometry] = none;
      words[at + w.dstGeometry] = descriptor.geometry;
      words[at + w.srcList] = descriptor.keys;
      words[at + w.dstList] = descriptor.slots;
      words[at + w.listCount] = descriptor.blocks;
      break;
    case 'write':
      words[at + w.srcGeometry] = descriptor.geometry;
      words[at + w.dstGeometry] = none;
      words[at + w.srcList] = descriptor.slots;
      words[at + w.dstList] = descriptor.keys;
      words[at + w.listCount] = descriptor.blocks;
      break;
    default:
      steps = descriptor.layers;
      firstLayer = descriptor.firstLayer ?? 0;
      words[at + w.srcGeometry] = descriptor.from;
      words[at + w.dstGeometry] = descriptor.to;
      words[at + w.srcList] = descriptor.fromSlots;
      words[at + w.dstList] = descriptor.toSlots;
      words[at + w.listCount] = descriptor.blocks;
      words[at + w.firstBlock] = descriptor.firstBlock;
      words[at + w.tokenBegin] = descriptor.tokenBegin;
      words[at + w.tokenEnd] = descriptor.tokenEnd;
      words[at + w.windowEnd] = descriptor.windowEnd ?? 0;
  }
  words[at + w.layers] = firstLayer | (steps << 16);
  for (let i = 0; i < 2; i++) {
    writeWait(words, at + w.wait + i * waitWords, descriptor.waits?.[i]);
    writeSignal(words, at + w.signal + i * waitWords, descriptor.signals?.[i]);
  }
}

function writeWait(words: Uint32Array, at: number, wait: Wait | undefined): void {
  words[at + waitWord.counter] = wait?.counter ?? none;
  if (wait === undefined) return;
  words[at + waitWord.steps] =
    (wait.counterStep ?? 0) | ((wait.valueStep ?? 0) << 8) | ((wait.skipSteps ?? 0) << 16);
  writeValue(words, at + waitWord.value, wait.value);
}

function writeSignal(words: Uint32Array, at: number, signal: Signal | undefined): void {
  words[at + waitWord.counter] = signal?.counter ?? none;
  if (signal === undefined) return;
  words[at + waitWord.steps] =
    (signal.ordered === true ? signalMode.ordered : signalMode.add) |
    (signal.remote === true ? 1 << 8 : 0) |
    ((signal.counterStep ?? 0) << 16);
  writeValue(words, at + waitWord.value, signal.value);
}

/** Two's complement, so that a negative base of a wait wraps as the native side adds to it. */
function writeValue(words: Uint32Array, at: number, value: number): void {
  words[at] = value >>> 0;
  words[at + 1] = Math.floor(value / 0x1_0000_0000) >>> 0;
}
