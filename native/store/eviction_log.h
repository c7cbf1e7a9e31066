// What the collectors of this host have condemned, in memory that every process of the host maps: it keeps
// indexes true, and closes the race between a look-up and an eviction in the way of Dekker:
//
//   collector: announce(keys); read the pins of every process; unlink what nobody pins; settle()
//   look-up:   pin(keys); read announced(); what was announced since is looked for again, and what is
//              not settled yet is a miss
//
// All four accesses are sequentially consistent, so one of the two sees the other.
#pragma once
#include <atomic>
#include <cstdint>
#include <span>

#include "store/key_chain.h"
#include "store/shared_file.h"

namespace dualpath::store {

class EvictionLog {
 public:
  static constexpr uint64_t kEntries = uint64_t{1} << 16;
  static constexpr size_t kMaxBatch = 128;

  // Maps hosts/<boot id>/evictions, made where it is missing. Where that cannot be shared the log is this
  // object's alone: evictions by other processes are then noticed when a read misses. Throws std::bad_alloc.
  void open(int root_fd);
  bool shared() const noexcept { return mapping_.shared(); }

  uint64_t announced()
      const noexcept;  // keys ever; the last settled ones may be gone, the rest is being judged
  uint64_t settled() const noexcept;
  // The first 16 bytes of the key at `position` < announced(), the rest zero. False when it was overwritten.
  bool read(uint64_t position, BlockKey* prefix) const noexcept;
  // Whether the key is among those being judged now.
  bool condemned(const BlockKey& key) const noexcept;

  // The collector's, one at a time on a host.
  void announce(std::span<const BlockKey> keys) noexcept;  // at most kMaxBatch
  void settle() noexcept;

  // Bytes of block files in the store as this host knows: a scan's result plus what was published since.
  void add_bytes(int64_t bytes) noexcept;
  int64_t bytes() const noexcept;
  int64_t scanned_s() const noexcept;  // time of the last scan, 0 for none
  void set_scanned(int64_t scan_s, int64_t correction_bytes) noexcept;

 private:
  struct Header;
  struct Entry {
    std::atomic<uint64_t> word[2];
  };
  static_assert(std::atomic<uint64_t>::is_always_lock_free);

  bool share(int root_fd);
  Header& header() const noexcept { return *static_cast<Header*>(mapping_.data()); }
  Entry& entry(uint64_t position) const noexcept;
  bool matches(uint64_t position, const BlockKey& key) const noexcept;

  Mapping mapping_;
};

}  // namespace dualpath::store
