// Memory of an inference engine's own, of the host or of a GPU: adopted, never taken. One name
// and one range of addresses, whatever it is made of; slices of at most 1 GiB are what devices register.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/status.h"
#include "memory/arena.h"

namespace dualpath {

class Region {
 public:
  static std::shared_ptr<Region> of(const std::shared_ptr<Arena>& arena);
  // Memory of the caller's, of any alignment, readable and writable until the region is gone.
  // INVALID_ARGUMENT for no bytes, and for addresses that are null, overflow or are not mapped.
  static Status adopt(std::string name, uint64_t address, uint64_t bytes, ArenaKind kind,
                      std::shared_ptr<Region>* out);
  // As adopt(), of memory known to be mapped: a buffer of the caller's language.
  static Status of_buffer(std::string name, std::byte* base, uint64_t bytes, ArenaKind kind,
                          std::shared_ptr<Region>* out);
  // Bytes [offset, offset + bytes) of a file that another process shares: a memfd, a POSIX shared memory
  // object, a file of hugetlbfs. Offsets need no alignment. The descriptor is not kept. INVALID_ARGUMENT when
  // the file is shorter or not open for reading and writing, MEMORY_LIMIT when it cannot be mapped.
  static Status map(std::string name, int fd, uint64_t offset, uint64_t bytes, ArenaKind kind,
                    std::shared_ptr<Region>* out);
  // Memory of a device by its address there, of any alignment, until the region is gone.
  static Status of_device(std::string name, std::shared_ptr<DeviceMemory> device, uint64_t address,
                          uint64_t bytes, std::shared_ptr<Region>* out);
  ~Region();
  Region(const Region&) = delete;
  Region& operator=(const Region&) = delete;

  std::byte* base() const { return base_; }
  uint64_t bytes() const { return bytes_; }
  const std::string& name() const { return name_; }
  ArenaKind kind() const { return kind_; }
  const std::shared_ptr<DeviceMemory>& device() const { return device_; }  // nullptr: the CPU reaches it
  // The whole range in order; what lies across a boundary is moved as anything else is.
  const std::vector<std::shared_ptr<Arena>>& slices() const { return slices_; }

 private:
  Region() = default;
  void slice();
  std::string name_;
  std::byte* base_ = nullptr;
  uint64_t bytes_ = 0;
  ArenaKind kind_ = ArenaKind::kHost;
  std::shared_ptr<DeviceMemory> device_;
  std::vector<std::shared_ptr<Arena>> slices_;
  void* mapping_ = nullptr;  // of map()
  size_t mapping_bytes_ = 0;
};

}  // namespace dualpath
