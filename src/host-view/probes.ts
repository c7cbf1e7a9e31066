/** What no file tells: libraries and system calls, asked without the add-on. */
import { native } from '../binding/index.js';
import { askLibrary, type LibraryAnswer } from '../rdma/index.js';
import { probeDirectIo, probeFileSystem, type DirectIoAnswer, type FileSystemAnswer } from './direct-io.js';
import { probeIoUring, type IoUringAnswer } from './io-uring.js';
import { askArbitration, type ArbitrationAnswer } from './umad.js';

export interface HostProbes {
  readonly library: () => LibraryAnswer;
  readonly ioUring: () => IoUringAnswer;
  /** Whether files in the folder can be written and read with O_DIRECT, and how aligned. */
  readonly directIo: (folder: string) => DirectIoAnswer;
  readonly fileSystem: (folder: string) => FileSystemAnswer;
  /** Why the add-on cannot be used; null when it is built and loads. */
  readonly addonProblem: () => string | null;
  /** Arbiter tables of an InfiniBand port. */
  readonly arbitration: (device: string, port: number) => ArbitrationAnswer;
}

function addonProblem(): string | null {
  try {
    native();
    return null;
  } catch (error) {
    return error instanceof Error ? error.message : String(error);
  }
}

let library: LibraryAnswer | undefined;

export const liveProbes: HostProbes = {
  library: () => (library ??= askLibrary()),
  ioUring: probeIoUring,
  directIo: probeDirectIo,
  fileSystem: probeFileSystem,
  addonProblem,
  arbitration: askArbitration,
};
