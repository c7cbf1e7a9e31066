#include "store/store_directory.h"

#include <fcntl.h>
#include <sodium.h>
#include <sys/stat.h>

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <iterator>

#include "store/manifest.h"
#include "store/paths.h"
#include "store/sodium_start.h"

namespace dualpath::store {
namespace {

// What a store has, and what file systems put into directories by themselves.
constexpr std::string_view kOwnNames[] = {kBlocks,     kNamespaces,  kTemp,          kBad,
                                          kHosts,      kTrash,       kCollectorLock, kManifestName,
                                          kLayersName, "lost+found", ".snapshot"};

class Maker {
 public:
  Maker(int root_fd, const std::string& root) : root_fd_(root_fd), root_(root) {}

  // Whether it was made, not found.
  Status make(const std::string& name, bool* made) {
    if (mkdirat(root_fd_, name.c_str(), 0777) == 0) {
      *made = true;
      return {};
    }
    return errno == EEXIST ? Status{} : io_error("mkdirat", root_ + "/" + name, errno);
  }

  Status sync(const std::string& name) {
    const ScopedFd fd(openat(root_fd_, name.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (!fd.valid()) return io_error("openat", root_ + "/" + name, errno);
    return fsync(fd.get()) == 0 ? Status{} : io_error("fsync", root_ + "/" + name, errno);
  }

 private:
  int root_fd_;
  const std::string& root_;
};

}  // namespace

Status open_store_root(const std::string& path, bool create, ScopedFd* out) {
  if (create && mkdir(path.c_str(), 0777) != 0 && errno != EEXIST) {
    const int error = errno;
    Status status = io_error("mkdir", path, error);
    if (error == ENOENT) status.message += "; make its parent directory first";
    return status;
  }
  out->reset(open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (out->valid()) return {};
  const int error = errno;
  Status status = io_error("open", path, error);
  struct stat info;
  if (error == ENOENT) {
    const bool dangling = lstat(path.c_str(), &info) == 0;
    status.message += dangling ? "; it is a symbolic link that leads nowhere"
                               : "; there is no store yet: open it with create, or check the path";
  }
  return status;
}

Status refuse_other_programs(int root_fd, const std::string& root) {
  std::string stranger;
  Status status = for_each_entry(root_fd, root, ".", [&](int, const char* name) {
    if (std::find(std::begin(kOwnNames), std::end(kOwnNames), name) == std::end(kOwnNames)) stranger = name;
    return stranger.empty();
  });
  if (!status.ok() || stranger.empty()) return status;
  return Status::error("STORE_MISMATCH",
                       "block store " + root + ": this directory has no " + kManifestName + " but holds '" +
                           stranger + "', so it is another program's; give an empty or a new directory");
}

Status make_store_directories(int root_fd, const std::string& root, const std::string& namespace_name,
                              bool* made) {
  Maker maker(root_fd, root);
  *made = false;
  for (const char* name : {kTemp, kBad, kHosts, kBlocks}) {
    if (Status status = maker.make(name, made); !status.ok()) return status;
  }
  if (!namespace_name.empty()) {
    for (const std::string& name : {std::string(kNamespaces), namespace_directory(namespace_name)}) {
      if (Status status = maker.make(name, made); !status.ok()) return status;
    }
  }
  for (unsigned i = 0; i < kFanOut; ++i) {
    if (Status status = maker.make(fan_out_directory(namespace_name, i), made); !status.ok()) return status;
  }
  return {};
}

Status sync_store_directories(int root_fd, const std::string& root, const std::string& namespace_name) {
  Maker maker(root_fd, root);
  Status status = maker.sync(namespace_directory(namespace_name));
  if (status.ok() && !namespace_name.empty()) status = maker.sync(kNamespaces);
  if (status.ok()) status = maker.sync(".");
  return status;
}

Status retire_namespace(int root_fd, const std::string& root, const std::string& namespace_name,
                        bool* found) {
  if (Status status = check_namespace_name(namespace_name); !status.ok()) return status;
  Maker maker(root_fd, root);
  bool made = false;
  if (Status status = maker.make(kTrash, &made); !status.ok()) return status;
  start_sodium();
  uint64_t nonce;
  randombytes_buf(&nonce, sizeof nonce);
  char suffix[32];
  std::snprintf(suffix, sizeof suffix, "-%016" PRIx64, nonce);
  const std::string from = namespace_directory(namespace_name);
  const std::string to = std::string(kTrash) + "/" + namespace_name + suffix;
  *found = renameat(root_fd, from.c_str(), root_fd, to.c_str()) == 0;
  if (*found) return maker.sync(kNamespaces);
  return errno == ENOENT ? Status{} : io_error("renameat", root + "/" + from, errno);
}

}  // namespace dualpath::store
