#include "store/key_index.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <thread>
#include <unordered_set>
#include <vector>

namespace dualpath::store {
namespace {

BlockKey key_of(uint64_t high, uint64_t low) {
  BlockKey key;
  std::memcpy(key.bytes.data(), &high, sizeof high);
  std::memcpy(key.bytes.data() + 8, &low, sizeof low);
  return key;
}

std::vector<BlockKey> random_keys(size_t count, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<BlockKey> keys(count);
  for (BlockKey& key : keys) key = key_of(random(), random());
  return keys;
}

// Few keys whose searches all start at a handful of slots, so that clusters wrap around and removals
// shift back across them.
TEST(KeyIndex, BehavesLikeASetWhenSearchesCollide) {
  std::mt19937_64 random(1);
  for (const size_t capacity : {1u, 2u, 5u, 11u, 100u}) {
    KeyIndex index(capacity);
    std::unordered_set<BlockKey> model;
    for (int step = 0; step < 20000; ++step) {
      const BlockKey key = key_of(1 + random() % (capacity + 2), UINT64_MAX - random() % 3);
      if (random() % 2 == 0) {
        const auto expected = model.contains(key)        ? KeyIndex::Insert::kPresent
                              : model.size() == capacity ? KeyIndex::Insert::kFull
                                                         : KeyIndex::Insert::kAdded;
        ASSERT_EQ(index.insert(key), expected);
        if (expected == KeyIndex::Insert::kAdded) model.insert(key);
      } else {
        ASSERT_EQ(index.erase(key), model.erase(key) == 1);
      }
      ASSERT_EQ(index.size(), model.size());
      const BlockKey other = key_of(1 + random() % (capacity + 2), UINT64_MAX - random() % 3);
      ASSERT_EQ(index.contains(other), model.contains(other));
    }
  }
}

TEST(KeyIndex, TakesItsWholeCapacityAndNoMore) {
  for (const size_t capacity : {1u, 3u, 7u, 4095u, 4096u, 20000u}) {
    KeyIndex index(capacity);
    const std::vector<BlockKey> keys = random_keys(capacity + 50, capacity);
    for (size_t i = 0; i < keys.size(); ++i) {
      ASSERT_EQ(index.insert(keys[i]), i < capacity ? KeyIndex::Insert::kAdded : KeyIndex::Insert::kFull)
          << i;
    }
    EXPECT_EQ(index.size(), capacity);
    for (size_t i = 0; i < keys.size(); ++i) ASSERT_EQ(index.contains(keys[i]), i < capacity);
    EXPECT_TRUE(index.erase(keys[0]));
    EXPECT_EQ(index.insert(keys[capacity]), KeyIndex::Insert::kAdded);
  }
}

TEST(KeyIndex, StaysSearchableWhenOneShardTakesEverything) {
  KeyIndex index(8192);
  size_t added = 0;
  for (uint64_t i = 1; i <= 8192; ++i) added += index.insert(key_of(i << 8, i)) == KeyIndex::Insert::kAdded;
  EXPECT_GE(added, 8192u / 16);
  EXPECT_LT(added, 8192u);
  EXPECT_EQ(index.size(), added);
  EXPECT_FALSE(index.contains(key_of(1, 1)));
}

TEST(KeyIndex, NeverHoldsThePrefixThatLooksEmpty) {
  KeyIndex index(16);
  EXPECT_EQ(index.insert(BlockKey{}), KeyIndex::Insert::kFull);
  EXPECT_FALSE(index.contains(BlockKey{}));
  EXPECT_FALSE(index.erase(BlockKey{}));
  EXPECT_EQ(index.size(), 0u);
}

TEST(KeyIndex, KeepsEveryKeyWhenThreadsChangeItAtOnce) {
  constexpr size_t kThreads = 4;
  constexpr size_t kKeys = 4000;
  const std::vector<BlockKey> keys = random_keys(kThreads * kKeys, 5);
  KeyIndex index(keys.size());
  std::vector<std::thread> threads;
  for (size_t t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (size_t i = t; i < keys.size(); i += kThreads) {
        index.insert(keys[i]);
        index.contains(keys[keys.size() - 1 - i]);
        if (i % 3 == 0) index.erase(keys[i]);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  size_t expected = 0;
  for (size_t i = 0; i < keys.size(); ++i) {
    ASSERT_EQ(index.contains(keys[i]), i % 3 != 0);
    expected += i % 3 != 0;
  }
  EXPECT_EQ(index.size(), expected);
}

}  // namespace
}  // namespace dualpath::store
