// Which slots of a geometry are free. Whole lists at a time: an owner takes n slots, others may share them,
// and each gives its list back once; a slot is free when the last has. Giving back what is not taken is
// refused. Not thread-safe: one owner, one thread.
#pragma once
#include <cstdint>
#include <vector>

namespace dualpath {

class BlockPool {
 public:
  explicit BlockPool(uint32_t slots) : references_(slots, 0) {
    free_.reserve(slots);
    for (uint32_t slot = slots; slot > 0; slot--) free_.push_back(slot - 1);
  }

  uint32_t slots() const { return static_cast<uint32_t>(references_.size()); }
  uint32_t available() const { return static_cast<uint32_t>(free_.size()); }

  // All n or none.
  bool take(uint32_t n, uint32_t* out) {
    if (n > free_.size()) return false;
    for (uint32_t i = 0; i < n; i++) {
      out[i] = free_.back();
      free_.pop_back();
      references_[out[i]] = 1;
    }
    return true;
  }

  // One more reference to each. False, with nothing shared, if any slot is not taken.
  bool share(const uint32_t* list, uint32_t n) {
    for (uint32_t i = 0; i < n; i++) {
      if (list[i] >= references_.size() || references_[list[i]] == 0 || references_[list[i]] == UINT32_MAX) {
        for (uint32_t j = 0; j < i; j++) references_[list[j]]--;
        return false;
      }
      references_[list[i]]++;
    }
    return true;
  }

  // False, with nothing given back, if any slot appears more often than it has references.
  bool give_back(const uint32_t* list, uint32_t n) {
    uint32_t fine = 0;
    for (; fine < n; fine++) {
      if (list[fine] >= references_.size() || references_[list[fine]] == 0) break;
      references_[list[fine]]--;
    }
    for (uint32_t i = 0; i < fine; i++) references_[list[i]]++;
    if (fine < n) return false;
    for (uint32_t i = n; i > 0; i--) {
      if (--references_[list[i - 1]] == 0) free_.push_back(list[i - 1]);
    }
    return true;
  }

 private:
  std::vector<uint32_t> free_;
  std::vector<uint32_t> references_;
};

}  // namespace dualpath
