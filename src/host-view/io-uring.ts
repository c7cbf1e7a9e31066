/** Whether the kernel lets this process have an io_uring: io_uring_setup(2), called through libc's syscall(2). */
import { getSystemErrorName } from 'node:util';
import { libc } from './libc.js';

export type IoUringAnswer =
  | { readonly allowed: true }
  /** errno by name: EPERM from seccomp or sysctl, ENOSYS from an old kernel or a filter. */
  | { readonly allowed: false; readonly errno: string }
  | { readonly allowed: null; readonly why: string };

/** The same number on every architecture. */
const ioUringSetup = 425;
/** struct io_uring_params. */
const paramsBytes = 120;

export function probeIoUring(): IoUringAnswer {
  const { calls, problem } = libc();
  if (calls === null) return { allowed: null, why: problem };
  const descriptor = Number(calls.syscall(ioUringSetup, 1, Buffer.alloc(paramsBytes)));
  if (descriptor < 0) return { allowed: false, errno: getSystemErrorName(-calls.errno()) };
  calls.close(descriptor);
  return { allowed: true };
}
