#include "store/chain_lookup.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <memory>
#include <random>
#include <vector>

#include "core/guarded_copy.h"

namespace dualpath::store {
namespace {

struct Case {
  size_t block_tokens;
  size_t blocks;
};

class ChainLookup : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(ChainCache::create(1 << 22, &cache_).ok());
    if (!guarded_copy_works()) GTEST_SKIP() << "process_vm_readv is refused here";
  }

  std::unique_ptr<ChainCache> cache_;
  std::mt19937_64 random_{1};
};

TEST_F(ChainLookup, GivesTheKeysOfTheChainWithAndWithoutACache) {
  for (const auto& [block_tokens, blocks] : {Case{64, 0}, Case{64, 1}, Case{64, 256}, Case{64, 1000},
                                             Case{1, 5000}, Case{65536, 3}, Case{16384, 5}}) {
    std::vector<uint32_t> tokens(block_tokens * blocks);
    for (uint32_t& token : tokens) token = static_cast<uint32_t>(random_());
    BlockKey parent;
    parent.bytes[3] = 9;
    std::vector<BlockKey> right(blocks);
    extend_chain(parent, tokens.data(), block_tokens, blocks, right.data());
    for (int round = 0; round < 6; ++round) {
      std::vector<BlockKey> out(blocks);
      ChainTimes times;
      ChainRequest request{.parent = parent,
                           .tokens = tokens.data(),
                           .block_tokens = block_tokens,
                           .blocks = blocks,
                           .out = out.data()};
      request.may_vanish = round % 2 == 0;
      if (round >= 2) request.cache = cache_.get();
      ASSERT_EQ(look_up_chain(request, &times), ChainOutcome::kDone);
      EXPECT_EQ(out, right);
      EXPECT_EQ(times.hashed_blocks, round > 2 && block_tokens <= 4088 ? 0 : blocks);
    }
  }
}

TEST_F(ChainLookup, TokensThatAreNotThereEndItWithoutAFault) {
  const size_t bytes = 1 << 20;
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(memory, MAP_FAILED);
  ASSERT_EQ(munmap(static_cast<char*>(memory) + bytes / 2, bytes / 2), 0);
  std::vector<BlockKey> out(bytes / 256);
  ChainTimes times;
  const ChainRequest request{.tokens = static_cast<const uint32_t*>(memory),
                             .block_tokens = 64,
                             .blocks = out.size(),
                             .cache = cache_.get(),
                             .out = out.data()};
  EXPECT_EQ(look_up_chain(request, &times), ChainOutcome::kTokensGone);
  munmap(memory, bytes / 2);
}

TEST_F(ChainLookup, StopsWhenAsked) {
  const std::vector<uint32_t> tokens(64 * 1000);
  std::vector<BlockKey> out(1000);
  const std::atomic<bool> stop{true};
  ChainTimes times;
  const ChainRequest request{
      .tokens = tokens.data(), .block_tokens = 64, .blocks = 1000, .out = out.data(), .stop = &stop};
  EXPECT_EQ(look_up_chain(request, &times), ChainOutcome::kStopped);
  EXPECT_EQ(times.hashed_blocks, 0u);
}

}  // namespace
}  // namespace dualpath::store
