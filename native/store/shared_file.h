// Memory that the processes of one host share through a small file of the store: one page cache, so it is
// coherent across containers and mounts of one kernel. Where the file system refuses shared mappings or
// locks, memory of this process alone takes its place, and says so.
#pragma once
#include <cstddef>
#include <string>

#include "core/status.h"
#include "store/posix.h"

namespace dualpath::store {

class Mapping {
 public:
  Mapping() = default;
  ~Mapping() { reset(); }
  Mapping(Mapping&& other) noexcept;
  Mapping& operator=(Mapping&& other) noexcept;

  // The file's first `bytes`, shared; false with errno set.
  bool map(int fd, size_t bytes, bool writable) noexcept;
  // Zeroed memory of this process alone. Throws std::bad_alloc.
  void allocate(size_t bytes);
  void reset() noexcept;
  void* data() const noexcept { return data_; }
  size_t bytes() const noexcept { return bytes_; }
  bool shared() const noexcept { return shared_; }

 private:
  void* data_ = nullptr;
  size_t bytes_ = 0;
  bool shared_ = false;
};

// hosts/<boot id>: the running kernel's, whichever container asks; "hosts/unknown" where there is none.
const std::string& host_directory();

// Makes the file at least so long and takes its space: to write to a mapping of a file with holes raises
// SIGBUS when the file system is full. False when there is no room.
bool take_space(int fd, size_t bytes) noexcept;

}  // namespace dualpath::store
