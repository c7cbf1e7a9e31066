// What is used of the CUDA driver API: types, values and functions as its reference has them (CUDA Driver
// API, cuda.h), stated here so that neither building nor running needs a CUDA toolkit. Names without the
// prefix cu.
#pragma once
#include <cstddef>
#include <cstdint>

namespace dualpath::cuda {

using Result = int;                  // CUresult
using Ordinal = int;                 // CUdevice
using Pointer = unsigned long long;  // CUdeviceptr
struct ContextObject;
struct StreamObject;
struct EventObject;
using Context = ContextObject*;
using Stream = StreamObject*;
using Event = EventObject*;
using HostFunction = void (*)(void* user_data);

inline constexpr Result kSuccess = 0;
inline constexpr Result kInvalidValue = 1;
inline constexpr Result kOutOfMemory = 2;
inline constexpr Result kNoDevice = 100;
inline constexpr Result kInvalidDevice = 101;
inline constexpr Result kNotReady = 600;
inline constexpr Result kHostMemoryAlreadyRegistered = 712;
inline constexpr Result kNotSupported = 801;

// CUdevice_attribute
inline constexpr int kGpuDirectRdmaSupported = 116;
inline constexpr int kGpuDirectRdmaFlushWritesOptions = 117;
inline constexpr int kGpuDirectRdmaWritesOrdering = 118;
inline constexpr int kDmaBufSupported = 124;
// CUflushGPUDirectRDMAWritesOptions, CUGPUDirectRDMAWritesOrdering
inline constexpr int kFlushOptionHost = 1;
inline constexpr int kFlushOptionMemops = 2;
inline constexpr int kOrderingOwner = 100;
// CUflushGPUDirectRDMAWritesTarget, -Scope
inline constexpr int kFlushTargetCurrentContext = 0;
inline constexpr int kFlushToOwner = 100;
// CUpointer_attribute, CUmemorytype
inline constexpr int kPointerMemoryType = 2;
inline constexpr int kPointerSyncMemops = 6;
inline constexpr int kPointerIsManaged = 8;
inline constexpr int kPointerDeviceOrdinal = 9;
inline constexpr int kPointerRangeStart = 11;
inline constexpr int kPointerRangeSize = 12;
inline constexpr unsigned kMemoryTypeDevice = 2;
inline constexpr unsigned kMemoryTypeUnified = 4;
// Flags of streams, events, registered host memory; CUmemRangeHandleType
inline constexpr unsigned kStreamNonBlocking = 1;
inline constexpr unsigned kEventDisableTiming = 2;
inline constexpr unsigned kHostRegisterPortable = 1;
inline constexpr int kRangeHandleDmaBufFd = 1;

// CUDA_MEMCPY2D
struct Copy2d {
  size_t source_x_bytes, source_y;
  unsigned source_type;
  const void* source_host;
  Pointer source_device;
  void* source_array;
  size_t source_pitch;
  size_t target_x_bytes, target_y;
  unsigned target_type;
  void* target_host;
  Pointer target_device;
  void* target_array;
  size_t target_pitch;
  size_t width_bytes, height;
};

struct Functions {
  Result (*Init)(unsigned flags);
  Result (*DriverGetVersion)(int* version);
  Result (*GetErrorName)(Result, const char** name);
  Result (*GetErrorString)(Result, const char** text);
  Result (*DeviceGetCount)(int* count);
  Result (*DeviceGet)(Ordinal* device, int ordinal);
  Result (*DeviceGetName)(char* name, int bytes, Ordinal);
  Result (*DeviceGetByPCIBusId)(Ordinal* device, const char* id);
  Result (*DeviceGetPCIBusId)(char* id, int bytes, Ordinal);
  Result (*DeviceGetAttribute)(int* value, int attribute, Ordinal);
  Result (*DevicePrimaryCtxRetain)(Context*, Ordinal);
  Result (*DevicePrimaryCtxRelease)(Ordinal);
  Result (*CtxPushCurrent)(Context);
  Result (*CtxPopCurrent)(Context*);
  Result (*MemAlloc)(Pointer*, size_t bytes);
  Result (*MemFree)(Pointer);
  Result (*PointerGetAttribute)(void* value, int attribute, Pointer);
  Result (*PointerSetAttribute)(const void* value, int attribute, Pointer);
  Result (*MemHostRegister)(void*, size_t bytes, unsigned flags);
  Result (*MemHostUnregister)(void*);
  Result (*MemcpyAsync)(Pointer to, Pointer from, size_t bytes, Stream);
  Result (*Memcpy2DAsync)(const Copy2d*, Stream);
  Result (*StreamCreate)(Stream*, unsigned flags);
  Result (*StreamDestroy)(Stream);
  Result (*StreamSynchronize)(Stream);
  Result (*EventCreate)(Event*, unsigned flags);
  Result (*EventDestroy)(Event);
  Result (*EventRecord)(Event, Stream);
  Result (*EventQuery)(Event);
  Result (*LaunchHostFunc)(Stream, HostFunction, void* user_data);
  // nullptr where the driver is older than what they came with.
  Result (*MemGetHandleForAddressRange)(void* handle, Pointer, size_t bytes, int type,
                                        unsigned long long flags);  // 11.7
  Result (*FlushGPUDirectRDMAWrites)(int target, int scope);        // 11.3
};

}  // namespace dualpath::cuda
