// What processes that died have left behind, and what was put out of service: removed.
#pragma once
#include "store/eviction_log.h"
#include "store/store_root.h"

namespace dualpath::store {

inline constexpr int64_t kQuarantineAge_s = 24 * 3600;

struct SweepOptions {
  bool dry_run = false;
  bool all_quarantined = false;  // of whatever age; otherwise those older than kQuarantineAge_s
};

struct SweepCount {
  uint64_t files = 0;
  uint64_t bytes = 0;
};

struct SweepResult {
  SweepCount temps;        // of dead processes; where that cannot be told, older than kStaleTempAge_s
  SweepCount temps_left;   // of living processes, or too young to tell
  SweepCount tables;       // of dead processes
  SweepCount quarantined;  // blocks in bad/
  SweepCount trash;        // of deleted namespaces
  uint64_t failed = 0;     // files that could not be removed
  int last_errno = 0;
};

Status sweep_store(const StoreRoot& root, const SweepOptions& options, ToolProgress& progress,
                   SweepResult* out);

// Takes a namespace out of the store at once, then removes its files. *found: whether there was one.
Status delete_namespace(const StoreRoot& root, const std::string& name, EvictionLog& log,
                        ToolProgress& progress, bool* found, SweepResult* out);

}  // namespace dualpath::store
