// Copies memory that may be unmapped at any moment, as a JavaScript ArrayBuffer's is when it is transferred
// or shrunk: through the kernel (process_vm_readv), which answers EFAULT where a plain read would fault.
// About 0.08 ns a byte, four times a memcpy. What was freed and taken for something else is copied like any
// bytes; the caller must ask afterwards whether the memory was still there.
#pragma once
#include <sys/uio.h>
#include <unistd.h>

#include <cstddef>

namespace dualpath {

// False when not all of it could be read.
inline bool guarded_copy(void* to, const void* from, size_t bytes) noexcept {
  const iovec local{to, bytes};
  const iovec remote{const_cast<void*>(from), bytes};
  return process_vm_readv(getpid(), &local, 1, &remote, 1, 0) == static_cast<ssize_t>(bytes);
}

// Some sandboxes refuse the call.
inline bool guarded_copy_works() noexcept {
  static const bool works = [] {
    const char from = 1;
    char to = 0;
    return guarded_copy(&to, &from, 1) && to == 1;
  }();
  return works;
}

}  // namespace dualpath
