/** A GPU, by CUDA's driver, which is opened at run time (native/cuda). */
import { callNative, native, type CudaDeviceFacts, type NativeCudaDevice } from '../binding/index.js';

export type CudaDeviceOptions = ({ readonly ordinal: number } | { readonly pciAddress: string }) & {
  /** In place of libcuda.so.1. */
  readonly library?: string;
};

export class CudaDevice {
  readonly handle: NativeCudaDevice;

  /**
   * Its primary context is retained, the one that the engine's own CUDA runtime uses.
   * @throws CUDA_UNAVAILABLE without driver or device, INVALID_ARGUMENT for one there is not, CUDA_FAILED
   */
  constructor(options: CudaDeviceOptions) {
    this.handle = callNative(() => new (native().CudaDevice)(options));
  }

  get facts(): CudaDeviceFacts {
    return this.handle.facts();
  }
}
