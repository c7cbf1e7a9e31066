// The shared mapping of dualpath_ring.h: rings, counters, slot and key tables in one memfd. Another process
// may write all of it at any moment. So sizes and places come from a copy that it cannot reach, and what is
// read is read once, checked and used (core/read_once.h).
#pragma once
#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "core/live.h"
#include "core/read_once.h"
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
  bool shared = false;  // with doorbells that another process can be given
};

// What the header said when the door was made, by the same names.
struct DoorLayout {
  uint32_t submission_entries;
  uint32_t completion_entries;
  uint32_t counter_entries;
  uint32_t slot_entries;
  uint32_t key_entries;
  uint32_t submission_offset;
  uint32_t completion_offset;
  uint32_t counter_offset;
  uint32_t slot_offset;
  uint32_t key_offset;
};

class Door {
 public:
  static constexpr size_t kMaxWakers = 8;

  static Status create(const DoorOptions& options, std::shared_ptr<Door>* out);
  ~Door();
  Door(const Door&) = delete;
  Door& operator=(const Door&) = delete;

  const DoorLayout& header() const { return layout_; }
  dp_ring_index& submission() { return header_->submission; }
  dp_ring_index& completion() { return header_->completion; }
  std::byte* base() { return reinterpret_cast<std::byte*>(header_); }
  size_t bytes() const { return bytes_; }
  int memfd() const { return memfd_; }

  // Of a shared door, -1 otherwise: the eventfds by which the process on the other side rings when it has
  // published descriptors, and is rung when records have come.
  int submission_bell() const { return submission_bell_; }
  int completion_bell() const { return completion_bell_; }
  void ring_completion();

  // The rings' entries by a position that wraps round.
  dp_descriptor& descriptor(uint32_t position) {
    return at<dp_descriptor>(layout_.submission_offset)[position & (layout_.submission_entries - 1)];
  }
  dp_record& record(uint32_t position) {
    return at<dp_record>(layout_.completion_offset)[position & (layout_.completion_entries - 1)];
  }
  uint32_t* slots() { return at<uint32_t>(layout_.slot_offset); }
  store::BlockKey* keys() { return at<store::BlockKey>(layout_.key_offset); }

  uint32_t counter_entries() const { return layout_.counter_entries; }
  uint64_t counter(uint32_t index) { return ref(index).load(std::memory_order_acquire); }
  void counter_add(uint32_t index, uint64_t value) { ref(index).fetch_add(value, std::memory_order_acq_rel); }
  // Of ones that nothing here refers to. What peers were told of them (counter_handle) means nothing any
  // more.
  void zero_counters(uint32_t first, uint32_t count);
  // How a peer names the counter: index and generation, never 0 (dualpath_ring.h).
  uint32_t counter_handle(uint32_t index);
  // A peer's signal, from any thread: false when there is no such counter. One for an earlier use of the
  // counter is dropped and counted. Call notify() after it.
  bool signal(uint8_t mode, uint32_t handle, uint64_t value);
  uint64_t stale_signals() const { return stale_signals_.load(std::memory_order_relaxed); }
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
  void write_header();
  template <typename T>
  T* at(uint32_t offset) {
    return reinterpret_cast<T*>(base() + offset);
  }
  std::atomic_ref<uint64_t> ref(uint32_t index) {
    return std::atomic_ref<uint64_t>(at<uint64_t>(layout_.counter_offset)[index]);
  }

  DoorLayout layout_{};
  dp_door_header* header_ = nullptr;
  size_t bytes_ = 0;
  int memfd_ = -1;
  int submission_bell_ = -1;
  int completion_bell_ = -1;
  std::mutex generations_mutex_;  // a signal is not between another's zeroing and its own look
  std::vector<uint8_t> generations_;
  std::atomic<uint64_t> stale_signals_{0};
  std::array<std::shared_ptr<Waker>, kMaxWakers> wakers_;
  std::atomic<size_t> waker_count_{0};
  Live<LiveKind::kDoor> live_;
};

}  // namespace dualpath
