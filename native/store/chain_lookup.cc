#include "store/chain_lookup.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <new>

#include "core/clock.h"
#include "core/guarded_copy.h"

namespace dualpath::store {
namespace {

constexpr size_t kPieceBytes = 65536;  // stays in the second-level cache between copying and comparing

class Stopwatch {
 public:
  uint64_t lap_ns() noexcept {
    const uint64_t before = std::exchange(last_ns_, now_ns());
    return last_ns_ - before;
  }

 private:
  uint64_t last_ns_ = now_ns();
};

}  // namespace

ChainOutcome look_up_chain(const ChainRequest& request, ChainTimes* times) noexcept {
  const size_t block_bytes = request.block_tokens * sizeof(uint32_t);
  const size_t piece_blocks = std::min(std::max<size_t>(kPieceBytes / block_bytes, 1), request.blocks);
  // Keys are made here and copied out: `out` may be memory that other processes can write.
  const std::unique_ptr<std::byte[]> memory(new (std::nothrow)
                                                std::byte[piece_blocks * (block_bytes + BlockKey::kBytes)]);
  if (memory == nullptr) return ChainOutcome::kNoMemory;
  auto* tokens = reinterpret_cast<uint32_t*>(memory.get());
  auto* keys = reinterpret_cast<BlockKey*>(memory.get() + piece_blocks * block_bytes);

  BlockKey before = request.parent;
  ChainCache::Walk walk;
  Stopwatch watch;
  for (size_t done = 0; done < request.blocks;) {
    if (request.stop != nullptr && request.stop->load(std::memory_order_relaxed))
      return ChainOutcome::kStopped;
    const size_t count = std::min(piece_blocks, request.blocks - done);
    const uint32_t* from = request.tokens + done * request.block_tokens;
    if (!request.may_vanish) {
      std::memcpy(tokens, from, count * block_bytes);
    } else if (!guarded_copy(tokens, from, count * block_bytes)) {
      return ChainOutcome::kTokensGone;
    }
    times->copy_ns += watch.lap_ns();
    size_t known = 0;
    if (request.cache != nullptr) {
      known = request.cache->find(walk, before, tokens, request.block_tokens, count, keys);
      times->compare_ns += watch.lap_ns();
    }
    if (known < count) {
      const BlockKey parent = known == 0 ? before : keys[known - 1];
      const uint32_t* rest = tokens + known * request.block_tokens;
      extend_chain(parent, rest, request.block_tokens, count - known, keys + known);
      times->hashed_blocks += count - known;
      times->hash_ns += watch.lap_ns();
      if (request.cache != nullptr) {
        request.cache->insert(walk, parent, rest, request.block_tokens, count - known, keys + known);
        times->compare_ns += watch.lap_ns();
      }
    }
    std::memcpy(request.out + done, keys, count * BlockKey::kBytes);
    before = keys[count - 1];
    done += count;
  }
  return ChainOutcome::kDone;
}

}  // namespace dualpath::store
