/**
 * Memory of an inference engine's own, adopted: the engine keeps it, and promises that it stays where it is until
 * the TrafficManager that uses it has been closed. Any alignment will do: what O_DIRECT needs, the buffer has.
 */
import { callNative, native, type NativeRegion, type NativeRegionFacts } from '../binding/index.js';
import { DualPathError } from '../errors/index.js';
import type { Arena } from './arena.js';
import type { CudaDevice } from './cuda-device.js';

interface Named {
  /** For messages and reports. */
  readonly name: string;
  /** Stands for a GPU's memory on a machine that has none; reports say so. */
  readonly emulatedHbm?: boolean;
}

export interface AddressOptions extends Named {
  /** Of the first byte, in this process. */
  readonly address: bigint;
  readonly bytes: number;
  /** Kept from being collected as long as the region may be used. Left out: the caller keeps the memory. */
  readonly owner?: object;
}

export interface CudaOptions extends Omit<AddressOptions, 'emulatedHbm'> {
  readonly device: CudaDevice;
}

export interface FileOptions extends Named {
  /** Of a memfd, a shared memory object or a file of hugetlbfs, open for reading and writing; may be closed after. */
  readonly fd: number;
  /** Where the memory begins in the file; need not be aligned. Default 0. */
  readonly offsetBytes?: number;
  readonly bytes: number;
}

export class Region {
  readonly handle: NativeRegion;

  private constructor(handle: NativeRegion) {
    this.handle = handle;
  }

  static ofArena(name: string, arena: Arena): Region {
    return new Region(callNative(() => new (native().Region)({ name, arena: arena.handle })));
  }

  /**
   * A buffer of this process, or the part of one that a view shows. A SharedArrayBuffer is the better choice: an
   * ArrayBuffer must not be transferred to another thread while it is adopted (an operation that finds it gone is
   * refused).
   * @throws INVALID_ARGUMENT for an empty, transferred or resizable buffer
   */
  static ofBuffer(options: Named, memory: ArrayBuffer | SharedArrayBuffer | ArrayBufferView): Region {
    const refuse = (what: string): DualPathError =>
      new DualPathError('INVALID_ARGUMENT', `memory '${options.name}': ${what}`, { name: options.name });
    if (memory.byteLength === 0)
      throw refuse('the buffer is empty or has been transferred; pass one that is not');
    const view = ArrayBuffer.isView(memory)
      ? new Uint8Array(memory.buffer, memory.byteOffset, memory.byteLength)
      : new Uint8Array(memory);
    const { buffer } = view as { buffer: { resizable?: boolean; growable?: boolean } };
    if (buffer.resizable === true || buffer.growable === true) {
      throw refuse('a resizable buffer may lose what is adopted; pass one of a fixed length');
    }
    return new Region(callNative(() => new (native().Region)({ ...options, buffer: view })));
  }

  /**
   * Memory by its address, as an engine in C++ or Python knows it.
   * @throws INVALID_ARGUMENT when it is null, overflows, or is not mapped readable and writable here
   */
  static ofAddress(options: AddressOptions): Region {
    return new Region(callNative(() => new (native().Region)(options)));
  }

  /**
   * Memory of a GPU by the address that CUDA gives it (a tensor's data pointer, cuMemAlloc): never touched by the CPU; copies
   * go through the NIC or by the driver.
   * @throws INVALID_ARGUMENT unless all of it is this device's, in one allocation; CUDA_FAILED
   */
  static ofCuda(options: CudaOptions): Region {
    const { device, ...rest } = options;
    if (typeof options.address !== 'bigint') {
      throw new DualPathError(
        'INVALID_ARGUMENT',
        `memory '${options.name}': address ${String(options.address)}; a BigInt is needed`,
      );
    }
    return new Region(callNative(() => new (native().Region)({ ...rest, cuda: device.handle })));
  }

  /**
   * Memory that another process shares by a file descriptor. Whoever owns the file must not shorten it: a memfd
   * can be sealed against that (F_SEAL_SHRINK).
   * @throws INVALID_ARGUMENT when the file is shorter or not writable, MEMORY_LIMIT when it cannot be mapped
   */
  static ofFile(options: FileOptions): Region {
    return new Region(callNative(() => new (native().Region)(options)));
  }

  get facts(): NativeRegionFacts {
    return this.handle.facts();
  }
}
