// Memory that the peer of one queue pair may write, and how it announces that it has: the 32-bit immediate is
// (slot, generation), assigned here. A closed landing's immediates are stale: counted and dropped, never
// taken for its successor's.
#pragma once
#include <cstdint>
#include <vector>

#include "verbs/memory_owner.h"

namespace dualpath::verbs {

// Proof that a queue pair neither sends nor takes in any more: only a queue pair that has drained (error
// state, marker requests flushed out of both queues) or been destroyed can make one.
class Quiescence {
 private:
  friend class QueuePair;
  Quiescence() = default;
};

class LandingTable {
 public:
  static constexpr uint32_t kMaxSlots = 65536;

  explicit LandingTable(uint32_t slots) : slots_(slots < kMaxSlots ? slots : kMaxSlots) {
    free_.reserve(slots_.size());
    for (size_t i = slots_.size(); i != 0; i--) free_.push_back(static_cast<uint16_t>(i - 1));
  }

  // False when every slot is taken. The hold keeps the memory until the landing closes.
  bool open(MemoryOwner::Hold hold, uint64_t cookie, uint32_t* immediate) {
    if (free_.empty()) return false;
    const uint16_t slot = free_.back();
    free_.pop_back();
    slots_[slot].hold = std::move(hold);
    slots_[slot].cookie = cookie;
    slots_[slot].open = true;
    *immediate = uint32_t{slot} << 16 | slots_[slot].generation;
    return true;
  }

  // An announcement. False when it is stale.
  bool find(uint32_t immediate, uint64_t* cookie) {
    Slot* const slot = of(immediate);
    if (slot == nullptr) {
      stale_++;
      return false;
    }
    *cookie = slot->cookie;
    return true;
  }

  // On the peer's word, sent after its own completions, that it will not write there any more (done or
  // aborted). False when it is stale.
  bool close(uint32_t immediate) {
    Slot* const slot = of(immediate);
    if (slot == nullptr) {
      stale_++;
      return false;
    }
    close_slot(static_cast<uint16_t>(immediate >> 16));
    return true;
  }
  void close_all(const Quiescence&) {
    for (size_t i = 0; i < slots_.size(); i++) {
      if (slots_[i].open) close_slot(static_cast<uint16_t>(i));
    }
  }

  uint32_t open_count() const { return static_cast<uint32_t>(slots_.size() - free_.size()); }
  uint64_t stale() const { return stale_; }

 private:
  struct Slot {
    MemoryOwner::Hold hold;
    uint64_t cookie = 0;
    uint16_t generation = 0;
    bool open = false;
  };

  Slot* of(uint32_t immediate) {
    const uint32_t slot = immediate >> 16;
    const bool current = slot < slots_.size() && slots_[slot].open &&
                         slots_[slot].generation == static_cast<uint16_t>(immediate);
    return current ? &slots_[slot] : nullptr;
  }
  void close_slot(uint16_t slot) {
    slots_[slot].open = false;
    slots_[slot].generation++;
    free_.push_back(slot);
    slots_[slot].hold.drop();
  }

  std::vector<Slot> slots_;
  std::vector<uint16_t> free_;
  uint64_t stale_ = 0;
};

}  // namespace dualpath::verbs
