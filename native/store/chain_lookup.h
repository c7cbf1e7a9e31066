// The keys of a chain of blocks by the quickest way: compared with what was hashed before, hashed where that
// ends. Works on a private copy of the tokens, piece by piece, so that a caller who changes or frees them
// meanwhile gets wrong keys at worst and leaves nothing wrong behind in the cache.
#pragma once
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "store/chain_cache.h"

namespace dualpath::store {

struct ChainRequest {
  BlockKey parent{};
  const uint32_t* tokens = nullptr;  // [blocks * block_tokens]
  size_t block_tokens = 0;           // > 0
  size_t blocks = 0;
  bool may_vanish = true;       // `tokens` may be unmapped while this runs: see core/guarded_copy.h
  ChainCache* cache = nullptr;  // may be null
  BlockKey* out = nullptr;      // [blocks], written and never read
  const std::atomic<bool>* stop = nullptr;  // may be null; asked between pieces of 64 KiB
};

enum class ChainOutcome : uint8_t { kDone, kTokensGone, kStopped, kNoMemory };

struct ChainTimes {
  uint64_t copy_ns = 0;     // of the tokens
  uint64_t compare_ns = 0;  // with the cache, and taking up new blocks
  uint64_t hash_ns = 0;
  uint64_t hashed_blocks = 0;
};

ChainOutcome look_up_chain(const ChainRequest& request, ChainTimes* times) noexcept;

}  // namespace dualpath::store
