#include "store/ages.h"

#include <sys/stat.h>

#include <ctime>

#include "eviction_fixture.h"

namespace dualpath::store {
namespace {

int64_t mtime_ns(const std::string& path) {
  struct stat info;
  if (stat(path.c_str(), &info) != 0) return -1;
  return static_cast<int64_t>(info.st_mtim.tv_sec) * 1'000'000'000 + info.st_mtim.tv_nsec;
}

TEST(Ages, AreTheIntervalsStartLessAMicrosecondABlock) {
  EXPECT_EQ(age_ns(125, 0), 120'000'000'000);
  EXPECT_EQ(age_ns(179, 3), 119'999'997'000);
  EXPECT_EQ(age_ns(125, 2, 10), 119'999'998'000);
  EXPECT_TRUE(is_age_ns(119'999'997'000, 3));
  EXPECT_FALSE(is_age_ns(119'999'997'000, 2));
  EXPECT_FALSE(is_age_ns(119'999'997'001, 3));
  EXPECT_TRUE(is_age_ns(age_ns(1'700'000'000, kMaxAgeDepth), kMaxAgeDepth));
  EXPECT_EQ(age_ns(125, kMaxAgeDepth + 5), age_ns(125, kMaxAgeDepth));
}

TEST_F(EvictionTest, PublicationAndHitsSetAges) {
  const auto store = must_open();
  const std::vector<BlockKey> keys = make_keys(5);
  const auto expect_ages = [&](int64_t least_s, int64_t most_s) {
    for (uint32_t i = 0; i < keys.size(); ++i) {
      const int64_t found_ns = mtime_ns(block_file(*store, keys[i]));
      EXPECT_TRUE(is_age_ns(found_ns, i)) << i;
      EXPECT_GE(found_ns, age_ns(least_s, i)) << i;
      EXPECT_LE(found_ns, age_ns(most_s, i)) << i;
    }
  };
  const int64_t before_s = time(nullptr);
  for (uint32_t i = 0; i < keys.size(); ++i) {
    store_block(*store, keys[i], i);
  }
  store->settle_ages();
  expect_ages(before_s, time(nullptr));
  for (uint32_t i = 0; i < keys.size(); ++i) set_age(*store, keys[i], 1000, i);
  const int64_t hit_s = time(nullptr);
  EXPECT_EQ(store->acquire_prefix(keys.data(), keys.size()), 5u);
  store->settle_ages();
  expect_ages(hit_s, time(nullptr));
  EXPECT_EQ(store->stat().ages.written, 10u);
  EXPECT_EQ(store->stat().ages.dropped, 0u);
  store->release(keys.data(), 5, 5);
}

TEST_F(EvictionTest, AHitIsWrittenOnceAnInterval) {
  const StoreOptions options{.create = true, .index_capacity = 100, .age_interval_s = 1'000'000};
  const auto store = must_open(options);
  const std::vector<BlockKey> keys = make_keys(4);
  for (const BlockKey& key : keys) write_block(*store, key);
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(store->acquire_prefix(keys.data(), 4), 4u);
    store->release(keys.data(), 4, 4);
    store->settle_ages();
  }
  EXPECT_EQ(store->stat().ages.written, 4u);
  // Another process finds them as they should be.
  const auto other = must_open(options);
  EXPECT_EQ(other->acquire_prefix(keys.data(), 4), 4u);
  other->settle_ages();
  EXPECT_EQ(other->stat().ages.written, 0u);
  // A new leaf is recent, its ancestors need not be: that must not hide them.
  for (uint32_t i = 0; i < 3; ++i) {
    const timespec times[2] = {{5, 0}, {5, 0}};
    ASSERT_EQ(utimensat(AT_FDCWD, block_file(*store, keys[i]).c_str(), times, 0), 0);
  }
  const auto third = must_open(options);
  third->publish(keys[3], third->settled_position(), 3);
  third->settle_ages();
  third->release(keys.data(), 0, 4);
  third->settle_ages();
  for (uint32_t i = 1; i < 4; ++i) {
    EXPECT_GT(mtime_ns(block_file(*store, keys[i - 1])), mtime_ns(block_file(*store, keys[i])));
  }
}

TEST_F(EvictionTest, AClockThatIsAheadIsNotSetBack) {
  const auto store = must_open();
  const BlockKey key = make_keys(1)[0];
  write_block(*store, key);
  const int64_t later = time(nullptr) / kAgeInterval_s + 10;
  set_age(*store, key, later, 0);
  store->acquire_prefix(&key, 1);
  store->settle_ages();
  EXPECT_EQ(mtime_ns(block_file(*store, key)), later * kInterval_ns);
}

TEST_F(EvictionTest, AFullQueueDropsAndCounts) {
  const auto store = must_open();
  const std::vector<BlockKey> keys = make_keys(AgeWriter::kQueuedKeys + 1);
  AgeWriter ages(store->root_fd(), kBlocks, kAgeInterval_s);
  ages.hit(keys.data(), keys.size());
  EXPECT_EQ(ages.statistics().dropped, keys.size());
  ages.hit(keys.data(), 10);  // none of them is stored: the first ends the run
  ages.drain();
  EXPECT_EQ(ages.statistics().written, 0u);
}

TEST_F(EvictionTest, ClosingWritesWhatIsQueued) {
  const std::vector<BlockKey> keys = make_keys(20);
  for (int round = 0; round < 3; ++round) {
    const auto store = must_open();
    for (uint32_t i = 0; i < keys.size(); ++i) {
      store_block(*store, keys[i], i);
    }
  }
  const auto store = must_open();
  for (uint32_t i = 0; i < keys.size(); ++i) EXPECT_TRUE(is_age_ns(mtime_ns(block_file(*store, keys[i])), i));
}

}  // namespace
}  // namespace dualpath::store
