// The age of a block is its file's mtime, set on publication and on hits to
//
//   start of the running interval - depth x 1 us          depth: position of the block in its chain
//
// so a block is always younger than those that follow it in a chain, and plain order by mtime is leaf first
// by age, with no links to store. What broke off before its age was set has the time of its writing; the
// next hit puts that right. Both need a file system with time stamps of 1 us or finer.
#pragma once
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "store/key_chain.h"

namespace dualpath::store {

inline constexpr uint32_t kAgeInterval_s = 60;
inline constexpr uint32_t kMaxAgeDepth = uint32_t{1} << 24;  // deeper blocks count as this deep

// In nanoseconds since 1970.
int64_t age_ns(int64_t now_s, uint32_t depth, uint32_t interval_s = kAgeInterval_s) noexcept;
// Whether the time was set by age_ns for this depth, in whichever interval.
bool is_age_ns(int64_t time_ns, uint32_t depth, uint32_t interval_s = kAgeInterval_s) noexcept;

// Sets ages on a thread of its own, of low priority: a look-up or a publication only queues keys. Fixed
// memory; when a queue is full the ages stay as they are, which is counted.
class AgeWriter {
 public:
  static constexpr size_t kQueuedKeys = size_t{1} << 16;
  static constexpr size_t kQueuedRuns = size_t{1} << 12;
  static constexpr size_t kRemembered = size_t{1} << 16;

  struct Statistics {
    uint64_t written;  // ages set
    uint64_t dropped;  // blocks whose age was not, as the queue was full
    uint64_t queued;   // blocks whose turn has not come
  };

  // directory_fd and block_directory name the blocks' files (paths.h) and outlive this.
  AgeWriter(int root_fd, std::string block_directory, uint32_t interval_s);
  ~AgeWriter();

  // The first `count` blocks of a chain were found: root first, up to the first that is gone, at most once
  // an interval. One look at the last of them tells whether there is anything to do.
  void hit(const BlockKey* keys, size_t count) noexcept;
  // A block was published.
  void published(const BlockKey& key, uint32_t depth) noexcept;
  // Returns when everything queued before is done. For tests and for whoever closes.
  void drain();

  Statistics statistics() const noexcept;

 private:
  struct Run {
    size_t keys;
    uint32_t first_depth;
    bool fresh;  // just published: its time is not an age yet
  };

  void push(const BlockKey* keys, size_t count, uint32_t first_depth, bool fresh) noexcept;
  void work();
  void write_run(size_t first_key, const Run& run);
  bool write_age(const BlockKey& key, uint32_t depth, bool fresh) noexcept;
  bool recent(const BlockKey& key, int64_t interval) const noexcept;
  void remember(const BlockKey& key, int64_t interval) noexcept;
  int64_t interval_now() const noexcept;
  bool out_of_time() const noexcept;

  const int root_fd_;
  const std::string block_directory_;
  const uint32_t interval_s_;
  // Direct-mapped: which blocks have the running interval's age. Forgetting one costs a stat.
  std::unique_ptr<std::atomic<uint64_t>[]> remembered_;
  std::atomic<uint64_t> written_{0};
  std::atomic<uint64_t> dropped_{0};

  mutable std::mutex mutex_;
  std::condition_variable wake_;
  std::condition_variable idle_;
  // Rings; a run's keys lie one after another, modulo kQueuedKeys. The first run is being written: it leaves
  // the rings when it is.
  std::unique_ptr<BlockKey[]> keys_;
  std::unique_ptr<Run[]> runs_;
  size_t first_key_ = 0, key_count_ = 0;
  size_t first_run_ = 0, run_count_ = 0;
  std::chrono::steady_clock::time_point deadline_;
  std::atomic<bool> stopping_{false};
  std::thread thread_;
};

// The calling thread gives way to the others: nice 10.
void lower_thread_priority() noexcept;

}  // namespace dualpath::store
