#include "store/chain_cache.h"

#include <sys/mman.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <new>
#include <string>

#include "store/sodium_start.h"

namespace dualpath::store {

Status ChainCache::create(size_t bytes, std::unique_ptr<ChainCache>* out) try {
  if (bytes < kMinBytes || bytes > kMaxBytes) {
    return Status::error("INVALID_ARGUMENT", "chain cache of " + std::to_string(bytes) + " bytes, " +
                                                 std::to_string(kMinBytes) + " to " +
                                                 std::to_string(kMaxBytes) + " allowed, or 0 for none");
  }
  constexpr size_t run_bytes = kRunBytes + sizeof(Run) + 2 * sizeof(Entry) + 4 * sizeof(uint32_t);
  std::unique_ptr<ChainCache> cache(new ChainCache(static_cast<uint32_t>(bytes / run_bytes), bytes));
  void* slab = mmap(nullptr, cache->slab_bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (slab == MAP_FAILED) {
    return Status::error("MEMORY_LIMIT",
                         "chain cache: no memory for " + std::to_string(bytes) + " bytes; make it smaller",
                         errno);
  }
  cache->slab_ = static_cast<std::byte*>(slab);
  *out = std::move(cache);
  return {};
} catch (const std::bad_alloc&) {
  return Status::error("MEMORY_LIMIT",
                       "chain cache: no memory for " + std::to_string(bytes) + " bytes; make it smaller");
}

ChainCache::ChainCache(uint32_t runs, size_t bytes)
    : seed_([] {
        start_sodium();
        uint64_t seed;
        randombytes_buf(&seed, sizeof seed);
        return seed;
      }()),
      bytes_(bytes),
      slab_bytes_(runs * kRunBytes),
      runs_(runs),
      entries_(2 * static_cast<size_t>(runs)),
      buckets_(std::bit_floor(4 * static_cast<size_t>(runs)), kNone) {
  for (uint32_t run = 0; run < runs; ++run) {
    runs_[run].newer = run == 0 ? kNone : run - 1;
    runs_[run].older = run + 1 == runs ? kNone : run + 1;
  }
  newest_ = 0;
  oldest_ = runs - 1;
}

ChainCache::~ChainCache() {
  if (slab_ != nullptr) munmap(slab_, slab_bytes_);
}

size_t ChainCache::capacity_of(size_t block_tokens) noexcept {
  return kRunBytes / (block_tokens * sizeof(uint32_t) + BlockKey::kBytes);
}

uint32_t* ChainCache::tokens_of(uint32_t run) const noexcept {
  return reinterpret_cast<uint32_t*>(slab_ + run * kRunBytes);
}

BlockKey* ChainCache::keys_of(uint32_t run) const noexcept {
  const size_t block_tokens = runs_[run].block_tokens;
  return reinterpret_cast<BlockKey*>(tokens_of(run) + capacity_of(block_tokens) * block_tokens);
}

uint64_t ChainCache::head_hash(const BlockKey& parent, const uint32_t* tokens,
                               size_t block_tokens) const noexcept {
  return XXH3_64bits_withSeed(tokens, block_tokens * sizeof(uint32_t),
                              tail_hash(parent, block_tokens) ^ kHead);
}

uint64_t ChainCache::tail_hash(const BlockKey& last, size_t block_tokens) const noexcept {
  return XXH3_64bits_withSeed(last.bytes.data(), BlockKey::kBytes, seed_ + block_tokens);
}

void ChainCache::link(uint32_t run, Link kind, uint64_t hash) noexcept {
  const uint32_t index = 2 * run + kind;
  uint32_t& bucket = buckets_[hash & (buckets_.size() - 1)];
  entries_[index] = {hash, bucket, true};
  bucket = index;
}

void ChainCache::unlink(uint32_t run, Link kind) noexcept {
  const uint32_t index = 2 * run + kind;
  Entry& entry = entries_[index];
  if (!entry.linked) return;
  uint32_t* at = &buckets_[entry.hash & (buckets_.size() - 1)];
  while (*at != index) at = &entries_[*at].next;
  *at = entry.next;
  entry.linked = false;
}

bool ChainCache::continues(const Walk& walk, const BlockKey& parent, size_t block_tokens) const noexcept {
  if (walk.run == kNone) return false;
  const Run& run = runs_[walk.run];  // it may have come to hold another chain since
  return run.block_tokens == block_tokens && walk.block > 0 && walk.block < run.count &&
         keys_of(walk.run)[walk.block - 1] == parent;
}

uint32_t ChainCache::find_head(const BlockKey& parent, const uint32_t* tokens,
                               size_t block_tokens) const noexcept {
  const uint64_t hash = head_hash(parent, tokens, block_tokens);
  for (uint32_t at = buckets_[hash & (buckets_.size() - 1)]; at != kNone; at = entries_[at].next) {
    const uint32_t run = at / 2;
    if (at % 2 != kHead || entries_[at].hash != hash) continue;
    if (runs_[run].block_tokens != block_tokens || runs_[run].parent != parent) continue;
    if (std::memcmp(tokens_of(run), tokens, block_tokens * sizeof(uint32_t)) == 0) return run;
  }
  return kNone;
}

uint32_t ChainCache::find_tail(const BlockKey& last, size_t block_tokens) const noexcept {
  const uint64_t hash = tail_hash(last, block_tokens);
  for (uint32_t at = buckets_[hash & (buckets_.size() - 1)]; at != kNone; at = entries_[at].next) {
    const uint32_t run = at / 2;
    if (at % 2 != kTail || entries_[at].hash != hash || runs_[run].block_tokens != block_tokens) continue;
    if (keys_of(run)[runs_[run].count - 1] == last) return run;
  }
  return kNone;
}

size_t ChainCache::find(Walk& walk, const BlockKey& parent, const uint32_t* tokens, size_t block_tokens,
                        size_t blocks, BlockKey* out) noexcept {
  if (capacity_of(block_tokens) == 0) return 0;
  const std::lock_guard lock(mutex_);
  const size_t found = find_locked(walk, parent, tokens, block_tokens, blocks, out);
  hit_blocks_ += found;
  miss_blocks_ += blocks - found;
  return found;
}

size_t ChainCache::find_locked(Walk& walk, const BlockKey& parent, const uint32_t* tokens,
                               size_t block_tokens, size_t blocks, BlockKey* out) noexcept {
  const size_t block_bytes = block_tokens * sizeof(uint32_t);
  const BlockKey* before = &parent;
  size_t done = 0;
  while (done < blocks) {
    const uint32_t* rest = tokens + done * block_tokens;
    uint32_t run = walk.run;
    size_t first = walk.block;
    if (!continues(walk, *before, block_tokens)) {
      run = find_head(*before, rest, block_tokens);
      if (run == kNone) break;
      first = 0;
    }
    const uint32_t* known = tokens_of(run) + first * block_tokens;
    const size_t most = std::min<size_t>(runs_[run].count - first, blocks - done);
    size_t same = most;
    if (std::memcmp(known, rest, most * block_bytes) != 0) {
      for (same = 0; std::memcmp(known + same * block_tokens, rest + same * block_tokens, block_bytes) == 0;)
        ++same;
    }
    if (same > 0) std::memcpy(out + done, keys_of(run) + first, same * BlockKey::kBytes);
    if (same > 0) before = out + done + same - 1;
    done += same;
    touch(walk, run);
    // After a block that differs the chain goes on in a run of its own, if at all.
    walk.block = same < most ? 0 : static_cast<uint32_t>(first + same);
  }
  return done;
}

void ChainCache::insert(Walk& walk, const BlockKey& parent, const uint32_t* tokens, size_t block_tokens,
                        size_t blocks, const BlockKey* keys) noexcept {
  if (blocks == 0 || capacity_of(block_tokens) == 0) return;
  const std::lock_guard lock(mutex_);
  size_t done = 0;
  while (done < blocks) {
    const BlockKey& before = done == 0 ? parent : keys[done - 1];
    const uint32_t* rest = tokens + done * block_tokens;
    // Another thread may have been quicker, as far as its chain goes.
    BlockKey known;
    if (find_locked(walk, before, rest, block_tokens, 1, &known) == 1) {
      ++done;
      continue;
    }
    uint32_t run = find_tail(before, block_tokens);
    if (run == kNone) run = reuse_oldest(before, rest, block_tokens);
    const size_t room = capacity_of(block_tokens) - runs_[run].count;
    const size_t added = std::min(room, blocks - done);
    append(run, rest, keys + done, added);
    touch(walk, run);
    walk.block = runs_[run].count;
    done += added;
  }
}

void ChainCache::append(uint32_t run, const uint32_t* tokens, const BlockKey* keys, size_t blocks) noexcept {
  Run& r = runs_[run];
  unlink(run, kTail);
  std::memcpy(tokens_of(run) + static_cast<size_t>(r.count) * r.block_tokens, tokens,
              blocks * r.block_tokens * sizeof(uint32_t));
  std::memcpy(keys_of(run) + r.count, keys, blocks * BlockKey::kBytes);
  r.count += static_cast<uint32_t>(blocks);
  blocks_ += blocks;
  if (r.count < capacity_of(r.block_tokens)) link(run, kTail, tail_hash(keys[blocks - 1], r.block_tokens));
}

uint32_t ChainCache::reuse_oldest(const BlockKey& parent, const uint32_t* first_block,
                                  size_t block_tokens) noexcept {
  const uint32_t run = oldest_;
  Run& r = runs_[run];
  unlink(run, kHead);
  unlink(run, kTail);
  evicted_blocks_ += r.count;
  blocks_ -= r.count;
  r.parent = parent;
  r.block_tokens = static_cast<uint32_t>(block_tokens);
  r.count = 0;
  link(run, kHead, head_hash(parent, first_block, block_tokens));
  return run;
}

// The order of use. The first run of a walk becomes the newest and each further one comes behind the one
// before it, so that of one chain the last run is dropped first.
void ChainCache::touch(Walk& walk, uint32_t run) noexcept {
  uint32_t after = walk.run;
  walk.run = run;
  Run& r = runs_[run];
  if (after == run) after = r.newer;
  if (after == kNone ? newest_ == run : r.newer == after) return;
  (r.newer == kNone ? newest_ : runs_[r.newer].older) = r.older;
  (r.older == kNone ? oldest_ : runs_[r.older].newer) = r.newer;
  r.newer = after;
  r.older = after == kNone ? newest_ : runs_[after].older;
  (after == kNone ? newest_ : runs_[after].older) = run;
  (r.older == kNone ? oldest_ : runs_[r.older].newer) = run;
}

ChainCacheStatistics ChainCache::stat() const noexcept {
  const std::lock_guard lock(mutex_);
  return {bytes_, blocks_, hit_blocks_, miss_blocks_, evicted_blocks_};
}

}  // namespace dualpath::store
