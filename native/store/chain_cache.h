// Keys of blocks whose tokens were hashed before: an agent's next turn repeats its prefix, and comparing
// tokens is far quicker than hashing them.
//
// A radix tree whose nodes are runs of blocks, tokens and keys side by side. Nobody points at a child: a run
// is found by (key before it, tokens of its first block) and proved by comparing both, so a hit is exact,
// chains of different salts or layouts never meet, and any run may be dropped at any time. What follows a
// dropped run is found again once the run is.
//
// Memory is taken once; a full cache drops the run used longest ago, of a chain the last one first. Safe from
// any thread.
#pragma once
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "core/status.h"
#include "store/key_chain.h"

namespace dualpath::store {

struct ChainCacheStatistics {
  uint64_t capacity_bytes;
  uint64_t blocks;  // held now
  uint64_t hit_blocks;
  uint64_t miss_blocks;
  uint64_t evicted_blocks;
};

class ChainCache {
 public:
  static constexpr size_t kRunBytes = 16384;
  static constexpr size_t kMinBytes = size_t{1} << 16;
  static constexpr size_t kMaxBytes = size_t{1} << 38;

  // Where a chain's walk stands. A walk begins with a new one and passes it to every call.
  struct Walk {
    uint32_t run = kNone;
    uint32_t block = 0;  // of the run: the next to compare
  };

  // bytes: kMinBytes..kMaxBytes, all in all; memory the cache has not used yet is not resident.
  // INVALID_ARGUMENT, or MEMORY_LIMIT when it cannot be had.
  static Status create(size_t bytes, std::unique_ptr<ChainCache>* out);
  ~ChainCache();
  ChainCache(const ChainCache&) = delete;
  ChainCache& operator=(const ChainCache&) = delete;

  // Keys of the leading blocks of tokens[blocks * block_tokens], following the block named `parent`, as far
  // as they are known: written to out[blocks]. Returns how many.
  size_t find(Walk& walk, const BlockKey& parent, const uint32_t* tokens, size_t block_tokens, size_t blocks,
              BlockKey* out) noexcept;
  // Takes up what extend_chain says of these blocks. The caller's tokens and keys must be copies that nobody
  // else can write: a wrong pair would be served for ever. Blocks of more than 4,088 tokens are not kept.
  void insert(Walk& walk, const BlockKey& parent, const uint32_t* tokens, size_t block_tokens, size_t blocks,
              const BlockKey* keys) noexcept;

  ChainCacheStatistics stat() const noexcept;

 private:
  static constexpr uint32_t kNone = UINT32_MAX;
  // How a run is found: by its first block, and while it has room by the key after which it goes on.
  enum Link : uint32_t { kHead = 0, kTail = 1 };

  struct Run {
    BlockKey parent;
    uint32_t block_tokens = 0;
    uint32_t count = 0;  // blocks
    uint32_t newer = kNone;
    uint32_t older = kNone;
  };
  // In the chain of one bucket; its run is its index halved.
  struct Entry {
    uint64_t hash = 0;
    uint32_t next = kNone;
    bool linked = false;
  };

  ChainCache(uint32_t runs, size_t bytes);

  static size_t capacity_of(size_t block_tokens) noexcept;
  uint32_t* tokens_of(uint32_t run) const noexcept;
  BlockKey* keys_of(uint32_t run) const noexcept;

  uint64_t head_hash(const BlockKey& parent, const uint32_t* tokens, size_t block_tokens) const noexcept;
  uint64_t tail_hash(const BlockKey& last, size_t block_tokens) const noexcept;
  void link(uint32_t run, Link kind, uint64_t hash) noexcept;
  void unlink(uint32_t run, Link kind) noexcept;
  bool continues(const Walk& walk, const BlockKey& parent, size_t block_tokens) const noexcept;
  uint32_t find_head(const BlockKey& parent, const uint32_t* tokens, size_t block_tokens) const noexcept;
  uint32_t find_tail(const BlockKey& last, size_t block_tokens) const noexcept;

  // All below: with the mutex held.
  size_t find_locked(Walk& walk, const BlockKey& parent, const uint32_t* tokens, size_t block_tokens,
                     size_t blocks, BlockKey* out) noexcept;
  void append(uint32_t run, const uint32_t* tokens, const BlockKey* keys, size_t blocks) noexcept;
  uint32_t reuse_oldest(const BlockKey& parent, const uint32_t* first_block, size_t block_tokens) noexcept;
  void touch(Walk& walk, uint32_t run) noexcept;

  const uint64_t seed_;  // so that nobody can choose tokens that meet in one bucket
  const size_t bytes_;
  std::byte* slab_ = nullptr;
  size_t slab_bytes_ = 0;
  std::vector<Run> runs_;
  std::vector<Entry> entries_;
  std::vector<uint32_t> buckets_;
  uint32_t newest_ = kNone;
  uint32_t oldest_ = kNone;
  uint64_t blocks_ = 0;
  uint64_t hit_blocks_ = 0;
  uint64_t miss_blocks_ = 0;
  uint64_t evicted_blocks_ = 0;
  mutable std::mutex mutex_;
};

}  // namespace dualpath::store
