// Which slots of a geometry are free. Whole lists at a time: an owner takes n slots and gives the same
// slots back; giving back what is not taken is refused. Not thread-safe: one owner, one thread. The lists
// may lie in a table that another process writes.
#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/read_once.h"

namespace dualpath {

class BlockPool {
 public:
  explicit BlockPool(uint32_t slots) : taken_(slots, 0) {
    free_.reserve(slots);
    for (uint32_t slot = slots; slot > 0; slot--) free_.push_back(slot - 1);
  }

  uint32_t slots() const { return static_cast<uint32_t>(taken_.size()); }
  uint32_t available() const { return static_cast<uint32_t>(free_.size()); }

  // All n or none.
  bool take(uint32_t n, uint32_t* out) {
    if (n > free_.size()) return false;
    for (uint32_t i = 0; i < n; i++) {
      const uint32_t slot = free_.back();
      free_.pop_back();
      taken_[slot] = 1;
      out[i] = slot;
    }
    return true;
  }

  // False, with nothing given back, if any slot is not taken or appears twice.
  bool give_back(const uint32_t* list, uint32_t n) {
    const auto before = static_cast<std::ptrdiff_t>(free_.size());
    for (uint32_t i = 0; i < n; i++) {
      const uint32_t slot = read_once(list[i]);
      if (slot >= taken_.size() || taken_[slot] == 0) {
        for (auto back = free_.begin() + before; back != free_.end(); back++) taken_[*back] = 1;
        free_.resize(static_cast<size_t>(before));
        return false;
      }
      taken_[slot] = 0;
      free_.push_back(slot);
    }
    std::reverse(free_.begin() + before, free_.end());
    return true;
  }

 private:
  std::vector<uint32_t> free_;
  std::vector<uint8_t> taken_;
};

}  // namespace dualpath
