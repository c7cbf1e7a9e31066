/**
 * The layout of native/include/dualpath_ring.h, restated. test/transfer/abi.test.ts compares every field
 * with what the compiler says. Offsets are in 32-bit words unless they say bytes.
 */

export const abiMagic = 0x44504154;
export const abiVersion = 2;
export const none = 0xffffffff;

export const op = { nop: 0, read: 1, write: 2, copy: 3, send: 4, bump: 5 } as const;
export const trafficClass = { inference: 0, kv: 1, control: 2 } as const;
export const flag = { end: 1, event: 2 } as const;
export const signalMode = { add: 0, ordered: 1 } as const;
export const recordKind = { program: 1, step: 2 } as const;
export const programStatus = {
  ok: 0,
  invalid: 1,
  storage: 2,
  badBlock: 3,
  peer: 4,
  cancelled: 5,
  closed: 6,
  device: 7,
} as const;

/** enum dp_call: of storage, and of RDMA. */
export const failedCall = {
  none: 0,
  open: 1,
  read: 2,
  write: 3,
  fsync: 4,
  rename: 5,
  verify: 6,
  rdma: 7,
} as const;

/** Words of a dp_descriptor. */
export const descriptorWord = {
  head: 0, // op u8, traffic_class u8, flags u16
  program: 1,
  tag: 2,
  peer: 3,
  srcGeometry: 4,
  dstGeometry: 5,
  srcList: 6,
  dstList: 7,
  listCount: 8,
  firstBlock: 9,
  tokenBegin: 10,
  tokenEnd: 11,
  layers: 12, // first_layer u16, layer_count u16
  windowEnd: 13,
  wait: 16,
  signal: 24,
} as const;
export const descriptorWords = 32;

/** Words of a dp_wait and a dp_signal, which have the same shape. */
export const waitWord = { counter: 0, steps: 1, value: 2 } as const;
export const waitWords = 4;
/** Waits of a dp_descriptor, and as many signals. */
export const waitsPerDescriptor = 2;

/** Words of a dp_record. */
export const recordWord = {
  head: 0, // kind u8, op u8, step u16
  program: 1,
  tag: 2,
  status: 3,
  errorIndex: 4,
  errorBlock: 5,
  bytesMoved: 6,
  submittedNs: 8,
  finishedNs: 10,
  errorErrno: 12,
  errorCall: 13,
  errorOffset: 14,
  errorBytes: 15,
} as const;
export const recordWords = 16;

/** Words of the dp_door_header. */
export const headerWord = {
  magic: 0,
  version: 1,
  submissionEntries: 5,
  completionEntries: 6,
  counterEntries: 7,
  slotEntries: 8,
  keyEntries: 9,
  submissionOffset: 10,
  completionOffset: 11,
  counterOffset: 12,
  slotOffset: 13,
  keyOffset: 14,
  submission: 16,
  completion: 48,
} as const;

/** Words of a dp_ring_index. */
export const ringWord = { head: 0, tail: 16, sleeping: 17 } as const;

export const keyBytes = 32;
