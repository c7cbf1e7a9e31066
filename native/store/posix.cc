#include "store/posix.h"

#include <sys/vfs.h>

#include <algorithm>
#include <cerrno>
#include <iterator>
#include <system_error>

namespace dualpath::store {

Status io_error(const char* call, const std::string& path, int sys_errno) {
  std::string message = std::string("block store: ") + call + " " + path + ": " +
                        std::generic_category().message(sys_errno) + " (errno " + std::to_string(sys_errno) +
                        ")";
  const char* code = "STORAGE_IO";
  switch (sys_errno) {
    case ENOSPC:
    case EDQUOT:
      code = "NO_SPACE";
      message += "; free some space or inodes there, raise the quota, or choose another directory";
      break;
    case EACCES:
    case EPERM:
    case EROFS:
      message += "; this process needs read, write and search permission on a writable file system there";
      break;
    case EMFILE:
      message += "; raise this process's limit of open files (ulimit -n)";
      break;
    case ENFILE:
      message += "; raise the system's limit of open files (fs.file-max)";
      break;
    case EIO:
      message += "; the device failed, the kernel's log says more";
      break;
    case ENOTDIR:
      message += "; the path has to name a directory";
      break;
    case ELOOP:
      message += "; the store's own files and directories may not be symbolic links";
      break;
    default:
      break;
  }
  return Status::error(code, std::move(message), sys_errno);
}

bool on_local_file_system(int fd) noexcept {
  // ext, XFS, btrfs, tmpfs, ZFS, F2FS, overlayfs: statfs(2), linux/magic.h.
  constexpr long kLocal[] = {0xef53, 0x58465342, 0x9123683e, 0x01021994, 0x2fc12fc1, 0xf2f52010, 0x794c7630};
  struct statfs info;
  if (fstatfs(fd, &info) != 0) return false;
  return std::find(std::begin(kLocal), std::end(kLocal), static_cast<long>(info.f_type)) != std::end(kLocal);
}

}  // namespace dualpath::store
