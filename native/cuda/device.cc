#include "cuda/device.h"

#include <sys/resource.h>
#include <unistd.h>

#include <cinttypes>
#include <cstdio>

#include "cuda/scope.h"
#include "cuda/stream.h"

namespace dualpath::cuda {
namespace {

std::string hex(uint64_t address) {
  char text[24];
  snprintf(text, sizeof text, "0x%" PRIx64, address);
  return text;
}

Status invalid(const std::string& name, const std::string& message) {
  return Status::error("INVALID_ARGUMENT", "memory '" + name + "': " + message);
}

}  // namespace

Status Device::failed(const std::string& what, Result result) const {
  const char* const code = result == kOutOfMemory ? "MEMORY_LIMIT" : "CUDA_FAILED";
  return Status::error(code, what + " on " + facts_.name + " (" + facts_.pci_address +
                                 ") failed: " + driver_->text(result) +
                                 (result == kOutOfMemory ? "; ask for less, or free some of it" : ""));
}

Status Device::open(std::shared_ptr<Driver> driver, int ordinal, std::shared_ptr<Device>* out) {
  Ordinal handle = 0;
  if (ordinal < 0 || ordinal >= driver->devices() || driver->api().DeviceGet(&handle, ordinal) != kSuccess) {
    return Status::error("INVALID_ARGUMENT", "there is no CUDA device " + std::to_string(ordinal) +
                                                 "; 0 to " + std::to_string(driver->devices() - 1) +
                                                 " are visible (CUDA_VISIBLE_DEVICES may hide some)");
  }
  return retain(std::move(driver), handle, out);
}

Status Device::open(std::shared_ptr<Driver> driver, const std::string& pci_address,
                    std::shared_ptr<Device>* out) {
  Ordinal handle = 0;
  const Result result = driver->api().DeviceGetByPCIBusId(&handle, pci_address.c_str());
  if (result == kSuccess) return retain(std::move(driver), handle, out);
  std::string there;
  for (int i = 0; i < driver->devices(); i++) {
    char id[32] = "";
    Ordinal other = 0;
    if (driver->api().DeviceGet(&other, i) == kSuccess) {
      driver->api().DeviceGetPCIBusId(id, sizeof id, other);
    }
    there += (there.empty() ? "" : ", ") + std::string(id);
  }
  return Status::error("INVALID_ARGUMENT", "there is no CUDA device at PCI address '" + pci_address + "' (" +
                                               driver->text(result) + "); there are " + there);
}

Status Device::retain(std::shared_ptr<Driver> driver, Ordinal handle, std::shared_ptr<Device>* out) {
  auto device = std::shared_ptr<Device>(new Device(std::move(driver)));
  device->handle_ = handle;
  device->read_facts(handle);
  const Result result = device->api().DevicePrimaryCtxRetain(&device->context_, handle);
  if (result != kSuccess) {
    device->context_ = nullptr;
    return device->failed("retaining the primary context", result);
  }
  *out = std::move(device);
  return {};
}

void Device::read_facts(Ordinal handle) {
  char text[256] = "";
  if (api().DeviceGetName(text, sizeof text, handle) == kSuccess) facts_.name = text;
  char id[32] = "";
  if (api().DeviceGetPCIBusId(id, sizeof id, handle) == kSuccess) facts_.pci_address = id;
  facts_.driver_version = driver_->version();
  facts_.ordinal = handle;
  const auto attribute = [&](int which) {
    int value = 0;
    return api().DeviceGetAttribute(&value, which, handle) == kSuccess ? value : 0;
  };
  facts_.rdma = attribute(kGpuDirectRdmaSupported) != 0;
  facts_.dma_buf = attribute(kDmaBufSupported) != 0 && api().MemGetHandleForAddressRange != nullptr;
  if (!facts_.rdma || attribute(kGpuDirectRdmaWritesOrdering) >= kOrderingOwner) return;
  const bool host = (attribute(kGpuDirectRdmaFlushWritesOptions) & kFlushOptionHost) != 0;
  facts_.flush =
      host && api().FlushGPUDirectRDMAWrites != nullptr ? RemoteFlush::kByHost : RemoteFlush::kByStreamOnly;
}

Device::~Device() {
  if (context_ != nullptr) api().DevicePrimaryCtxRelease(handle_);
}

Status Device::allocate(const std::string& name, size_t bytes, uint64_t* address) {
  const Scope scope(api(), context_);
  Pointer pointer = 0;
  const Result result = scope.result() != kSuccess ? scope.result() : api().MemAlloc(&pointer, bytes);
  if (result != kSuccess)
    return failed("memory '" + name + "': allocating " + std::to_string(bytes) + " bytes", result);
  const Status status = sync_memops(name, pointer);
  if (!status.ok()) {
    api().MemFree(pointer);
    return status;
  }
  *address = pointer;
  return {};
}

void Device::free(uint64_t address) {
  const Scope scope(api(), context_);
  api().MemFree(address);
}

// Synchronous copies and kernels see what a NIC has written before them (GPUDirect RDMA guide,
// CU_POINTER_ATTRIBUTE_SYNC_MEMOPS).
Status Device::sync_memops(const std::string& name, uint64_t address) {
  const int on = 1;
  const Result result = api().PointerSetAttribute(&on, kPointerSyncMemops, address);
  if (result == kSuccess || result == kNotSupported) return {};
  return failed("memory '" + name + "': CU_POINTER_ATTRIBUTE_SYNC_MEMOPS", result);
}

Status Device::adopt(const std::string& name, uint64_t address, uint64_t bytes) {
  if (address == 0 || bytes == 0)
    return invalid(name, std::to_string(bytes) + " bytes at " + hex(address) + "; neither may be 0");
  const Scope scope(api(), context_);
  if (scope.result() != kSuccess) return failed("memory '" + name + "'", scope.result());
  unsigned type = 0;
  int ordinal = -1;
  Pointer start = 0;
  size_t size = 0;
  Result result = api().PointerGetAttribute(&type, kPointerMemoryType, address);
  if (result == kInvalidValue || (result == kSuccess && type != kMemoryTypeDevice)) {
    return invalid(name, hex(address) + " is no memory of a CUDA device" +
                             (result == kSuccess ? " (CUDA knows it as memory of the host)" : "") +
                             "; pass the address that cuMemAlloc or the engine's tensor gives, or adopt host "
                             "memory by ofAddress");
  }
  if (result == kSuccess) result = api().PointerGetAttribute(&ordinal, kPointerDeviceOrdinal, address);
  if (result == kSuccess) result = api().PointerGetAttribute(&start, kPointerRangeStart, address);
  if (result == kSuccess) result = api().PointerGetAttribute(&size, kPointerRangeSize, address);
  if (result != kSuccess) return failed("memory '" + name + "': attributes of " + hex(address), result);
  if (ordinal != handle_) {
    return invalid(name, hex(address) + " is memory of CUDA device " + std::to_string(ordinal) + ", not of " +
                             std::to_string(handle_) + "; adopt it with that device");
  }
  const uint64_t offset = address - start;
  if (offset > size || bytes > size - offset) {
    return invalid(name, std::to_string(bytes) + " bytes from " + hex(address) + " on: its allocation has " +
                             std::to_string(size) + " bytes from " + hex(start) +
                             " on; adopt each allocation by itself");
  }
  return sync_memops(name, address);
}

Status Device::register_host(const std::string& name, void* base, size_t bytes) {
  std::lock_guard lock(mutex_);
  if (const auto found = host_.find(base); found != host_.end()) {
    found->second++;
    return {};
  }
  const Scope scope(api(), context_);
  const Result result =
      scope.result() != kSuccess ? scope.result() : api().MemHostRegister(base, bytes, kHostRegisterPortable);
  if (result == kHostMemoryAlreadyRegistered) return {};  // by the engine: it is its to unregister
  if (result == kSuccess) {
    host_[base] = 1;
    return {};
  }
  rlimit limit{};
  getrlimit(RLIMIT_MEMLOCK, &limit);
  const std::string most =
      limit.rlim_cur == RLIM_INFINITY ? "unlimited" : std::to_string(limit.rlim_cur) + " bytes";
  return Status::error("MEMORY_LIMIT", "memory '" + name + "': registering " + std::to_string(bytes) +
                                           " bytes of the host with CUDA failed: " + driver_->text(result) +
                                           "; RLIMIT_MEMLOCK is " + most +
                                           ": raise it with 'ulimit -l unlimited', or use a smaller buffer");
}

void Device::unregister_host(void* base) {
  std::lock_guard lock(mutex_);
  const auto found = host_.find(base);
  if (found == host_.end() || --found->second != 0) return;
  host_.erase(found);
  const Scope scope(api(), context_);
  api().MemHostUnregister(base);
}

Status Device::open_stream(std::function<void()> reached, std::unique_ptr<DeviceStream>* out) {
  return CopyStream::open(shared_from_this(), std::move(reached), out);
}

// The exporter takes whole pages of the host's size only, so the range is widened to them; an allocation
// begins and ends on such a page.
Status Device::export_dmabuf(const std::string& name, uint64_t address, uint64_t bytes, DmaBuf* out) {
  const auto unavailable = [&](const std::string& why) {
    return Status::error("CUDA_UNAVAILABLE", "memory '" + name + "': " + facts_.name +
                                                 " exports no dma-buf: " + why +
                                                 "; load nvidia-peermem, or let copies go by the driver");
  };
  if (!facts_.dma_buf) {
    return unavailable(api().MemGetHandleForAddressRange == nullptr
                           ? "its driver is older than CUDA 11.7"
                           : "the device does not support it (the open kernel modules are needed)");
  }
  const uint64_t page = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  const uint64_t begin = address / page * page;
  const uint64_t end = (address + bytes + page - 1) / page * page;
  const Scope scope(api(), context_);
  int fd = -1;
  const Result result = scope.result() != kSuccess ? scope.result()
                                                   : api().MemGetHandleForAddressRange(
                                                         &fd, begin, end - begin, kRangeHandleDmaBufFd, 0);
  if (result != kSuccess) return unavailable(driver_->text(result));
  *out = {fd, address - begin};
  return {};
}

Status Device::flush_remote_writes() {
  if (facts_.flush == RemoteFlush::kNotNeeded) return {};
  const Scope scope(api(), context_);
  const Result result = scope.result() != kSuccess
                            ? scope.result()
                            : api().FlushGPUDirectRDMAWrites(kFlushTargetCurrentContext, kFlushToOwner);
  if (result != kSuccess) return failed("flushing what a NIC has written", result);
  flushes_.fetch_add(1, std::memory_order_relaxed);
  return {};
}

}  // namespace dualpath::cuda
