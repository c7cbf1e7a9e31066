// Keeps a store below its capacity: a thread of low priority that collects when publications cross the high
// mark, in moderation as long as the capacity itself is not exceeded.
#pragma once
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <string>
#include <thread>

#include "store/eviction_log.h"
#include "store/pin_table.h"

namespace dualpath::store {

class Evictor {
 public:
  struct Statistics {
    uint64_t collections;
    uint64_t evicted_blocks;
    uint64_t evicted_bytes;
    uint64_t pinned_blocks;  // times a block was old enough and in use
    uint64_t failures;       // collections that ended with an error, and blocks that could not be unlinked
    uint64_t last_errno;
  };

  // Collection begins above the high mark, 95 % of the capacity, and ends at the low mark, 90 %.
  Evictor(int root_fd, std::string root, EvictionLog* log, const PinTable* own, uint64_t capacity_bytes);
  ~Evictor();

  uint64_t capacity_bytes() const noexcept { return capacity_bytes_; }
  // The log has the block's bytes already.
  void published() noexcept;
  // The file system is full before the capacity is reached: makes room of a twentieth of what is stored, at
  // most once in kNoSpacePause_s.
  void no_space() noexcept;

  Statistics statistics() const noexcept;

 private:
  void work();
  void collect(std::unique_lock<std::mutex>& lock, bool no_space);
  bool due() const noexcept;
  bool pace();

  const int root_fd_;
  const std::string root_;
  EvictionLog* const log_;
  const PinTable* const own_;
  const uint64_t capacity_bytes_;
  const uint64_t high_bytes_;
  const uint64_t low_bytes_;
  const bool local_;

  std::atomic<uint64_t> collections_{0}, evicted_blocks_{0}, evicted_bytes_{0}, pinned_blocks_{0},
      failures_{0}, last_errno_{0};

  std::mutex mutex_;
  std::condition_variable wake_;
  bool wanted_ = false;
  bool no_space_ = false;
  bool stopping_ = false;
  std::atomic<bool> collecting_{false};
  int64_t next_no_space_ns_ = 0;
  int64_t next_try_ns_ = 0;  // after a collection that could not free enough
  int64_t scan_ns_ = 0;      // how long the last collection took
  int64_t working_since_ns_ = 0;
  std::thread thread_;
};

}  // namespace dualpath::store
