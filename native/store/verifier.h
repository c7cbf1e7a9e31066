// Reads blocks and checks every byte of them, in parallel, in the order of namespaces and keys.
#pragma once
#include <array>
#include <mutex>

#include "store/store_root.h"

namespace dualpath::store {

enum class BadBlockAction : uint8_t { kReport, kQuarantine, kDelete };

struct VerifyOptions {
  BadBlockAction action = BadBlockAction::kReport;
  uint64_t limit = UINT64_MAX;  // blocks
  std::string resume = {};      // VerifyResult::resume of a run before: where to go on
  unsigned threads = 4;         // 1..kMaxThreads
  static constexpr unsigned kMaxThreads = 64;
};

struct BadBlock {
  std::string namespace_name;
  BlockKey key;
  BlockFault fault;  // kOk: it could not be read, see sys_errno
  uint32_t layer = 0;
  int sys_errno = 0;
};

struct VerifyResult {
  static constexpr size_t kMaxListed = 100;

  uint64_t blocks = 0;  // read
  uint64_t bytes = 0;
  uint64_t good_blocks = 0;
  uint64_t bad_blocks = 0;
  uint64_t vanished_blocks = 0;  // between listing and reading
  uint64_t removed_blocks = 0;   // quarantined or deleted
  uint64_t failed_removals = 0;
  std::array<uint64_t, kBlockFaults> faults{};  // of bad blocks
  uint64_t unreadable_blocks = 0;               // of bad blocks
  std::vector<BadBlock> listed;                 // the first ones
  std::string resume;  // "<namespace>/<key>" of the last block of a run that ended early, or ""
};

// INVALID_ARGUMENT, STORE_MISMATCH, STORAGE_IO, MEMORY_LIMIT.
Status verify_store(const StoreRoot& root, const VerifyOptions& options, ToolProgress& progress,
                    VerifyResult* out);

}  // namespace dualpath::store
