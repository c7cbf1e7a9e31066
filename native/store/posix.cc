#include "store/posix.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>

#include <algorithm>
#include <cerrno>
#include <iterator>
#include <string_view>
#include <system_error>

namespace dualpath::store {
namespace {

constexpr std::string_view kLocalTypes[] = {"ext2",  "ext3", "ext4", "xfs",    "btrfs",
                                            "tmpfs", "zfs",  "f2fs", "overlay"};

// Of the mount, not of statfs(2): 9p of Linux 6.1 passes on the type that its server has
// (fs/9p/vfs_super.c).
Reach reach_of_mount(int fd) noexcept {
  struct statx info;
  if (statx(fd, "", AT_EMPTY_PATH, STATX_MNT_ID, &info) != 0 || (info.stx_mask & STATX_MNT_ID) == 0) {
    return Reach::kUnknown;
  }
  FILE* mountinfo = fopen("/proc/self/mountinfo", "re");
  if (mountinfo == nullptr) return Reach::kUnknown;
  const Reach reach = mount_reach(mountinfo, info.stx_mnt_id);
  fclose(mountinfo);
  return reach;
}

}  // namespace

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

Reach mount_reach(FILE* mountinfo, uint64_t mount_id) noexcept {
  char* line = nullptr;
  size_t capacity = 0;
  Reach reach = Reach::kUnknown;
  while (reach == Reach::kUnknown && getline(&line, &capacity, mountinfo) > 0) {
    char* rest = line;
    if (strtoull(line, &rest, 10) != mount_id || rest == line) continue;
    // After any number of optional fields; spaces within names are written \040.
    const char* type = strstr(rest, " - ");
    if (type == nullptr) break;
    type += 3;
    const std::string_view name(type, strcspn(type, " \n"));
    const bool local =
        std::find(std::begin(kLocalTypes), std::end(kLocalTypes), name) != std::end(kLocalTypes);
    reach = local ? Reach::kThisHost : Reach::kOtherHosts;
  }
  free(line);
  return reach;
}

bool on_local_file_system(int fd) noexcept {
  if (const Reach reach = reach_of_mount(fd); reach != Reach::kUnknown) return reach == Reach::kThisHost;
  // ext, XFS, btrfs, tmpfs, ZFS, F2FS, overlayfs: statfs(2), linux/magic.h.
  constexpr long kLocal[] = {0xef53, 0x58465342, 0x9123683e, 0x01021994, 0x2fc12fc1, 0xf2f52010, 0x794c7630};
  struct statfs info;
  if (fstatfs(fd, &info) != 0) return false;
  return std::find(std::begin(kLocal), std::end(kLocal), static_cast<long>(info.f_type)) != std::end(kLocal);
}

}  // namespace dualpath::store
