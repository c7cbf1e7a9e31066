#include "core/nic_link.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <thread>
#include <vector>

#include "dualpath_ring.h"

namespace dualpath {
namespace {

constexpr uint64_t kSecond_ns = 1'000'000'000;
constexpr uint32_t kInference = DP_CLASS_INFERENCE;
constexpr uint32_t kKv = DP_CLASS_KV;

std::shared_ptr<NicLink> link_of(NicLinkOptions options) {
  std::shared_ptr<NicLink> link;
  const Status status = NicLink::create(options, &link);
  EXPECT_TRUE(status.ok()) << status.message;
  return link;
}

TEST(NicLinkTest, IsBusyExactlyBytesOverRate) {
  NicLink link("cnic", 50'000'000);
  const uint64_t first = link.enqueue(kKv, 1'000'000, 100);
  const uint64_t second = link.enqueue(kKv, 500'000, 200);
  EXPECT_EQ(link.forecast(kKv, first), 100u + 20'000'000u);
  EXPECT_EQ(link.forecast(kKv, second), 100u + 30'000'000u) << "behind the first";
  EXPECT_FALSE(link.crossed(kKv, first, 20'000'099));
  EXPECT_TRUE(link.crossed(kKv, first, 20'000'100));
  EXPECT_FALSE(link.crossed(kKv, second, 30'000'099));
  EXPECT_TRUE(link.crossed(kKv, second, 30'000'100));
  const uint64_t third = link.enqueue(kKv, 500'000, 50'000'000);
  EXPECT_EQ(link.forecast(kKv, third), 60'000'000u) << "an idle link starts at once";
  EXPECT_EQ(link.statistics(60'000'000).busy_ns, 40'000'000u);
}

TEST(NicLinkTest, InferenceOvertakesWhatKvHasQueuedButNotItsPacketOnTheWire) {
  NicLink link("cnic", 4'096'000);  // a packet a millisecond
  const uint64_t kv = link.enqueue(kKv, 40'960, 0);
  const uint64_t inference = link.enqueue(kInference, 8'192, 1'500'000);
  EXPECT_EQ(link.forecast(kInference, inference), 4'000'000u);
  EXPECT_EQ(link.forecast(kKv, kv), 12'000'000u);
  EXPECT_FALSE(link.crossed(kInference, inference, 3'999'999));
  EXPECT_TRUE(link.crossed(kInference, inference, 4'000'000));
  const auto statistics = link.statistics(4'000'000);
  EXPECT_EQ(statistics.classes[kInference].bytes, 8'192u);
  EXPECT_EQ(statistics.classes[kKv].bytes, 8'192u);
  EXPECT_EQ(statistics.classes[kKv].transfers, 1u);
}

TEST(NicLinkTest, ClassesOfOneLaneWaitForEachOther) {
  NicLinkOptions options{"flat", 4'096'000, {{{0, 64}}, {{0, 64}}, 255}, {0, 0, 0}};
  const auto link = link_of(options);
  link->enqueue(kKv, 40'960, 0);
  const uint64_t inference = link->enqueue(kInference, 4'096, 1);
  EXPECT_EQ(link->forecast(kInference, inference), 11'000'000u);
  EXPECT_EQ(link->statistics(11'000'000).classes[kInference].bytes, 4'096u);
}

TEST(NicLinkTest, AForecastIsExactWhenNothingElseComesAndNeverTooLateWhenSomethingDoes) {
  for (uint32_t seed = 0; seed < 200; seed++) {
    std::mt19937_64 random(seed);
    NicLink link("cnic", 1 + random() % 3'000'000'000);
    uint64_t now = random() % 1000;
    struct Transfer {
      uint32_t traffic_class;
      uint64_t position, forecast;
    };
    std::vector<Transfer> transfers;
    for (int i = 0; i < 20; i++) {
      const uint32_t traffic_class = random() % kTrafficClasses;
      const uint64_t position = link.enqueue(traffic_class, random() % 100'000, now);
      transfers.push_back({traffic_class, position, link.forecast(traffic_class, position)});
      if (random() % 3 == 0) now += random() % link.duration_ns(50'000);
    }
    for (const Transfer& transfer : transfers) {
      const uint64_t last = link.forecast(transfer.traffic_class, transfer.position);
      if (last == 0) continue;  // it has crossed
      EXPECT_LE(transfer.forecast, last);
    }
    // In the order of their ends, so that the link is never asked about the past.
    std::sort(transfers.begin(), transfers.end(), [&](const Transfer& a, const Transfer& b) {
      return link.forecast(a.traffic_class, a.position) < link.forecast(b.traffic_class, b.position);
    });
    for (const Transfer& transfer : transfers) {
      const uint64_t end = link.forecast(transfer.traffic_class, transfer.position);
      if (end <= now) continue;
      EXPECT_FALSE(link.crossed(transfer.traffic_class, transfer.position, end - 1)) << "seed " << seed;
      EXPECT_TRUE(link.crossed(transfer.traffic_class, transfer.position, end)) << "seed " << seed;
      now = end;
    }
  }
}

TEST(NicLinkTest, AcceptsOfEachClassWorkUpToItsLookahead) {
  NicLink link("cnic", 1'000'000'000);
  uint64_t when = 0;
  EXPECT_TRUE(link.accepts(kKv, 1000, 0, &when));
  link.enqueue(kKv, 1'000'000, 1000);
  EXPECT_FALSE(link.accepts(kKv, 1000, 999'999, &when));
  EXPECT_TRUE(link.accepts(kKv, 1000, 1'000'000, &when));
  EXPECT_FALSE(link.accepts(kKv, 1000, 500'000, &when));
  EXPECT_GE(when, 501'000u);
  EXPECT_LE(when, 501'000u + link.duration_ns(4096));
  EXPECT_TRUE(link.accepts(kKv, when, 500'000, &when));
  EXPECT_TRUE(link.accepts(kInference, 1000, 0, &when)) << "it does not wait for kv";
}

TEST(NicLinkTest, WithoutARateItOnlyCounts) {
  NicLink link("free", 0);
  const uint64_t position = link.enqueue(kKv, 1 << 30, 77);
  EXPECT_TRUE(link.crossed(kKv, position, 77));
  uint64_t when = 0;
  EXPECT_TRUE(link.accepts(kKv, 77, 0, &when));
  EXPECT_EQ(link.bytes(), 1u << 30);
  EXPECT_EQ(link.statistics(77).classes[kKv].bytes, 1u << 30);
}

TEST(NicLinkTest, AFullQueueJoinsMessagesAndLosesNoByte) {
  NicLink link("small", kSecond_ns);
  uint64_t position = 0;
  for (uint32_t i = 0; i < NicLink::kMaxMessages + 100; i++) position = link.enqueue(kKv, 10, 0);
  EXPECT_EQ(link.statistics(0).joined, 100u);
  EXPECT_EQ(link.forecast(kKv, position), 10u * (NicLink::kMaxMessages + 100));
}

TEST(NicLinkTest, RefusesAClassThatWouldNeverSend) {
  std::shared_ptr<NicLink> link;
  const Status status = NicLink::create({"cnic", 1, default_arbitration(), {1, 7, 3}}, &link);
  EXPECT_STREQ(status.code, "INVALID_ARGUMENT");
  EXPECT_NE(status.message.find("traffic class kv has virtual lane 7"), std::string::npos);
  EXPECT_FALSE(NicLink::create({"cnic", 1, {{{99, 1}}, {}, 0}, {1, 2, 3}}, &link).ok());
}

TEST(NicLinkTest, ThreadsShareALinkWithoutLosingBytes) {
  NicLink link("shared", 1'000'000'000);
  std::vector<std::thread> threads;
  for (uint32_t t = 0; t < 4; t++) {
    threads.emplace_back([&, t] {
      for (uint64_t i = 0; i < 500; i++) {
        const uint64_t position = link.enqueue(t % kTrafficClasses, 5000, i * 1000);
        link.forecast(t % kTrafficClasses, position);
        link.crossed(t % kTrafficClasses, position, i * 1000);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  const auto statistics = link.statistics(3600 * kSecond_ns);
  EXPECT_EQ(statistics.bytes, 4u * 500 * 5000);
  uint64_t crossed = 0;
  for (const auto& of_class : statistics.classes) crossed += of_class.bytes;
  EXPECT_EQ(crossed, statistics.bytes);
}

}  // namespace
}  // namespace dualpath
