#include "memory/overlap.h"

#include <gtest/gtest.h>

#include <random>
#include <set>
#include <vector>

namespace dualpath {
namespace {

std::vector<uint64_t> bytes_of(const StridedPlace& place) {
  std::vector<uint64_t> bytes;
  for (uint32_t p = 0; p < place.pages; p++) {
    for (uint32_t t = 0; t < place.page_tokens; t++) {
      for (uint32_t b = 0; b < place.bytes; b++)
        bytes.push_back(place.begin + p * place.page_stride + t * place.token_stride + b);
    }
  }
  return bytes;
}

class OverlapTest : public ::testing::Test {
 protected:
  uint32_t below(uint32_t limit) { return static_cast<uint32_t>(random_() % limit); }
  StridedPlace place() {
    const uint32_t bytes = 1 + below(6);
    const uint32_t tokens = 1 + below(4);
    const uint64_t stride = bytes + below(12);
    return {100 + below(60), stride * tokens + below(20), stride, 1 + below(4), tokens, bytes};
  }
  std::mt19937 random_{11};
};

TEST_F(OverlapTest, RowsOfOnePlace) {
  int shared = 0;
  for (int round = 0; round < 3000; round++) {
    StridedPlace at = place();
    at.page_stride = below(40);
    at.token_stride = below(20);
    const auto bytes = bytes_of(at);
    const bool apart = std::set<uint64_t>(bytes.begin(), bytes.end()).size() == bytes.size();
    // Never says of shared rows that they are apart; the reverse it may, for strides that no tensor has.
    EXPECT_TRUE(apart || !rows_are_disjoint(at));
    if (!apart) shared++;
  }
  EXPECT_GT(shared, 500);
}

TEST_F(OverlapTest, RowsOfTwoPlaces) {
  int apart_and_said = 0;
  int apart_only = 0;
  for (int round = 0; round < 6000; round++) {
    StridedPlace a = place();
    StridedPlace b = place();
    if (below(4) != 0) {  // as planes of one tensor
      b.page_stride = a.page_stride;
      b.pages = a.pages;
      if (below(2) == 0) b.page_tokens = a.page_tokens, b.token_stride = a.token_stride;
    }
    const auto of_a = bytes_of(a);
    const std::set<uint64_t> held(of_a.begin(), of_a.end());
    bool apart = true;
    for (const uint64_t byte : bytes_of(b)) apart &= held.count(byte) == 0;
    if (places_are_disjoint(a, b)) {
      ASSERT_TRUE(apart) << "round " << round;
      apart_and_said++;
    } else if (apart) {
      apart_only++;
    }
    ASSERT_EQ(places_are_disjoint(a, b), places_are_disjoint(b, a)) << "round " << round;
  }
  EXPECT_GT(apart_and_said, apart_only) << "it sees through most of what is apart";
}

TEST_F(OverlapTest, WhatTensorsAreIsToldApart) {
  const StridedPlace nhd_k{0, 2 * 4 * 16, 16, 8, 4, 16};  // [pages, 2, tokens, row]
  const StridedPlace nhd_v{64, 2 * 4 * 16, 16, 8, 4, 16};
  EXPECT_TRUE(places_are_disjoint(nhd_k, nhd_v));
  const StridedPlace head_0{0, 4 * 2 * 8, 8, 8, 4, 8};  // [pages, heads, tokens, head]
  const StridedPlace head_1{32, 4 * 2 * 8, 8, 8, 4, 8};
  EXPECT_TRUE(places_are_disjoint(head_0, head_1));
  const StridedPlace row_k{0, 4 * 48, 48, 8, 4, 16};  // [pages, tokens, (k, v, more)]
  const StridedPlace row_v{16, 4 * 48, 48, 8, 4, 16};
  EXPECT_TRUE(places_are_disjoint(row_k, row_v));
  const StridedPlace values{0, 4 * 132, 128, 8, 4, 128};  // [pages, (values of all tokens, scales of all)]
  const StridedPlace scales{512, 4 * 132, 4, 8, 4, 4};
  EXPECT_TRUE(places_are_disjoint(values, scales));
  EXPECT_FALSE(places_are_disjoint(values, {508, 4 * 132, 4, 8, 4, 4}));
  EXPECT_TRUE(share_pages_only(nhd_k, nhd_k));
  EXPECT_FALSE(share_pages_only(nhd_k, {128, 2 * 4 * 16, 16, 8, 4, 16})) << "the next page is another";
}

}  // namespace
}  // namespace dualpath
