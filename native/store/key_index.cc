#include "store/key_index.h"

#include <algorithm>
#include <bit>
#include <cstring>

namespace dualpath::store {
namespace {

constexpr size_t kManyKeys = 4096;  // below, shards would fill up unevenly and contention hardly matters
constexpr size_t kShards = 16;

}  // namespace

KeyIndex::KeyIndex(size_t capacity)
    : capacity_(capacity),
      shard_count_(capacity < kManyKeys ? 1 : kShards),
      shard_slots_(std::bit_ceil(capacity / shard_count_ * 3 / 2 + 2)),
      shards_(std::make_unique<Shard[]>(shard_count_)) {
  for (size_t i = 0; i < shard_count_; ++i) shards_[i].slots.resize(shard_slots_);
}

KeyIndex::Prefix KeyIndex::prefix_of(const BlockKey& key) noexcept {
  Prefix prefix;
  std::memcpy(&prefix.high, key.bytes.data(), sizeof prefix.high);
  std::memcpy(&prefix.low, key.bytes.data() + sizeof prefix.high, sizeof prefix.low);
  return prefix;
}

size_t KeyIndex::find(const Shard& shard, const Prefix& prefix) const noexcept {
  const size_t mask = shard_slots_ - 1;
  size_t slot = prefix.low & mask;
  while (!shard.slots[slot].empty() && shard.slots[slot] != prefix) slot = (slot + 1) & mask;
  return slot;
}

KeyIndex::Insert KeyIndex::insert(const BlockKey& key) noexcept {
  const Prefix prefix = prefix_of(key);
  if (prefix.empty()) return Insert::kFull;  // looks like an empty slot: never indexed, always probed
  Shard& shard = shard_of(prefix);
  const std::lock_guard lock(shard.mutex);
  const size_t slot = find(shard, prefix);
  if (!shard.slots[slot].empty()) return Insert::kPresent;
  // An eighth of the slots stays empty: it ends every search, and keeps searches short.
  if (shard.used >= shard_slots_ - (shard_slots_ + 7) / 8) return Insert::kFull;
  if (size_.fetch_add(1, std::memory_order_relaxed) >= capacity_) {
    size_.fetch_sub(1, std::memory_order_relaxed);
    return Insert::kFull;
  }
  shard.slots[slot] = prefix;
  ++shard.used;
  return Insert::kAdded;
}

bool KeyIndex::contains(const BlockKey& key) const noexcept {
  const Prefix prefix = prefix_of(key);
  if (prefix.empty()) return false;
  const Shard& shard = shard_of(prefix);
  const std::lock_guard lock(shard.mutex);
  return !shard.slots[find(shard, prefix)].empty();
}

bool KeyIndex::erase(const BlockKey& key) noexcept {
  const Prefix prefix = prefix_of(key);
  if (prefix.empty()) return false;
  Shard& shard = shard_of(prefix);
  const std::lock_guard lock(shard.mutex);
  size_t hole = find(shard, prefix);
  if (shard.slots[hole].empty()) return false;
  const size_t mask = shard_slots_ - 1;
  // Whatever follows without a gap moves into the hole unless its own search starts behind the hole.
  for (size_t next = (hole + 1) & mask; !shard.slots[next].empty(); next = (next + 1) & mask) {
    const size_t home = shard.slots[next].low & mask;
    if (((next - home) & mask) < ((next - hole) & mask)) continue;
    shard.slots[hole] = shard.slots[next];
    hole = next;
  }
  shard.slots[hole] = Prefix{};
  --shard.used;
  size_.fetch_sub(1, std::memory_order_relaxed);
  return true;
}

void KeyIndex::clear() noexcept {
  for (size_t i = 0; i < shard_count_; ++i) {
    Shard& shard = shards_[i];
    const std::lock_guard lock(shard.mutex);
    std::fill(shard.slots.begin(), shard.slots.end(), Prefix{});
    size_.fetch_sub(shard.used, std::memory_order_relaxed);
    shard.used = 0;
  }
}

}  // namespace dualpath::store
