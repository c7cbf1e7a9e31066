// How native code reports what went wrong to its caller: a code the TypeScript side knows, the errno
// when a system call failed, and a sentence that names the value, the limit and the remedy.
#pragma once
#include <string>
#include <utility>

namespace dualpath {

struct Status {
  const char* code = nullptr;  // one of src/errors codes, nullptr when fine
  int sys_errno = 0;
  std::string message;

  bool ok() const { return code == nullptr; }

  static Status error(const char* code, std::string message, int sys_errno = 0) {
    return Status{code, sys_errno, std::move(message)};
  }
};

}  // namespace dualpath
