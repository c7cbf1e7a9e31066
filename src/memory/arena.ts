/** Memory taken once at start; native/memory/arena.h says how. */
import { callNative, native, type NativeArena, type NativeArenaFacts } from '../binding/index.js';

export interface ArenaOptions {
  readonly name: string;
  /** 1 to 1 GiB (io_uring registers at most that much a buffer); more memory is several arenas. */
  readonly bytes: number;
  /** Stands for a GPU's memory on a machine that has none; reports say so. */
  readonly emulatedHbm?: boolean;
  /** Explicit huge pages when there are free ones; default true. */
  readonly hugePages?: boolean;
  /** 'require' fails where RLIMIT_MEMLOCK forbids locking, 'try' (default) goes on unlocked. */
  readonly lock?: 'none' | 'try' | 'require';
}

export class Arena {
  readonly handle: NativeArena;

  /** @throws MEMORY_LIMIT naming the limit and how to raise it, INVALID_ARGUMENT */
  constructor(options: ArenaOptions) {
    this.handle = callNative(() => new (native().Arena)(options));
  }

  get facts(): NativeArenaFacts {
    return this.handle.facts();
  }

  /** The whole arena as one ArrayBuffer, wrapped once; hand out views of it. */
  get buffer(): ArrayBuffer {
    return callNative(() => this.handle.buffer());
  }
}
