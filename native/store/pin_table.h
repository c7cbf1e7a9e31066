// Pins: what a process of this host is using, or has been told is stored and has not let go of. Each open
// store has a table of counters hashed by key, in memory that collectors of every process map:
//
//   hosts/<boot id>/<pid>-<nonce>.pins   locked (flock) as long as its owner lives
//
// The kernel lets go of the lock when the owner dies, whichever way and in whichever container, so a dead
// process's table is known as such: ignored at once, removed by gc. A collision of two keys only makes a
// block unevictable for the moment.
#pragma once
#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "store/key_chain.h"
#include "store/shared_file.h"

namespace dualpath::store {

class PinTable {
 public:
  static constexpr uint64_t kSlots = uint64_t{1} << 18;  // 1 MiB, of which only what is used is taken
  static constexpr size_t kFileBytes = 4096 + kSlots * sizeof(uint32_t);

  PinTable() = default;
  ~PinTable();
  PinTable(const PinTable&) = delete;
  PinTable& operator=(const PinTable&) = delete;

  // Where a table cannot be shared or locked, pins hold within this object only. capacity_bytes (0: none)
  // is for whoever looks. Throws std::bad_alloc.
  void open(int root_fd, uint64_t nonce, uint64_t capacity_bytes);
  bool shared() const noexcept { return mapping_.shared(); }

  void pin(const BlockKey& key) noexcept;
  void unpin(const BlockKey& key) noexcept;  // of a key that is not pinned: nothing
  bool pinned(const BlockKey& key) const noexcept;

 private:
  bool share(int root_fd, uint64_t nonce, uint64_t capacity_bytes);
  std::atomic<uint32_t>& slot(const BlockKey& key) const noexcept;

  int root_fd_ = -1;
  std::string path_;
  ScopedFd lock_;
  Mapping mapping_;
};

// The tables of this host's living processes, for a collector.
class PinTables {
 public:
  static constexpr size_t kMaxTables = 1024;

  // `own`: a table that is not shared, or nullptr.
  PinTables(int root_fd, std::string root, const PinTable* own);
  // Takes in tables that have appeared and drops those of processes that have died.
  // CAPACITY_EXHAUSTED beyond kMaxTables, STORAGE_IO.
  Status refresh();
  bool pinned(const BlockKey& key) const noexcept;
  size_t size() const noexcept { return tables_.size(); }

 private:
  struct Table {
    std::string name;
    ScopedFd fd;
    Mapping mapping;
  };
  bool known(const char* name) const noexcept;
  void add(const char* name);

  int root_fd_;
  std::string root_;
  const PinTable* own_;
  std::vector<Table> tables_;
};

struct PinTableFile {
  std::string path;  // relative to the store
  uint32_t pid;
  uint64_t nonce;
  bool this_host;
  // Nobody holds it. Of another boot on a file system of several hosts only after kForeignTableAge_s, as
  // locks may not be seen across hosts.
  bool dead;
  uint64_t capacity_bytes;
};
inline constexpr int64_t kForeignTableAge_s = 7 * 24 * 3600;

// Of every host; at most PinTables::kMaxTables a host and 256 hosts are looked at.
Status list_pin_tables(int root_fd, const std::string& root, std::vector<PinTableFile>* out);

}  // namespace dualpath::store
