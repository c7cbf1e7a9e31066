// A queue of fixed size: taken at start, never grown.
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

namespace dualpath::verbs {

// Pushing into a full one or popping an empty one is the caller's mistake.
template <typename T>
class FixedRing {
 public:
  explicit FixedRing(size_t capacity = 0) : entries_(capacity) {}
  size_t capacity() const { return entries_.size(); }
  size_t size() const { return static_cast<size_t>(tail_ - head_); }
  bool empty() const { return head_ == tail_; }
  bool full() const { return size() == capacity(); }
  T& push() { return entries_[place(tail_++)]; }
  T& front() { return entries_[place(head_)]; }
  T& at(size_t i) { return entries_[place(head_ + i)]; }
  void pop() { head_++; }
  void clear() { head_ = tail_; }
  template <typename Keep>
  void keep_if(Keep keep) {
    const size_t count = size();
    size_t kept = 0;
    for (size_t i = 0; i < count; i++) {
      if (keep(at(i))) at(kept++) = at(i);
    }
    tail_ = head_ + kept;
  }

 private:
  size_t place(uint64_t i) const { return static_cast<size_t>(i % entries_.size()); }
  std::vector<T> entries_;
  uint64_t head_ = 0, tail_ = 0;
};

}  // namespace dualpath::verbs
