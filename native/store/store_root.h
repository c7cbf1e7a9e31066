// A store as its tools see it: opened without knowing the model or any salt, since the manifest holds the
// identity and store.layers what a block consists of. Nothing is made, and no index filled.
#pragma once
#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "core/status.h"
#include "store/block_format.h"
#include "store/posix.h"

namespace dualpath::store {

struct StoreRoot {
  std::string path;
  ScopedFd root;
  std::string identity;
  std::vector<uint64_t> layer_bytes;  // empty where store.layers is missing

  // STORE_MISMATCH when it is no store or of another version, STORAGE_IO.
  static Status open(const std::string& path, StoreRoot* out);
  int fd() const noexcept { return root.get(); }
  // STORE_MISMATCH where store.layers is missing.
  Status format(BlockFormat* out) const;
};

// Of a tool at work, for whoever waits for it.
struct ToolProgress {
  std::atomic<uint64_t> done{0};
  std::atomic<uint64_t> total{0};
  std::atomic<bool> stop{false};

  bool go_on() const noexcept { return !stop.load(std::memory_order_relaxed); }
};

}  // namespace dualpath::store
