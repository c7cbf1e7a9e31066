/** Memory taken once at start; native/memory/arena.h says how. */
import { DualPathError } from '../errors/index.js';
import { callNative, native, type NativeArena, type NativeArenaFacts } from '../binding/index.js';
import type { CudaDevice } from './cuda-device.js';

export interface ArenaOptions {
  readonly name: string;
  /** 1 to 1 GiB (io_uring registers at most that much a buffer); more memory is several arenas. */
  readonly bytes: number;
  /** Stands for a GPU's memory on a machine that has none; reports say so. */
  readonly emulatedHbm?: boolean;
  /** Memory of this GPU: the CPU does not reach it, and no buffer shows it. */
  readonly cuda?: CudaDevice;
  /** Explicit huge pages when there are free ones; default true. */
  readonly hugePages?: boolean;
  /** Other processes of this host may be let in (a memfd); then without explicit huge pages. */
  readonly shared?: boolean;
  /** 'require' fails where RLIMIT_MEMLOCK forbids locking, 'try' (default) goes on unlocked. */
  readonly lock?: 'none' | 'try' | 'require';
}

export class Arena {
  readonly handle: NativeArena;

  /** @throws MEMORY_LIMIT naming the limit and how to raise it, INVALID_ARGUMENT */
  constructor(options: ArenaOptions) {
    const { cuda, ...rest } = options;
    const device = cuda === undefined ? {} : { cuda: cuda.handle };
    this.handle = callNative(() => new (native().Arena)({ ...rest, ...device }));
  }

  get facts(): NativeArenaFacts {
    return this.handle.facts();
  }

  /**
   * The whole arena as one ArrayBuffer, wrapped once; hand out views of it.
   * @throws NO_EXTERNAL_BUFFERS where the runtime keeps native memory out of JavaScript (Electron): copy with read()
   * and write() there
   */
  get buffer(): ArrayBuffer {
    const buffer = callNative(() => this.handle.buffer());
    if (buffer !== undefined) return buffer;
    throw new DualPathError(
      'NO_EXTERNAL_BUFFERS',
      'this runtime allows no ArrayBuffer over native memory (Electron with the memory cage of V8); copy with read() and write()',
    );
  }

  /** Fills `bytes` with a copy of the arena's from `offset` on. @throws INVALID_ARGUMENT */
  read(offset: number, bytes: Uint8Array): void {
    callNative(() => this.handle.read(offset, bytes));
  }

  /** Copies `bytes` into the arena from `offset` on. @throws INVALID_ARGUMENT */
  write(offset: number, bytes: Uint8Array): void {
    callNative(() => this.handle.write(offset, bytes));
  }
}
