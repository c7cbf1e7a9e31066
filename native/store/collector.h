// Eviction: the oldest blocks of the whole store, every namespace together, until it is small enough; never
// one that a process of this host has pinned. Any number of collectors may run, in any process: they take
// turns by a lock on gc.lock that dies with its holder, and where the file system has no locks they do the
// same work twice without harm.
#pragma once
#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "store/eviction_log.h"
#include "store/pin_table.h"

namespace dualpath::store {

struct CollectOptions {
  uint64_t target_bytes = 0;   // of block files that may stay
  uint64_t trigger_bytes = 0;  // nothing is evicted unless there are more than this, and than target_bytes
  bool dry_run = false;
  bool wait = false;  // for another collector to finish; otherwise `busy`
  // Blocks considered at once: memory is 56 bytes each, and the store is scanned once for so many evictions.
  size_t candidates = size_t{1} << 17;
  // Called between pieces of work of some milliseconds; false: stop. May sleep.
  std::function<bool()> go_on = [] { return true; };
};

struct CollectResult {
  bool busy = false;     // another collector is at work: nothing was done
  bool stopped = false;  // by go_on
  uint64_t blocks = 0;   // in the store before
  uint64_t bytes = 0;
  uint64_t evicted_blocks = 0;  // with dry_run: that would have been
  uint64_t evicted_bytes = 0;
  uint64_t pinned_blocks = 0;   // old enough, and kept as they are in use
  uint64_t changed_blocks = 0;  // used or gone between the scan and their turn
  uint64_t failed_blocks = 0;   // could not be unlinked
  int last_errno = 0;           // of those
};

class Collector {
 public:
  // log: this host's. own: pins of this process that are not shared, or nullptr.
  Collector(int root_fd, std::string root, EvictionLog* log, const PinTable* own);

  Status collect(const CollectOptions& options, CollectResult* out);

 private:
  struct Candidate {
    int64_t age_ns;
    uint64_t bytes;
    BlockKey key;
    uint32_t namespace_index;
    bool operator<(const Candidate& other) const noexcept { return age_ns < other.age_ns; }
  };

  Status scan(const CollectOptions& options, CollectResult* result, uint64_t* bytes);
  void consider(const Candidate& candidate, size_t most);
  Status evict_oldest(const CollectOptions& options, uint64_t* bytes, CollectResult* result);
  Status evict_batch(const std::vector<Candidate>& batch, const CollectOptions& options, uint64_t* bytes,
                     CollectResult* result);
  void evict(const Candidate& candidate, const CollectOptions& options, uint64_t* bytes,
             CollectResult* result);
  ScopedFd lock(const CollectOptions& options, bool* busy);

  int root_fd_;
  std::string root_;
  EvictionLog* log_;
  PinTables pins_;
  std::vector<std::string> namespaces_;  // [0]: the default one
  std::vector<Candidate> oldest_;        // a heap, the youngest of them first
};

}  // namespace dualpath::store
