// One completion queue for all queue pairs of an engine. It has an entry for everything they may have
// outstanding, so it cannot overflow; should it fail all the same, that is the end of its engine.
#pragma once
#include <cstdint>
#include <memory>
#include <vector>

#include "core/status.h"
#include "verbs/device.h"

namespace dualpath::verbs {

class QueuePair;

// wr_id: queue pair (16 bits), its generation (14), kind (2), position (32, the low half).
enum class WorkKind : uint8_t { kSend = 0, kReceive = 1, kReceiveMarker = 2 };

class CompletionQueue {
 public:
  static constexpr uint32_t kMaxQueuePairs = 4096;

  // INVALID_ARGUMENT for more entries than the device has.
  static Status create(std::shared_ptr<Device> device, uint32_t entries,
                       std::unique_ptr<CompletionQueue>* out);
  ~CompletionQueue();  // after its queue pairs
  CompletionQueue(const CompletionQueue&) = delete;
  CompletionQueue& operator=(const CompletionQueue&) = delete;

  // Handles completions until there are none or `budget` of them are done; how many. -1: the queue has
  // failed.
  int poll(uint32_t budget);
  // To sleep: arm(), poll() once more, then sleep until fd() is readable, then take_events().
  Status arm();
  int fd() const { return channel_->fd; }
  uint32_t take_events();  // how many
  // For a thread that does nothing else: polls for spin_ns, then sleeps until completions come or deadline_ns
  // (core/clock.h) passes. What poll() returned. Spin only where cores are to spare: elsewhere it starves the
  // peer.
  int wait(uint64_t spin_ns, uint64_t deadline_ns);

  bool failed() const { return failed_; }
  uint32_t entries() const { return entries_; }
  uint32_t entries_used() const { return used_; }
  uint64_t stale() const { return stale_; }  // completions of queue pairs that are gone
  Device& device() { return *device_; }
  const std::shared_ptr<Device>& shared_device() const { return device_; }
  const ibv_cq* handle() const { return cq_; }

 private:
  friend class QueuePair;
  struct Place {
    QueuePair* queue_pair = nullptr;
    uint16_t generation = 0;
  };

  CompletionQueue() = default;
  // CAPACITY_EXHAUSTED when the queue pair's entries do not fit. *prefix is the upper part of its wr_ids.
  Status attach(QueuePair* queue_pair, uint32_t entries, uint64_t* prefix);
  void detach(uint64_t prefix, uint32_t entries);
  void dispatch(const ibv_wc& wc);

  std::shared_ptr<Device> device_;
  ibv_comp_channel* channel_ = nullptr;
  ibv_cq* cq_ = nullptr;
  uint32_t entries_ = 0;
  uint32_t used_ = 0;
  std::vector<Place> places_;
  std::vector<uint16_t> free_;
  uint32_t unacknowledged_ = 0;
  uint64_t stale_ = 0;
  bool failed_ = false;
};

}  // namespace dualpath::verbs
