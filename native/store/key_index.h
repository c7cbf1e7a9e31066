// Which blocks are known to be stored: a hash set of 16-byte key prefixes whose memory is taken once. It
// is a hint for look-ups, never a proof: a reader still verifies the block. Two keys with the same prefix
// (a chance of 2^-128) cost a failed read, no wrong data.
#pragma once
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "store/key_chain.h"

namespace dualpath::store {

// Safe from any thread.
class KeyIndex {
 public:
  static constexpr size_t kMaxCapacity = size_t{1} << 28;  // keys; about 10 GiB

  enum class Insert : uint8_t { kAdded, kPresent, kFull };

  // capacity: 1..kMaxCapacity keys, at 24 to 48 bytes of memory each. Throws std::bad_alloc.
  explicit KeyIndex(size_t capacity);

  // kFull once `capacity` keys are in (or, rarely, when one shard of a large index fills up before).
  Insert insert(const BlockKey& key) noexcept;
  bool contains(const BlockKey& key) const noexcept;
  // Fetches what contains(key) will look at: a large index lies in no cache.
  void prefetch(const BlockKey& key) const noexcept {
    const Prefix prefix = prefix_of(key);
    __builtin_prefetch(&shard_of(prefix).slots[prefix.low & (shard_slots_ - 1)]);
  }
  bool erase(const BlockKey& key) noexcept;  // whether it was in
  void clear() noexcept;

  size_t size() const noexcept { return size_.load(std::memory_order_relaxed); }
  size_t capacity() const noexcept { return capacity_; }

 private:
  struct Prefix {
    uint64_t high = 0;  // chooses the shard
    uint64_t low = 0;   // chooses the slot within it
    bool operator==(const Prefix&) const = default;
    bool empty() const noexcept { return high == 0 && low == 0; }
  };
  // Linear probing; removal shifts back, so there are no tombstones to clean up.
  struct alignas(64) Shard {
    mutable std::mutex mutex;
    std::vector<Prefix> slots;
    size_t used = 0;
  };

  static Prefix prefix_of(const BlockKey& key) noexcept;
  Shard& shard_of(const Prefix& prefix) const noexcept { return shards_[prefix.high & (shard_count_ - 1)]; }
  // The slot that holds the prefix, or the empty one where it would go. Call with the shard locked.
  size_t find(const Shard& shard, const Prefix& prefix) const noexcept;

  size_t capacity_;
  size_t shard_count_;  // these two are powers of two
  size_t shard_slots_;
  std::unique_ptr<Shard[]> shards_;
  std::atomic<size_t> size_{0};
};

}  // namespace dualpath::store
