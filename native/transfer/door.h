// The shared mapping of dualpath_ring.h: rings, counters, slot and key tables in one memfd.
#pragma once
#include <array>
#include <atomic>
#include <cstdint>
#include <memory>

#include "core/status.h"
#include "core/waker.h"
#include "dualpath_ring.h"
#include "store/key_chain.h"

namespace dualpath {

struct DoorOptions {
  uint32_t submission_entries = 4096;  // powers of two
  uint32_t completion_entries = 4096;
  uint32_t counter_entries = 1 << 16;
  uint32_t slot_entries = 1 << 20;
  uint32_t key_entries = 1 << 16;
};

class Door {
 public:
  static constexpr size_t kMaxWakers = 8;

  static Status create(const DoorOptions& options, std::shared_ptr<Door>* out);
  ~Door();
  Door(const Door&) = delete;
  Door& operator=(const Door&) = delete;

  dp_door_header& header() { return *header_; }
  std::byte* base() { return reinterpret_cast<std::byte*>(header_); }
  size_t bytes() const { return bytes_; }
  int memfd() const { return memfd_; }

  dp_descriptor* descriptors() { return at<dp_descriptor>(header_->submission_offset); }
  dp_record* records() { return at<dp_record>(header_->completion_offset); }
  uint32_t* slots() { return at<uint32_t>(header_->slot_offset); }
  store::BlockKey* keys() { return at<store::BlockKey>(header_->key_offset); }

  uint32_t counter_entries() const { return counter_entries_; }
  uint64_t counter(uint32_t index) { return ref(index).load(std::memory_order_acquire); }
  void counter_add(uint32_t index, uint64_t value) { ref(index).fetch_add(value, std::memory_order_acq_rel); }
  // Counters only grow: a lower value changes nothing.
  void counter_raise(uint32_t index, uint64_t value) {
    auto counter = ref(index);
    uint64_t seen = counter.load(std::memory_order_relaxed);
    while (seen < value && !counter.compare_exchange_weak(seen, value, std::memory_order_acq_rel)) {
    }
  }

  // Threads that wait on counters. They stay for the door's life, so that a peer may wake them at any
  // time. False when there are kMaxWakers.
  bool add_waker(std::shared_ptr<Waker> waker);
  // After counters have changed.
  void notify() {
    const size_t count = waker_count_.load(std::memory_order_acquire);
    for (size_t i = 0; i < count; i++) wakers_[i]->wake();
  }

 private:
  Door() = default;
  template <typename T>
  T* at(uint32_t offset) {
    return reinterpret_cast<T*>(base() + offset);
  }
  std::atomic_ref<uint64_t> ref(uint32_t index) {
    return std::atomic_ref<uint64_t>(at<uint64_t>(header_->counter_offset)[index]);
  }

  dp_door_header* header_ = nullptr;
  size_t bytes_ = 0;
  int memfd_ = -1;
  uint32_t counter_entries_ = 0;  // own copy: the mapping may be written by another process
  std::array<std::shared_ptr<Waker>, kMaxWakers> wakers_;
  std::atomic<size_t> waker_count_{0};
};

}  // namespace dualpath
