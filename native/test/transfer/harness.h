// An engine as its author drives it: writes descriptors into the submission ring, rings the doorbell when
// native code sleeps, reads records from the completion ring. Nothing but what dualpath_ring.h says.
#pragma once
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/clock.h"
#include "transfer/reactor.h"

namespace dualpath::test {

inline constexpr uint64_t kPatience_ns = 30'000'000'000;  // for what must come
inline constexpr uint32_t kProgramPlaces = 32;            // EngineOptions::max_programs below

inline dp_descriptor describe(dp_op op) {
  dp_descriptor d{};
  d.op = op;
  d.traffic_class = DP_CLASS_KV;
  d.peer = d.src_geometry = d.dst_geometry = DP_NONE;
  d.layer_count = 1;
  for (dp_wait& wait : d.wait) wait.counter = DP_NONE;
  for (dp_signal& signal : d.signal) signal.counter = DP_NONE;
  return d;
}

inline dp_wait wait_for(uint32_t counter, uint64_t value, uint8_t value_step = 0, uint16_t skip_steps = 0,
                        uint8_t counter_step = 0) {
  return {counter, counter_step, value_step, skip_steps, value};
}
inline dp_signal add(uint32_t counter, uint64_t value = 1, uint8_t counter_step = 0) {
  return {counter, DP_SIGNAL_ADD, 0, counter_step, 0, value};
}
inline dp_signal ordered(uint32_t counter, uint64_t value = 0) {
  return {counter, DP_SIGNAL_ORDERED, 0, 0, 0, value};
}
inline dp_signal remote(dp_signal signal) {
  signal.remote = 1;
  return signal;
}

inline DoorOptions small_door() {
  return {.submission_entries = 64,
          .completion_entries = 64,
          .counter_entries = 256,
          .slot_entries = 4096,
          .key_entries = 1024};
}

inline std::unique_ptr<Reactor> make_reactor(StorageIo storage_io = StorageIo::kAuto) {
  std::unique_ptr<Reactor> reactor;
  const Status status = Reactor::create(&reactor, storage_io);
  EXPECT_TRUE(status.ok()) << status.message;
  return reactor;
}

// Waits for what must come.
template <typename Predicate>
bool eventually(Predicate holds) {
  const uint64_t deadline = now_ns() + kPatience_ns;
  while (!holds()) {
    if (now_ns() > deadline) return false;
    usleep(100);
  }
  return true;
}

class Engine {
 public:
  Engine(Reactor& reactor, std::string name, EngineOptions options = {},
         const DoorOptions& door_options = small_door(), uint32_t ring_start = 0)
      : reactor_(&reactor), wake_fd_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
    EXPECT_TRUE(Door::create(door_options, &door_).ok());
    for (dp_ring_index* ring : {&door_->submission(), &door_->completion()}) {
      ring->head = ring->tail = ring_start;  // as after so many entries
    }
    options.name = std::move(name);
    options.door = door_;
    if (options.max_programs == EngineOptions{}.max_programs) options.max_programs = kProgramPlaces;
    options.wake_owner = [fd = wake_fd_] {
      const uint64_t one = 1;
      [[maybe_unused]] ssize_t n = write(fd, &one, sizeof one);
    };
    const Status status = TransferEngine::create(options, &reactor.faults(), &native_);
    if (!status.ok()) {
      ADD_FAILURE() << status.message;
      std::abort();
    }
    reactor.add(native_);
  }
  ~Engine() {
    close();
    native_.reset();
    ::close(wake_fd_);
  }
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  TransferEngine& native() { return *native_; }
  const std::shared_ptr<TransferEngine>& shared_native() { return native_; }
  Door& door() { return *door_; }
  const std::shared_ptr<Door>& shared_door() { return door_; }
  const EngineStatistics& statistics() { return native_->statistics(); }

  uint32_t add_geometry(std::shared_ptr<const Geometry> geometry) {
    uint32_t id = DP_NONE;
    EXPECT_TRUE(native_->add_geometry(std::move(geometry), &id).ok());
    return id;
  }
  uint32_t connect(const std::string& name) {
    uint32_t peer = DP_NONE;
    const Status status = native_->connect(name, &peer);
    EXPECT_TRUE(status.ok()) << status.message;
    return peer;
  }

  // Entries of the slot and key tables; never given back, tests are short.
  uint32_t list(const std::vector<uint32_t>& slots) {
    if (slots.size() > door_->header().slot_entries - next_slot_) std::abort();
    std::copy(slots.begin(), slots.end(), door_->slots() + next_slot_);
    return std::exchange(next_slot_, next_slot_ + static_cast<uint32_t>(slots.size()));
  }
  uint32_t keys(const std::vector<store::BlockKey>& keys) {
    if (keys.size() > door_->header().key_entries - next_key_) std::abort();
    std::copy(keys.begin(), keys.end(), door_->keys() + next_key_);
    return std::exchange(next_key_, next_key_ + static_cast<uint32_t>(keys.size()));
  }

  // Ids differ for a long time; places come round, as an owner's free list would have it.
  uint32_t new_id() {
    const uint32_t n = ids_++;
    return (n / kProgramPlaces + 1) << 16 | n % kProgramPlaces;
  }

  uint32_t free_entries() {
    dp_ring_index& ring = door_->submission();
    const uint32_t head = std::atomic_ref<uint32_t>(ring.head).load(std::memory_order_acquire);
    return door_->header().submission_entries - (ring.tail - head);
  }
  // As they are: no id, no END is put in. False, with none written, when the ring has no room.
  bool submit_raw(const std::vector<dp_descriptor>& descriptors) {
    if (free_entries() < descriptors.size()) return false;
    dp_ring_index& ring = door_->submission();
    uint32_t tail = ring.tail;
    for (const dp_descriptor& d : descriptors) {
      door_->descriptor(tail++) = d;
    }
    std::atomic_ref<uint32_t>(ring.tail).store(tail, std::memory_order_seq_cst);
    ring_if_asleep();
    return true;
  }
  // One program: gives it an id and its END. Returns the id.
  uint32_t submit(std::vector<dp_descriptor> descriptors) {
    const uint32_t id = new_id();
    for (dp_descriptor& d : descriptors) d.program = id;
    descriptors.back().flags |= DP_FLAG_END;
    EXPECT_TRUE(submit_raw(descriptors)) << "the submission ring is full";
    return id;
  }

  bool poll_record(dp_record* record) {
    dp_ring_index& ring = door_->completion();
    const uint32_t tail = std::atomic_ref<uint32_t>(ring.tail).load(std::memory_order_seq_cst);
    if (ring.head == tail) return false;
    *record = door_->record(ring.head);
    std::atomic_ref<uint32_t>(ring.head).store(ring.head + 1, std::memory_order_release);
    return true;
  }
  // The next record. One that does not come within `patience_ns` is a failure, kind 0.
  dp_record next(uint64_t patience_ns = kPatience_ns) {
    const uint64_t deadline = now_ns() + patience_ns;
    std::atomic_ref<uint32_t> sleeping(door_->completion().sleeping);
    dp_record record{};
    while (!poll_record(&record)) {
      if (now_ns() > deadline) {
        ADD_FAILURE() << "no record came";
        return {};
      }
      sleeping.store(1, std::memory_order_seq_cst);
      if (poll_record(&record)) break;
      pollfd one{wake_fd_, POLLIN, 0};
      poll(&one, 1, static_cast<int>(patience_ns / 1'000'000));
      uint64_t count;
      [[maybe_unused]] ssize_t n = read(wake_fd_, &count, sizeof count);
    }
    sleeping.store(0, std::memory_order_relaxed);
    return record;
  }
  dp_record run(std::vector<dp_descriptor> descriptors) {
    const uint32_t id = submit(std::move(descriptors));
    const dp_record record = next();
    EXPECT_EQ(record.kind, DP_RECORD_PROGRAM);
    EXPECT_EQ(record.program, id);
    return record;
  }
  // True when no record comes for `quiet_ns`.
  bool quiet(uint64_t quiet_ns = 5'000'000) {
    usleep(static_cast<useconds_t>(quiet_ns / 1000));
    dp_record record;
    return !poll_record(&record);
  }
  uint32_t unread_records() {
    dp_ring_index& ring = door_->completion();
    return std::atomic_ref<uint32_t>(ring.tail).load(std::memory_order_acquire) - ring.head;
  }

  uint64_t counter(uint32_t index) { return door_->counter(index); }
  void bump(uint32_t index, uint64_t value = 1) {
    door_->counter_add(index, value);
    ring_if_asleep();
  }
  bool reaches(uint32_t index, uint64_t value) {
    return eventually([&] { return door_->counter(index) >= value; });
  }

  void cancel(uint32_t program) {
    native_->request_cancel(program);
    reactor_->ring();
  }
  void request_close() {
    native_->request_close();
    if (reactor_ != nullptr) reactor_->ring();
  }
  void close() {
    if (reactor_ == nullptr) return;
    request_close();
    reactor_->remove(native_);
    reactor_ = nullptr;
  }
  void forget_reactor() { reactor_ = nullptr; }  // it is about to be destroyed, or has been

 private:
  void ring_if_asleep() {
    std::atomic_thread_fence(std::memory_order_seq_cst);
    std::atomic_ref<uint32_t> sleeping(door_->submission().sleeping);
    if (sleeping.load(std::memory_order_seq_cst) != 0 && reactor_ != nullptr) reactor_->ring();
  }

  Reactor* reactor_;
  int wake_fd_;
  std::shared_ptr<Door> door_;
  std::shared_ptr<TransferEngine> native_;
  uint32_t ids_ = 0;
  uint32_t next_slot_ = 0;
  uint32_t next_key_ = 0;
};

}  // namespace dualpath::test
