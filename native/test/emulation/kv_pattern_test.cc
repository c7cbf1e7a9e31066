#include "emulation/kv_pattern.h"

#include <gtest/gtest.h>
#include <string.h>

#include <set>

#include "test/memory/paged_shapes.h"
#include "test/transfer/kv.h"

namespace dualpath::emulation {
namespace {

using test::check_kv;
using test::expect_kv;
using test::seeds_of;
using test::write_kv;

constexpr uint32_t kTokens = 8;

TEST(KvSeedsTest, DependOnEverythingBefore) {
  const uint32_t a[] = {5, 6, 7, 8};
  const uint32_t b[] = {5, 9, 7, 8};
  const auto seeds_a = kv_seeds(a, 4);
  const auto seeds_b = kv_seeds(b, 4);
  EXPECT_EQ(seeds_a[0], seeds_b[0]);
  for (size_t i = 1; i < 4; i++) EXPECT_NE(seeds_a[i], seeds_b[i]);
  EXPECT_EQ(kv_seeds(a, 3), std::vector<uint64_t>(seeds_a.begin(), seeds_a.begin() + 3));
  EXPECT_TRUE(kv_seeds(a, 0).empty());
}

class KvPatternTest : public ::testing::Test {
 protected:
  const test::Shape shape_ = test::uniform_shape(3, kTokens, {{82, 0}, {20, 12}, {36, 0}});
  const std::vector<uint32_t> slots_{2, 0, 3};
  const std::vector<uint64_t> seeds_ = seeds_of(3 * kTokens);
};

TEST_F(KvPatternTest, IsTheSameInEveryLayout) {
  for (const auto& geometry :
       {test::full_blocks(shape_, 4), test::tensor_per_layer(shape_, 4), test::interleaved(shape_, 4, 3)}) {
    write_kv(*geometry, slots_, {0, 24}, seeds_);
    const auto check = check_kv(*geometry, slots_, {0, 24}, seeds_);
    EXPECT_EQ(check.checked_bytes, 3 * shape_.block_bytes());
    EXPECT_EQ(check.mismatched_bytes, 0u);
    EXPECT_TRUE(test::untouched(geometry->at(1, 1, geometry->planes(1)[0], 3), 82));
  }
}

// Rows in parts: every byte of them, in blocks of several pages.
TEST_F(KvPatternTest, IsTheSameHeadByHead) {
  PagedOptions options;
  options.block_tokens = kTokens;
  options.tables = {{"kv", 8, 4}};
  const auto region = test::exact_region(8 * 4 * 82);
  options.layers = {{{0, 0, {{region, 0, 4 * 82, 41, 41}, {region, 4 * 41, 4 * 82, 41, 41}}}}};
  const auto geometry = test::make_paged(options);
  const std::vector<uint32_t> entries{7, 2, 0, 5};
  const PatternTarget target{geometry.get(), entries.data(), 2, 0};
  write_pattern(target, 0, {0, 16}, seeds_.data());
  const auto blocks = test::full_blocks(test::uniform_shape(1, kTokens, {{82, 0}}), 1);
  const uint32_t slot = 0;
  uint64_t bytes = 0;
  ASSERT_TRUE(copy_block(*geometry, entries.data() + 2, *blocks, &slot, 0, 1, {8, 16}, 0, &bytes));
  EXPECT_EQ(check_pattern({blocks.get(), &slot, 1, 1}, 0, {8, 16}, 0, seeds_.data()).mismatched_bytes, 0u);
  for (const uint64_t at : {0 * 328 + 3u, 7 * 328 + 164 + 40u, 5 * 328 + 327u}) {
    region->base()[at] ^= std::byte{1};
    const PatternCheck check = check_pattern(target, 0, {0, 16}, 0, seeds_.data());
    EXPECT_EQ(check.checked_bytes, 16u * 82);
    EXPECT_EQ(check.mismatched_bytes, 1u) << at;
    region->base()[at] ^= std::byte{1};
  }
}

TEST_F(KvPatternTest, EveryFlippedByteIsOneMismatch) {
  const auto geometry = test::full_blocks(shape_, 4);
  write_kv(*geometry, slots_, {0, 24}, seeds_);
  for (uint32_t layer = 0; layer < 3; layer++) {
    for (const Plane& plane : geometry->planes(layer)) {
      for (uint32_t byte = 0; byte < plane.bytes_per_token; byte++) {
        std::byte& victim = geometry->at(0, layer, plane, 5)[byte];
        victim ^= std::byte{0x10};
        ASSERT_EQ(check_kv(*geometry, slots_, {0, 24}, seeds_).mismatched_bytes, 1u);
        ASSERT_EQ(check_kv(*geometry, slots_, {14, 24}, seeds_).mismatched_bytes, 0u) << "token 13";
        victim ^= std::byte{0x10};
      }
    }
  }
}

TEST_F(KvPatternTest, NoTwoRowsAreAlike) {
  const auto geometry = test::full_blocks(shape_, 4);
  write_kv(*geometry, slots_, {0, 24}, seeds_);
  std::set<std::string> rows;
  size_t count = 0;
  for (uint32_t layer = 0; layer < 3; layer++) {
    for (const Plane& plane : geometry->planes(layer)) {
      for (const uint32_t slot : slots_) {
        for (uint32_t token = 0; token < kTokens; token++) {
          const std::byte* row = geometry->at(slot, layer, plane, token);
          rows.emplace(reinterpret_cast<const char*>(row), 20);
          count++;
        }
      }
    }
  }
  EXPECT_EQ(rows.size(), count);
}

TEST_F(KvPatternTest, SwappedSlotsLayersAndTokensAreSeen) {
  const auto geometry = test::full_blocks(shape_, 4);
  write_kv(*geometry, {0, 2, 3}, {0, 24}, seeds_);
  const auto swapped = check_kv(*geometry, slots_, {0, 24}, seeds_);
  EXPECT_GT(swapped.mismatched_bytes, 2 * shape_.block_bytes() * 9 / 10);
  write_kv(*geometry, slots_, {0, 24}, seeds_);
  const Plane& plane = geometry->planes(1)[0];
  memcpy(geometry->at(2, 1, plane, 0), geometry->at(2, 1, plane, 1), 82);  // one token late
  const auto late = check_kv(*geometry, slots_, {0, 24}, seeds_);
  EXPECT_GT(late.mismatched_bytes, 70u);
  EXPECT_LE(late.mismatched_bytes, 82u);
}

TEST_F(KvPatternTest, LooksOnlyWhereAQuerySees) {
  const auto geometry = test::full_blocks(shape_, 4);
  write_kv(*geometry, slots_, {0, 24}, seeds_);
  const Plane& windowed = geometry->planes(0)[1];
  for (uint32_t token = 0; token < 8; token++) {
    memset(geometry->at(2, 0, windowed, token), 0, 20);  // tokens 0 .. 7
  }
  EXPECT_GT(check_kv(*geometry, slots_, {0, 24}, seeds_).mismatched_bytes, 140u);
  EXPECT_GT(check_kv(*geometry, slots_, {0, 24}, seeds_, 18).mismatched_bytes, 15u) << "token 7 is seen";
  const auto check = check_kv(*geometry, slots_, {0, 24}, seeds_, 19);
  EXPECT_EQ(check.mismatched_bytes, 0u);
  EXPECT_EQ(check.checked_bytes, 3u * (24 * (82 + 36) + (24 - 8) * 20));
}

TEST_F(KvPatternTest, TokensOutsideTheSlotsAreNobodys) {
  const auto geometry = test::full_blocks(shape_, 4);
  const uint32_t slot = 1;
  const PatternTarget target{geometry.get(), &slot, 1, 1};  // block 1 only: tokens 8 .. 15
  write_pattern(target, 0, {0, 24}, seeds_.data());
  const auto check = check_pattern(target, 0, {0, 24}, 0, seeds_.data());
  EXPECT_EQ(check.checked_bytes, shape_.layer_bytes(0));
  EXPECT_EQ(check.mismatched_bytes, 0u);
  EXPECT_TRUE(test::untouched(geometry->slot(0), geometry->slot_stride_bytes()));
  EXPECT_TRUE(test::untouched(geometry->slot(2), 2 * geometry->slot_stride_bytes()));
}

}  // namespace
}  // namespace dualpath::emulation
