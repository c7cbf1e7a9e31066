// Which slots of a geometry are free. Whole lists at a time: an owner takes n slots and gives the same
// slots back; giving back what is not taken is refused. Not thread-safe: one owner, one thread.
#pragma once
#include <cstdint>
#include <vector>

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
      out[i] = free_.back();
      free_.pop_back();
      taken_[out[i]] = 1;
    }
    return true;
  }

  // False, with nothing given back, if any slot is not taken or appears twice.
  bool give_back(const uint32_t* list, uint32_t n) {
    for (uint32_t i = 0; i < n; i++) {
      if (list[i] >= taken_.size() || taken_[list[i]] == 0) {
        for (uint32_t j = 0; j < i; j++) taken_[list[j]] = 1;
        return false;
      }
      taken_[list[i]] = 0;
    }
    for (uint32_t i = n; i > 0; i--) free_.push_back(list[i - 1]);
    return true;
  }

 private:
  std::vector<uint32_t> free_;
  std::vector<uint8_t> taken_;
};

}  // namespace dualpath
