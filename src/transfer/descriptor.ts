/** Descriptors as TypeScript writes them: what ../../native/include/dualpath_ring.h describes. */
import { DualPathError } from '../errors/index.js';
import {
  descriptorWord as w,
  flag,
  none,
  op,
  signalMode,
  trafficClass,
  waitsPerDescriptor,
  waitWord,
  waitWords,
} from './abi.js';

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

interface Common {
  readonly waits?: readonly Wait[];
  readonly signals?: readonly Signal[];
  readonly peer?: number;
  /** One record a step, through onStep of submit(). */
  readonly event?: boolean;
  /** Default: kv. */
  readonly trafficClass?: keyof typeof trafficClass;
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
  /** write: position in its chain of the first block, which ages go by; default 0. */
  readonly firstBlock?: number;
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

const opCodes: Readonly<Record<string, number>> = op;
const classes: Readonly<Record<string, number>> = trafficClass;
const noWaits: readonly Wait[] = [];
const noSignals: readonly Signal[] = [];
const u8Max = 0xff;
const u16Max = 0xffff;
const u32Max = 0xffffffff;

/** What does not fit its field is refused: cut off it would name another counter, slot or layer. */
function fit(value: number, name: string, least: number, most: number): number {
  if (Number.isSafeInteger(value) && value >= least && value <= most) return value;
  return refuse(value, name, least, most);
}

/** As fit(), for the fields every descriptor has: one comparison. */
function u32(value: number, name: string): number {
  return value >>> 0 === value ? value : refuse(value, name, 0, u32Max);
}

function u16(value: number, name: string, least = 0): number {
  return value >>> 0 === value && value <= u16Max && value >= least
    ? value
    : refuse(value, name, least, u16Max);
}

function u8(value: number, name: string): number {
  return value >>> 0 === value && value <= u8Max ? value : refuse(value, name, 0, u8Max);
}

function member(table: Readonly<Record<string, number>>, name: string, what: string): number {
  const code: unknown = table[name];
  if (typeof code === 'number') return code;
  throw new DualPathError(
    'INVALID_ARGUMENT',
    `descriptor: ${what} is '${name}'; one of ${Object.keys(table).join(', ')} is needed`,
    { [what === 'op' ? 'op' : 'traffic_class']: name },
  );
}

function refuse(value: number, name: string, least: number, most: number): never {
  throw new DualPathError(
    'INVALID_ARGUMENT',
    `descriptor: ${name} is ${value}; a whole number from ${least} to ${most} is needed`,
    { name, value: String(value), least, most },
  );
}

/**
 * Writes a descriptor into the ring, whose words those are, from word `at` on. What the operation does not look
 * at keeps what the entry held before: clearing it would cost as much as all the rest.
 * @throws INVALID_ARGUMENT when a value does not fit its field. Whether it names something that exists is for
 * native code to say: it knows the tables.
 */
export function writeDescriptor(
  words: Uint32Array,
  at: number,
  descriptor: Descriptor,
  program: number,
  last: boolean,
): void {
  const flags = (last ? flag.end : 0) | (descriptor.event === true ? flag.event : 0);
  const code = member(opCodes, descriptor.op, 'op');
  const ofClass = member(classes, descriptor.trafficClass ?? 'kv', 'trafficClass');
  words[at + w.head] = code | (ofClass << 8) | (flags << 16);
  words[at + w.program] = program;
  words[at + w.tag] = 0;
  words[at + w.peer] = u32(descriptor.peer ?? none, 'peer');
  let steps = 1;
  let firstLayer = 0;
  switch (descriptor.op) {
    case 'nop':
    case 'bump':
      steps = descriptor.steps ?? 1;
      break;
    case 'read':
      words[at + w.srcGeometry] = none;
      words[at + w.dstGeometry] = u32(descriptor.geometry, 'geometry');
      words[at + w.srcList] = u32(descriptor.keys, 'keys');
      words[at + w.dstList] = u32(descriptor.slots, 'slots');
      words[at + w.listCount] = u32(descriptor.blocks, 'blocks');
      break;
    case 'write':
      words[at + w.srcGeometry] = u32(descriptor.geometry, 'geometry');
      words[at + w.dstGeometry] = none;
      words[at + w.srcList] = u32(descriptor.slots, 'slots');
      words[at + w.dstList] = u32(descriptor.keys, 'keys');
      words[at + w.listCount] = u32(descriptor.blocks, 'blocks');
      words[at + w.firstBlock] = u32(descriptor.firstBlock ?? 0, 'firstBlock');
      break;
    default:
      steps = descriptor.layers;
      firstLayer = descriptor.firstLayer ?? 0;
      words[at + w.srcGeometry] = u32(descriptor.from, 'from');
      words[at + w.dstGeometry] = u32(descriptor.to, 'to');
      words[at + w.srcList] = u32(descriptor.fromSlots, 'fromSlots');
      words[at + w.dstList] = u32(descriptor.toSlots, 'toSlots');
      words[at + w.listCount] = u32(descriptor.blocks, 'blocks');
      words[at + w.firstBlock] = u32(descriptor.firstBlock, 'firstBlock');
      words[at + w.tokenBegin] = u32(descriptor.tokenBegin, 'tokenBegin');
      words[at + w.tokenEnd] = u32(descriptor.tokenEnd, 'tokenEnd');
      words[at + w.windowEnd] = u32(descriptor.windowEnd ?? 0, 'windowEnd');
  }
  words[at + w.layers] = u16(firstLayer, 'firstLayer') | (u16(steps, 'steps', 1) << 16);
  const { waits = noWaits, signals = noSignals } = descriptor;
  fit(waits.length, 'number of waits', 0, waitsPerDescriptor);
  fit(signals.length, 'number of signals', 0, waitsPerDescriptor);
  for (let i = 0; i < waitsPerDescriptor; i++) {
    writeWait(words, at + w.wait + i * waitWords, i < waits.length ? waits[i] : undefined);
    writeSignal(words, at + w.signal + i * waitWords, i < signals.length ? signals[i] : undefined);
  }
}

function writeWait(words: Uint32Array, at: number, wait: Wait | undefined): void {
  words[at + waitWord.counter] = u32(wait?.counter ?? none, 'counter of a wait');
  words[at + waitWord.steps] = 0;
  if (wait === undefined) return;
  words[at + waitWord.steps] =
    u8(wait.counterStep ?? 0, 'counterStep of a wait') |
    (u8(wait.valueStep ?? 0, 'valueStep of a wait') << 8) |
    (u16(wait.skipSteps ?? 0, 'skipSteps of a wait') << 16);
  writeValue(words, at + waitWord.value, wait.value);
}

function writeSignal(words: Uint32Array, at: number, signal: Signal | undefined): void {
  words[at + waitWord.counter] = u32(signal?.counter ?? none, 'counter of a signal');
  words[at + waitWord.steps] = 0;
  if (signal === undefined) return;
  words[at + waitWord.steps] =
    (signal.ordered === true ? signalMode.ordered : signalMode.add) |
    (signal.remote === true ? 1 << 8 : 0) |
    (u8(signal.counterStep ?? 0, 'counterStep of a signal') << 16);
  writeValue(words, at + waitWord.value, signal.value);
}

/** Two's complement, so that a negative base of a wait wraps as the native side adds to it. */
function writeValue(words: Uint32Array, at: number, value: number): void {
  fit(value, 'value', Number.MIN_SAFE_INTEGER, Number.MAX_SAFE_INTEGER);
  words[at] = value >>> 0;
  words[at + 1] = Math.floor(value / 0x1_0000_0000) >>> 0;
}
