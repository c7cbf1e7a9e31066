#include "core/rate_link.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

namespace dualpath {
namespace {

TEST(RateLinkTest, IsBusyExactlyBytesOverRate) {
  RateLink link("snic", 50'000'000);
  EXPECT_EQ(link.reserve(1'000'000, 100), 100u + 20'000'000u);
  EXPECT_EQ(link.reserve(500'000, 200), 100u + 30'000'000u) << "behind the first";
  EXPECT_EQ(link.reserve(500'000, 50'000'000), 60'000'000u) << "an idle link starts at once";
  EXPECT_EQ(link.busy_ns(), 40'000'000u);
  EXPECT_EQ(link.bytes(), 2'000'000u);
  EXPECT_EQ(link.operations(), 3u);
}

TEST(RateLinkTest, AcceptsWorkUpToItsLookahead) {
  RateLink link("cnic", 1'000'000'000);
  EXPECT_TRUE(link.accepts(1000, 0));
  link.reserve(1'000'000, 1000);
  EXPECT_FALSE(link.accepts(1000, 999'999));
  EXPECT_TRUE(link.accepts(1000, 1'000'000));
  EXPECT_TRUE(link.accepts(link.free_at(), 0));
}

TEST(RateLinkTest, WithoutARateItOnlyCounts) {
  RateLink link("free", 0);
  EXPECT_EQ(link.reserve(1 << 30, 77), 77u);
  EXPECT_TRUE(link.accepts(0, 0));
  EXPECT_EQ(link.bytes(), uint64_t{1} << 30);
  EXPECT_EQ(link.busy_ns(), 0u);
}

TEST(RateLinkTest, LargeTransfersDoNotOverflow) {
  RateLink link("slow", 1000);
  EXPECT_EQ(link.duration_ns(uint64_t{1} << 40), 1'099'511'627'776'000'000u);
}

TEST(RateLinkTest, ConcurrentReservationsNeitherOverlapNorLeaveGaps) {
  constexpr int kThreads = 4;
  constexpr int kEach = 5000;
  RateLink link("shared", 1'000'000'000);
  std::vector<std::vector<uint64_t>> ends(kThreads);
  std::vector<std::thread> threads;
  for (auto& mine : ends) {
    threads.emplace_back([&link, &mine] {
      for (int i = 0; i < kEach; i++) mine.push_back(link.reserve(1000, 0));
    });
  }
  for (std::thread& thread : threads) thread.join();
  std::vector<bool> taken(kThreads * kEach);
  for (const auto& mine : ends) {
    uint64_t last = 0;
    for (const uint64_t end : mine) {
      ASSERT_GT(end, last);
      last = end;
      ASSERT_EQ(end % 1000, 0u);
      ASSERT_FALSE(taken.at(end / 1000 - 1));
      taken[end / 1000 - 1] = true;
    }
  }
  EXPECT_EQ(link.free_at(), uint64_t{kThreads} * kEach * 1000);
  EXPECT_EQ(link.operations(), uint64_t{kThreads} * kEach);
}

}  // namespace
}  // namespace dualpath
