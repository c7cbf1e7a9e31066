// Which slots of a geometry are free. Whole lists at a time: an owner takes n slots, others may share them,
// and each gives its list back once; a slot is free when the last has. Giving back what is not taken is
// refused. Not thread-safe: one owner, one thread. The lists may lie in a table that another process writes.
#pragma once
#include <cstdint>
#include <vector>

#include "core/read_once.h"

namespace dualpath {

class BlockPool {
 public:
  explicit BlockPool(uint32_t slots) : references_(slots, 0), list_(slots) {
    free_.reserve(slots);
    for (uint32_t slot = slots; slot > 0; slot--) free_.push_back(slot - 1);
  }

  uint32_t slots() const { return static_cast<uint32_t>(references_.size()); }
  uint32_t available() const { return static_cast<uint32_t>(free_.size()); }

  // All n or none.
  bool take(uint32_t n, uint32_t* out) {
    if (n > free_.size()) return false;
    for (uint32_t i = 0; i < n; i++) {
      const uint32_t slot = free_.back();
      free_.pop_back();
      references_[slot] = 1;
      out[i] = slot;
    }
    return true;
  }

  // One more reference to each. False, with nothing shared, if any slot is not taken.
  bool share(const uint32_t* list, uint32_t n) {
    if (!copy(list, n)) return false;
    for (uint32_t i = 0; i < n; i++) {
      if (taken(list_[i]) && references_[list_[i]] != UINT32_MAX) {
        references_[list_[i]]++;
        continue;
      }
      while (i > 0) references_[list_[--i]]--;
      return false;
    }
    return true;
  }

  // False, with nothing given back, if any slot appears more often than it has references.
  bool give_back(const uint32_t* list, uint32_t n) {
    if (!copy(list, n)) return false;
    uint32_t fine = 0;
    while (fine < n && taken(list_[fine])) references_[list_[fine++]]--;
    for (uint32_t i = 0; i < fine; i++) references_[list_[i]]++;
    if (fine < n) return false;
    for (uint32_t i = n; i > 0; i--) {
      if (--references_[list_[i - 1]] == 0) free_.push_back(list_[i - 1]);
    }
    return true;
  }

 private:
  bool taken(uint32_t slot) const { return slot < references_.size() && references_[slot] != 0; }
  // No list has more slots than there are.
  bool copy(const uint32_t* list, uint32_t n) {
    if (n > list_.size()) return false;
    for (uint32_t i = 0; i < n; i++) list_[i] = read_once(list[i]);
    return true;
  }

  std::vector<uint32_t> free_;
  std::vector<uint32_t> references_;
  std::vector<uint32_t> list_;  // of the call
};

}  // namespace dualpath
