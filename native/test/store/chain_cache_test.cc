#include "store/chain_cache.h"

#include <gtest/gtest.h>

#include <memory>
#include <random>
#include <thread>
#include <vector>

namespace dualpath::store {
namespace {

using Tokens = std::vector<uint32_t>;
using Keys = std::vector<BlockKey>;

std::unique_ptr<ChainCache> make_cache(size_t bytes = 1 << 20) {
  std::unique_ptr<ChainCache> cache;
  const Status status = ChainCache::create(bytes, &cache);
  EXPECT_TRUE(status.ok()) << status.message;
  return cache;
}

BlockKey root(uint8_t n = 0) {
  BlockKey key;
  key.bytes.fill(n);
  return key;
}

Tokens random_tokens(std::mt19937_64& random, size_t count) {
  Tokens tokens(count);
  for (uint32_t& token : tokens) token = static_cast<uint32_t>(random());
  return tokens;
}

Keys hashed(const BlockKey& parent, const Tokens& tokens, size_t block_tokens) {
  Keys keys(tokens.size() / block_tokens);
  extend_chain(parent, tokens.data(), block_tokens, keys.size(), keys.data());
  return keys;
}

// Blocks found, their keys checked.
size_t found(ChainCache& cache, const BlockKey& parent, const Tokens& tokens, size_t block_tokens) {
  const Keys right = hashed(parent, tokens, block_tokens);
  Keys out(right.size());
  ChainCache::Walk walk;
  const size_t count = cache.find(walk, parent, tokens.data(), block_tokens, right.size(), out.data());
  EXPECT_TRUE(std::equal(out.begin(), out.begin() + static_cast<ptrdiff_t>(count), right.begin()));
  return count;
}

// As a look-up does it: what is not found is hashed and taken up.
size_t look_up(ChainCache& cache, const BlockKey& parent, const Tokens& tokens, size_t block_tokens) {
  const Keys right = hashed(parent, tokens, block_tokens);
  Keys out(right.size());
  ChainCache::Walk walk;
  const size_t count = cache.find(walk, parent, tokens.data(), block_tokens, right.size(), out.data());
  cache.insert(walk, count == 0 ? parent : right[count - 1], tokens.data() + count * block_tokens,
               block_tokens, right.size() - count, right.data() + count);
  EXPECT_TRUE(std::equal(out.begin(), out.begin() + static_cast<ptrdiff_t>(count), right.begin()));
  return count;
}

TEST(ChainCache, FindsWhatWasTakenUpAndNothingElse) {
  std::mt19937_64 random(1);
  const auto cache = make_cache();
  const Tokens tokens = random_tokens(random, 500 * 16);
  EXPECT_EQ(look_up(*cache, root(), tokens, 16), 0u);
  EXPECT_EQ(found(*cache, root(), tokens, 16), 500u);
  EXPECT_EQ(found(*cache, root(1), tokens, 16), 0u) << "another salt";
  EXPECT_EQ(found(*cache, root(), tokens, 8), 0u) << "another block size";
  for (const size_t at : {size_t{0}, size_t{15}, size_t{16}, size_t{4000}, size_t{7999}}) {
    Tokens changed = tokens;
    changed[at] ^= 1;
    EXPECT_EQ(found(*cache, root(), changed, 16), at / 16);
  }
  const ChainCacheStatistics stat = cache->stat();
  EXPECT_EQ(stat.blocks, 500u);
  EXPECT_EQ(stat.evicted_blocks, 0u);
  EXPECT_EQ(stat.capacity_bytes, size_t{1} << 20);
}

TEST(ChainCache, GoesOnFromAnyBlockInPiecesOfAnySize) {
  std::mt19937_64 random(2);
  const auto cache = make_cache(4 << 20);
  const Tokens tokens = random_tokens(random, 1000 * 16);
  const Keys keys = hashed(root(), tokens, 16);
  ChainCache::Walk writing;
  for (size_t at = 0; at < keys.size();) {
    const size_t count = std::min<size_t>(1 + random() % 300, keys.size() - at);
    cache->insert(writing, at == 0 ? root() : keys[at - 1], tokens.data() + at * 16, 16, count,
                  keys.data() + at);
    at += count;
  }
  for (int round = 0; round < 20; ++round) {
    ChainCache::Walk walk;
    for (size_t at = 0; at < keys.size();) {
      const size_t count = std::min<size_t>(1 + random() % 300, keys.size() - at);
      Keys out(count);
      const BlockKey& before = at == 0 ? root() : keys[at - 1];
      ASSERT_EQ(cache->find(walk, before, tokens.data() + at * 16, 16, count, out.data()), count);
      ASSERT_TRUE(std::equal(out.begin(), out.end(), keys.begin() + static_cast<ptrdiff_t>(at)));
      at += count;
    }
  }
  EXPECT_LT(cache->stat().blocks, 1001u);
}

// A sequence that grows by a block at a time shares runs, so that decoding does not fill the cache with them.
TEST(ChainCache, GrowsARunByItsLastKey) {
  std::mt19937_64 random(3);
  const auto cache = make_cache(1 << 16);  // three runs
  const Tokens tokens = random_tokens(random, 100 * 64);
  const Keys keys = hashed(root(), tokens, 64);
  for (size_t at = 0; at < keys.size(); ++at) {
    ChainCache::Walk walk;
    cache->insert(walk, at == 0 ? root() : keys[at - 1], tokens.data() + at * 64, 64, 1, keys.data() + at);
  }
  EXPECT_EQ(cache->stat().evicted_blocks, 0u);
  EXPECT_EQ(found(*cache, root(), tokens, 64), 100u);
}

TEST(ChainCache, DropsTheOldestChainAndOfAChainItsEnd) {
  std::mt19937_64 random(4);
  const auto cache = make_cache(11 * 16384 + 9000);  // eleven runs of 56 blocks, and their links
  const auto chain = [&] { return random_tokens(random, 4 * 56 * 64); };
  const Tokens a = chain();
  const Tokens b = chain();
  look_up(*cache, root(), a, 64);
  look_up(*cache, root(), b, 64);
  EXPECT_EQ(look_up(*cache, root(), a, 64), 4u * 56) << "used after b";
  look_up(*cache, root(), chain(), 64);
  EXPECT_EQ(cache->stat().evicted_blocks, 56u) << "the run that did not fit";
  EXPECT_EQ(found(*cache, root(), a, 64), 4u * 56);
  EXPECT_EQ(found(*cache, root(), b, 64), 3u * 56) << "its last run";
}

TEST(ChainCache, KeepsTheBeginningOfAChainThatIsTooLong) {
  std::mt19937_64 random(5);
  const auto cache = make_cache(1 << 17);
  const Tokens tokens = random_tokens(random, 2000 * 64);
  look_up(*cache, root(), tokens, 64);
  const size_t kept = found(*cache, root(), tokens, 64);
  EXPECT_GE(kept, 5u * 56);
  EXPECT_LE(cache->stat().blocks, 7u * 56);
}

TEST(ChainCache, DoesNotKeepBlocksThatAreLargerThanARun) {
  std::mt19937_64 random(6);
  const auto cache = make_cache();
  for (const size_t block_tokens : {size_t{4088}, size_t{4089}, size_t{65536}}) {
    const Tokens tokens = random_tokens(random, 2 * block_tokens);
    look_up(*cache, root(), tokens, block_tokens);
    EXPECT_EQ(found(*cache, root(), tokens, block_tokens), block_tokens <= 4088 ? 2u : 0u);
  }
}

// Against hashing itself: random trees of sequences, in a cache that is always too small.
TEST(ChainCache, NeverGivesAWrongKey) {
  std::mt19937_64 random(7);
  for (const size_t bytes : {size_t{1} << 16, size_t{1} << 18, size_t{1} << 22}) {
    const auto cache = make_cache(bytes);
    std::vector<Tokens> known(1);
    for (int round = 0; round < 2000; ++round) {
      const size_t block_tokens = random() % 8 == 0 ? 3 : 16;
      Tokens tokens = known[random() % known.size()];
      tokens.resize(random() % (tokens.size() + 1));
      // Few values, so that blocks are alike.
      for (size_t n = random() % 2000; n > 0; --n) tokens.push_back(static_cast<uint32_t>(random() % 2));
      look_up(*cache, root(static_cast<uint8_t>(random() % 2)), tokens, block_tokens);
      if (known.size() < 64) known.emplace_back();
      known[random() % known.size()] = tokens;
    }
    EXPECT_LE(cache->stat().blocks * (16 * 4 + 32), bytes);
    EXPECT_GT(cache->stat().hit_blocks, 0u);
  }
}

TEST(ChainCache, IsSafeFromManyThreads) {
  const auto cache = make_cache(1 << 17);
  std::vector<std::thread> threads;
  for (uint64_t seed = 0; seed < 4; ++seed) {
    threads.emplace_back([&cache, seed] {
      std::mt19937_64 shared(8);
      std::vector<Tokens> chains;
      for (int i = 0; i < 6; ++i) chains.push_back(random_tokens(shared, 200 * 16));
      std::mt19937_64 random(seed);
      for (int round = 0; round < 100; ++round) look_up(*cache, root(), chains[random() % chains.size()], 16);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_GT(cache->stat().hit_blocks, 0u);
}

TEST(ChainCache, RefusesSizesItCannotHave) {
  std::unique_ptr<ChainCache> cache;
  for (const size_t bytes : {size_t{1}, ChainCache::kMinBytes - 1, ChainCache::kMaxBytes + 1}) {
    const Status status = ChainCache::create(bytes, &cache);
    ASSERT_FALSE(status.ok());
    EXPECT_STREQ(status.code, "INVALID_ARGUMENT");
    EXPECT_NE(status.message.find(std::to_string(bytes)), std::string::npos) << status.message;
  }
}

}  // namespace
}  // namespace dualpath::store
