// Memory taken once at start: page-aligned, huge pages when there are any, locked when allowed, never
// grown. Host buffers, emulated HBM and memory of a GPU are all arenas; the kind is carried so that reports
// name it. Memory of a GPU has a device(), and base() is then an address there: the CPU does not reach it.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "core/live.h"
#include "core/status.h"
#include "memory/device_memory.h"

namespace dualpath {

enum class ArenaKind { kHost, kEmulatedHbm, kCuda };
const char* arena_kind_name(ArenaKind kind);  // as reports have it
enum class LockPolicy { kNone, kTry, kRequire };

struct ArenaOptions {
  std::string name;
  size_t bytes = 0;  // 1 to Arena::kMaxBytes
  ArenaKind kind = ArenaKind::kHost;
  LockPolicy lock = LockPolicy::kTry;
  bool huge_pages = true;
  bool shared = false;  // a memfd that other processes may map; no explicit huge pages then
};

class Arena {
 public:
  // io_uring registers at most 1 GiB a buffer and ibv_reg_mr misbehaves on very large regions, so
  // larger memory is several arenas.
  static constexpr size_t kMaxBytes = size_t{1} << 30;
  static constexpr size_t kAlignment = 4096;

  // MEMORY_LIMIT when it cannot be had (or, with kRequire, not locked); the message names the limit.
  static Status create(const ArenaOptions& options, std::shared_ptr<Arena>* out);
  // Of a device, 1 to kMaxBytes: its memory's errors, INVALID_ARGUMENT.
  static Status of_device(const std::string& name, std::shared_ptr<DeviceMemory> device, size_t bytes,
                          std::shared_ptr<Arena>* out);
  // Memory of the caller's: it must outlive every use. bytes > 0.
  static std::shared_ptr<Arena> adopt(std::string name, std::byte* base, size_t bytes, ArenaKind kind,
                                      std::shared_ptr<DeviceMemory> device = nullptr);
  // Memory that another process shares: the first `bytes` of a memfd, which stays the caller's.
  // INVALID_ARGUMENT unless it is sealed against shrinking (F_SEAL_SHRINK): who cuts it off would end this
  // process by SIGBUS.
  static Status map(std::string name, int fd, size_t bytes, ArenaKind kind, std::shared_ptr<Arena>* out);
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  std::byte* base() const { return base_; }
  size_t bytes() const { return bytes_; }
  ArenaKind kind() const { return kind_; }
  const std::shared_ptr<DeviceMemory>& device() const { return device_; }  // nullptr: the CPU reaches it
  const std::string& name() const { return name_; }
  bool huge() const { return huge_; }  // explicit huge pages (transparent ones are not counted)
  bool locked() const { return locked_; }
  int memfd() const { return memfd_; }  // of shared memory made here, -1 otherwise

 private:
  Arena() = default;
  std::string name_;
  std::byte* base_ = nullptr;
  size_t bytes_ = 0;
  size_t mapped_bytes_ = 0;  // 0 when adopted
  ArenaKind kind_ = ArenaKind::kHost;
  std::shared_ptr<DeviceMemory> device_;
  bool allocated_ = false;  // of the device, by us
  bool huge_ = false;
  bool locked_ = false;
  int memfd_ = -1;
  Live<LiveKind::kArena> live_;
};

}  // namespace dualpath
