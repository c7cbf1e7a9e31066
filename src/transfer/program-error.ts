/** Why a program failed, as an error with its code, and the range that failed. */
import { getSystemErrorName } from 'node:util';
import { native } from '../binding/index.js';
import { DualPathError, type ErrorCode } from '../errors/index.js';
import { none, op, programStatus, failedCall } from './abi.js';

export interface ProgramFailure {
  readonly status: number;
  readonly op: number;
  /** Index in the program, or `none` when it was not a descriptor's fault. */
  readonly descriptor: number;
  /** First failing position in the descriptor's list; all before it arrived. `none` when not known. */
  readonly block: number;
  readonly errno: number;
  /** What failed, or failedCall.none. */
  readonly call: number;
  /** Of a block's file: bytes moved before, and to be moved in all. Of RDMA: ibv_wc_status, queue pair. */
  readonly offsetBytes: number;
  readonly bytes: number;
}

export const noFailure: ProgramFailure = {
  status: programStatus.ok,
  op: op.nop,
  descriptor: none,
  block: none,
  errno: 0,
  call: failedCall.none,
  offsetBytes: 0,
  bytes: 0,
};

/** What to do about a storage error, by errno (errno(3), Linux); where the space is used up, in `full`. */
const full: Readonly<Record<number, string>> = {
  28: 'free space or inodes on its file system, or use another directory', // ENOSPC
  122: 'raise the quota there, free space, or use another directory', // EDQUOT
};
const remedies: Readonly<Record<number, string>> = {
  ...full,
  5: "the device failed, the kernel's log says more; 'dualpath store verify' finds blocks that cannot be read", // EIO
  13: 'this process needs read, write and search permission there', // EACCES
  23: "raise the system's limit of open files (fs.file-max)", // ENFILE
  24: "raise this process's limit of open files (ulimit -n)", // EMFILE
  30: 'make its file system writable again, or use another directory', // EROFS
};
const opNames = Object.entries(op).map(([name]) => name);
const callNames = Object.entries(failedCall).map(([name]) => name);

export class ProgramError extends DualPathError {
  /** Position in the list of the first block that failed; undefined when no block did. */
  readonly failedBlock: number | undefined;

  constructor(code: ErrorCode, message: string, failure: ProgramFailure, path: string | undefined) {
    super(code, message, {
      op: opNames[failure.op] ?? failure.op,
      descriptor: failure.descriptor === none ? null : failure.descriptor,
      block: failure.block === none ? null : failure.block,
      errno: failure.errno,
      ...(path === undefined
        ? {}
        : { path, call: callNames[failure.call]!, offset_bytes: failure.offsetBytes, bytes: failure.bytes }),
    });
    this.failedBlock = failure.block === none ? undefined : failure.block;
  }
}

const codes: Record<number, readonly [ErrorCode, string]> = {
  [programStatus.invalid]: ['INVALID_ARGUMENT', 'names something that does not exist or is out of bounds'],
  [programStatus.storage]: ['STORAGE_IO', 'failed at the block store'],
  [programStatus.badBlock]: ['BAD_BLOCK', 'met a stored block that is gone, truncated, foreign or corrupt'],
  [programStatus.peer]: ['PEER_LOST', 'lost its peer'],
  [programStatus.cancelled]: ['CANCELLED', 'was cancelled'],
  [programStatus.closed]: ['CLOSED', 'ended with its engine'],
  [programStatus.device]: [
    'CUDA_FAILED',
    "could not copy: CUDA's driver failed, or copyWay is 'nic' and the NIC cannot (statistics().copyRefusals and the CopyNic's say why)",
  ],
};

/** What a failure was about, where it was about one of these. */
export interface FailureSubject {
  /** The file of the block that failed. */
  readonly path?: string | undefined;
  /** The peer, its transport and device, as reports name them. */
  readonly peer?: string | undefined;
}

export function programError(
  engine: string,
  failure: ProgramFailure,
  { path, peer }: FailureSubject = {},
): ProgramError {
  const [code, what] = codes[failure.status] ?? ['INTERNAL', `ended with status ${failure.status}`];
  const where =
    failure.descriptor === none ? '' : ` (descriptor ${failure.descriptor}, ${opNames[failure.op]})`;
  const block = failure.block === none ? '' : `, first at block ${failure.block} of its list`;
  const file =
    path === undefined
      ? ''
      : `: ${callNames[failure.call]} of ${path} at byte ${failure.offsetBytes} of ${failure.bytes}`;
  const lost = code === 'PEER_LOST' ? peerFailure(failure, peer) : '';
  const errno = failure.errno === 0 ? '' : `, errno ${failure.errno} (${errnoName(failure.errno)})`;
  const ofStorage = code === 'STORAGE_IO';
  const remedy = ofStorage && failure.errno in remedies ? `; ${remedies[failure.errno]}` : '';
  return new ProgramError(
    ofStorage && failure.errno in full ? 'NO_SPACE' : code,
    `a program of engine '${engine}' ${what}${where}${block}${file}${lost}${errno}${remedy}`,
    failure,
    path,
  );
}

function peerFailure(failure: ProgramFailure, peer: string | undefined): string {
  const who = peer === undefined ? '' : `: ${peer}`;
  if (failure.call !== failedCall.rdma) return who;
  if (failure.bytes === 0) return `${who}: there is no connection in its traffic class`;
  const status =
    failure.offsetBytes === 0 ? 'the connection was closed' : native().workStatusText(failure.offsetBytes);
  return `${who}: ${failure.errno === 0 ? status : 'posting was refused'}, queue pair ${failure.bytes}`;
}

/** libuv does not know them all. */
const otherNames: Readonly<Record<number, string>> = { 117: 'EUCLEAN', 122: 'EDQUOT' };

function errnoName(errno: number): string {
  return otherNames[errno] ?? getSystemErrorName(-errno);
}
