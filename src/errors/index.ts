/**
 * Every error this package throws. Each names the value, the limit and the remedy in its message, and
 * carries a stable `code` plus machine-readable `details`.
 */

/** Codes and what each one means; the table is the documentation. */
export const errorCodes = {
  INVALID_ARGUMENT: 'an argument or option has the wrong type, range or name',
  INVALID_MODEL: 'a model description is impossible',
  INVALID_TRACE: 'a line of a trace is malformed',
  ADDON_MISSING: 'the native add-on is not built for this machine',
  NO_EXTERNAL_BUFFERS: 'this runtime allows no ArrayBuffer over native memory; copy instead',
  MEMORY_LIMIT: 'memory could not be taken or locked within the limits in force',
  STORE_MISMATCH: 'the block store was made for another model, layout or format',
  STORAGE_IO: 'a read or write of the block store failed',
  NO_SPACE: 'the file system of the block store is full, or a quota on it',
  BAD_BLOCK: 'a stored block is truncated, foreign, corrupt or gone; it counts as a miss',
  REQUEST_TOO_LARGE: 'a request needs more than an engine can ever give it',
  CAPACITY_EXHAUSTED: 'a bounded queue, pool or table is full; wait and try again',
  RDMA_UNAVAILABLE: 'libibverbs, or an RDMA device, or what is asked of it, is not on this machine',
  RDMA_FAILED: 'a call into the RDMA device failed',
  UNAUTHENTICATED: 'the other side of a control connection has another token, or none',
  CUDA_UNAVAILABLE: "NVIDIA's driver, or a CUDA device, or what is asked of it, is not on this machine",
  CUDA_FAILED: 'a call into the CUDA driver failed',
  PEER_LOST: 'the other engine closed or cannot be reached',
  CANCELLED: 'the caller cancelled the operation',
  DEADLINE: 'the deadline passed before the operation ended',
  CLOSED: 'the object has been closed',
  INTERNAL: 'a broken invariant: please report it',
} as const;

export type ErrorCode = keyof typeof errorCodes;

/** Details are JSON values with snake_case keys and units last, so a log line can carry them as they are. */
export type ErrorDetails = Readonly<Record<string, string | number | bigint | boolean | null>>;

export class DualPathError extends Error {
  override readonly name = 'DualPathError';
  readonly code: ErrorCode;
  readonly details: ErrorDetails;

  constructor(code: ErrorCode, message: string, details: ErrorDetails = {}, options?: { cause?: unknown }) {
    super(message, options);
    this.code = code;
    this.details = details;
  }
}

/** True for errors of this package, optionally of one code. */
export function isDualPathError(error: unknown, code?: ErrorCode): error is DualPathError {
  return error instanceof DualPathError && (code === undefined || error.code === code);
}
