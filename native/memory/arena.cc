#include "memory/arena.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>

namespace dualpath {
namespace {

constexpr size_t kHugePage = size_t{2} << 20;

size_t round_up(size_t value, size_t unit) { return (value + unit - 1) / unit * unit; }

// MemAvailable of /proc/meminfo in bytes, SIZE_MAX when unreadable.
size_t available_bytes() {
  FILE* file = fopen("/proc/meminfo", "re");
  if (file == nullptr) return SIZE_MAX;
  char line[128];
  size_t bytes = SIZE_MAX;
  unsigned long long kib = 0;
  while (fgets(line, sizeof line, file) != nullptr) {
    if (sscanf(line, "MemAvailable: %llu kB", &kib) == 1) {
      bytes = static_cast<size_t>(kib) * 1024;
      break;
    }
  }
  fclose(file);
  return bytes;
}

Status check_size(const std::string& name, size_t bytes) {
  if (bytes != 0 && bytes <= Arena::kMaxBytes) return {};
  return Status::error("INVALID_ARGUMENT", "arena '" + name + "': " + std::to_string(bytes) +
                                               " bytes asked, 1 to " + std::to_string(Arena::kMaxBytes) +
                                               " allowed; use several arenas for more");
}

// Of a size that nobody can change: who cut it off would end others by SIGBUS. -1 with errno.
int sealed_memfd(size_t bytes) {
  const int fd = memfd_create("dualpath-arena", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (fd < 0) return -1;
  if (ftruncate(fd, static_cast<off_t>(bytes)) == 0 &&
      fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) == 0) {
    return fd;
  }
  const int error = errno;
  close(fd);
  errno = error;
  return -1;
}

std::string lock_limit_text() {
  rlimit limit{};
  getrlimit(RLIMIT_MEMLOCK, &limit);
  if (limit.rlim_cur == RLIM_INFINITY) return "unlimited";
  return std::to_string(limit.rlim_cur) + " bytes";
}

}  // namespace

const char* arena_kind_name(ArenaKind kind) {
  switch (kind) {
    case ArenaKind::kHost:
      return "host";
    case ArenaKind::kEmulatedHbm:
      return "emulated-hbm";
    case ArenaKind::kCuda:
      break;
  }
  return "cuda";
}

Status Arena::of_device(const std::string& name, std::shared_ptr<DeviceMemory> device, size_t bytes,
                        std::shared_ptr<Arena>* out) {
  Status status = check_size(name, bytes);
  uint64_t address = 0;
  if (status.ok()) status = device->allocate("arena '" + name + "'", bytes, &address);
  if (!status.ok()) return status;
  *out = adopt(name, reinterpret_cast<std::byte*>(address), bytes, ArenaKind::kCuda, std::move(device));
  (*out)->allocated_ = true;
  return {};
}

Status Arena::create(const ArenaOptions& options, std::shared_ptr<Arena>* out) {
  const Status size = check_size(options.name, options.bytes);
  if (!size.ok()) return size;
  const size_t available = available_bytes();
  if (options.bytes > available) {
    return Status::error("MEMORY_LIMIT", "arena '" + options.name + "': " + std::to_string(options.bytes) +
                                             " bytes asked, " + std::to_string(available) +
                                             " available on this machine; ask for smaller buffers");
  }
  auto arena = std::shared_ptr<Arena>(new Arena());
  arena->name_ = options.name;
  arena->kind_ = options.kind;
  arena->bytes_ = options.bytes;
  arena->mapped_bytes_ = round_up(options.bytes, kHugePage);
  void* base = MAP_FAILED;
  int flags = MAP_PRIVATE | MAP_ANONYMOUS;
  if (options.shared) {
    arena->memfd_ = sealed_memfd(arena->mapped_bytes_);
    if (arena->memfd_ < 0) {
      return Status::error("MEMORY_LIMIT",
                           "arena '" + options.name + "': memory to share cannot be had: " + strerror(errno) +
                               "; ask for smaller buffers, or raise 'ulimit -n'",
                           errno);
    }
    flags = MAP_SHARED;
  }
  if (options.huge_pages && !options.shared) {
    base = mmap(nullptr, arena->mapped_bytes_, PROT_READ | PROT_WRITE, flags | MAP_HUGETLB, -1, 0);
    arena->huge_ = base != MAP_FAILED;
  }
  if (base == MAP_FAILED) {
    base = mmap(nullptr, arena->mapped_bytes_, PROT_READ | PROT_WRITE, flags, arena->memfd_, 0);
    if (base == MAP_FAILED) {
      const int error = errno;
      arena->mapped_bytes_ = 0;
      return Status::error("MEMORY_LIMIT",
                           "arena '" + options.name + "': mmap of " + std::to_string(options.bytes) +
                               " bytes failed: " + strerror(error) + "; ask for smaller buffers",
                           error);
    }
    if (options.huge_pages) madvise(base, arena->mapped_bytes_, MADV_HUGEPAGE);
  }
  arena->base_ = static_cast<std::byte*>(base);
  // A child made by fork() shares private pages until one side writes. A read from disk or a NIC in flight to
  // such a page could land in the child's copy of it, and registered buffers would name pages that are no
  // longer ours.
  madvise(base, arena->mapped_bytes_, MADV_DONTFORK);
  if (options.lock != LockPolicy::kNone) {
    arena->locked_ = mlock(base, arena->mapped_bytes_) == 0;
    if (!arena->locked_ && options.lock == LockPolicy::kRequire) {
      const int error = errno;
      return Status::error("MEMORY_LIMIT",
                           "arena '" + options.name + "': locking " + std::to_string(options.bytes) +
                               " bytes failed: " + strerror(error) + "; RLIMIT_MEMLOCK is " +
                               lock_limit_text() + ": raise it with 'ulimit -l unlimited' (or " +
                               "LimitMEMLOCK=infinity in the service), or do not require locking",
                           error);
    }
  }
  *out = std::move(arena);
  return {};
}

std::shared_ptr<Arena> Arena::adopt(std::string name, std::byte* base, size_t bytes, ArenaKind kind,
                                    std::shared_ptr<DeviceMemory> device) {
  auto arena = std::shared_ptr<Arena>(new Arena());
  arena->name_ = std::move(name);
  arena->base_ = base;
  arena->bytes_ = bytes;
  arena->kind_ = kind;
  arena->device_ = std::move(device);
  return arena;
}

Status Arena::map(std::string name, int fd, size_t bytes, ArenaKind kind, std::shared_ptr<Arena>* out) {
  const auto invalid = [&](const std::string& why) {
    return Status::error("INVALID_ARGUMENT", "arena '" + name + "': " + why);
  };
  struct stat facts {};
  if (fstat(fd, &facts) != 0) return invalid("its file descriptor is not open");
  const int seals = fcntl(fd, F_GET_SEALS);
  if (seals < 0 || (seals & F_SEAL_SHRINK) == 0) {
    return invalid("memory of another process must be a memfd sealed with F_SEAL_SHRINK (see fcntl(2))");
  }
  if (bytes == 0 || bytes > kMaxBytes || bytes > static_cast<uint64_t>(facts.st_size)) {
    return invalid(std::to_string(bytes) + " bytes asked of a file of " + std::to_string(facts.st_size) +
                   "; 1 to " + std::to_string(kMaxBytes) + " within the file are possible");
  }
  const size_t whole =
      round_up(bytes, static_cast<size_t>(facts.st_blksize));  // of huge pages, where it has them
  void* base = mmap(nullptr, whole, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (base == MAP_FAILED) {
    return Status::error("MEMORY_LIMIT",
                         "arena '" + name + "': mmap of " + std::to_string(bytes) + " bytes failed: " +
                             strerror(errno) + "; open it for reading and writing, without F_SEAL_WRITE",
                         errno);
  }
  auto arena = std::shared_ptr<Arena>(new Arena());
  arena->name_ = std::move(name);
  arena->base_ = static_cast<std::byte*>(base);
  arena->bytes_ = bytes;
  arena->mapped_bytes_ = whole;
  arena->kind_ = kind;
  arena->huge_ = facts.st_blksize > 65536;
  *out = std::move(arena);
  return {};
}

Arena::~Arena() {
  if (allocated_) device_->free(reinterpret_cast<uint64_t>(base_));
  if (mapped_bytes_ != 0 && base_ != nullptr) munmap(base_, mapped_bytes_);
  if (memfd_ >= 0) close(memfd_);
}

}  // namespace dualpath
