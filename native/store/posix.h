// What the store's files share: descriptors that close themselves and errors of system calls.
#pragma once
#include <stdio.h>
#include <unistd.h>

#include <cstdint>
#include <string>
#include <utility>

#include "core/status.h"

namespace dualpath::store {

class ScopedFd {
 public:
  ScopedFd() = default;
  explicit ScopedFd(int fd) : fd_(fd) {}
  ~ScopedFd() { reset(); }
  ScopedFd(ScopedFd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  ScopedFd& operator=(ScopedFd&& other) noexcept {
    if (this != &other) reset(std::exchange(other.fd_, -1));
    return *this;
  }

  int get() const noexcept { return fd_; }
  bool valid() const noexcept { return fd_ >= 0; }
  int release() noexcept { return std::exchange(fd_, -1); }
  void reset(int fd = -1) noexcept {
    if (fd_ >= 0) close(fd_);
    fd_ = fd;
  }

 private:
  int fd_ = -1;
};

// STORAGE_IO or NO_SPACE, naming the call, the path and the errno, and a remedy where there is a known one.
Status io_error(const char* call, const std::string& path, int sys_errno);

enum class Reach : uint8_t { kUnknown, kThisHost, kOtherHosts };
// By the type that a table as proc_pid_mountinfo(5) describes it names for a mount.
Reach mount_reach(FILE* mountinfo, uint64_t mount_id) noexcept;

// Whether the file system is one that no other host can have mounted at the same time.
bool on_local_file_system(int fd) noexcept;

}  // namespace dualpath::store
