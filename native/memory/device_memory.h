// Memory of a device, which the CPU does not reach by its address: what is needed to check it, to copy it, to
// let a NIC reach it. CUDA is the implementation (cuda/device.h); emulated HBM is memory of the host and
// needs none of this.
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "core/status.h"

namespace dualpath {

// Rows of a copy: the same number of bytes each, a stride apart on either side.
struct CopyRows {
  uint64_t to, from;
  uint64_t to_stride, from_stride;
  uint64_t bytes;
  uint32_t rows;
};

// Copies in order, off this thread. One thread uses it.
class DeviceStream {
 public:
  virtual ~DeviceStream() = default;  // waits for what is under way
  virtual Status copy(const CopyRows& rows) = 0;
  // What was copied so far has arrived once poll() of the mark says so; the stream's `reached` is called from
  // a thread of the driver's then, unless copying has failed. At most kMaxMarks are not yet taken back.
  static constexpr uint32_t kMaxMarks = 64;
  virtual uint32_t marks_left() const = 0;
  virtual Status mark(uint32_t* mark) = 0;
  enum class Progress { kPending, kArrived, kFailed };
  // What is not pending any more is taken back by this.
  virtual Progress poll(uint32_t mark, Status* why) = 0;
};

struct DmaBuf {
  int fd = -1;          // the caller's to close
  uint64_t offset = 0;  // of the memory in it
};

// Whether bytes that a NIC has written are seen by the device's kernels only after a flush.
enum class RemoteFlush { kNotNeeded, kByHost, kByStreamOnly };

class DeviceMemory {
 public:
  virtual ~DeviceMemory() = default;
  virtual std::shared_ptr<DeviceMemory> shared() = 0;
  virtual const std::string& name() const = 0;         // of the device, as its driver calls it
  virtual const std::string& pci_address() const = 0;  // 0000:3b:00.0

  virtual Status allocate(const std::string& name, size_t bytes, uint64_t* address) = 0;
  virtual void free(uint64_t address) = 0;
  // INVALID_ARGUMENT unless all of it is this device's, in one allocation. From then on copies of it are
  // ordered with what a NIC does to it.
  virtual Status adopt(const std::string& name, uint64_t address, uint64_t bytes) = 0;
  // Memory of the host that copies go to or come from: without it they are not asynchronous. Several times is
  // fine. MEMORY_LIMIT.
  virtual Status register_host(const std::string& name, void* base, size_t bytes) = 0;
  virtual void unregister_host(void* base) = 0;

  virtual Status open_stream(std::function<void()> reached, std::unique_ptr<DeviceStream>* out) = 0;

  // For a NIC. CUDA_UNAVAILABLE where driver or device cannot.
  virtual Status export_dmabuf(const std::string& name, uint64_t address, uint64_t bytes, DmaBuf* out) = 0;
  virtual RemoteFlush remote_flush() const = 0;
  // After the receive completion, before anybody is told. CUDA_FAILED.
  virtual Status flush_remote_writes() = 0;
};

}  // namespace dualpath
