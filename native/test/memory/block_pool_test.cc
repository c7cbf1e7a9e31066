#include "memory/block_pool.h"

#include <gtest/gtest.h>

#include <random>
#include <set>

namespace dualpath {
namespace {

TEST(BlockPoolTest, GivesAllOrNothing) {
  BlockPool pool(5);
  std::vector<uint32_t> slots(6);
  EXPECT_FALSE(pool.take(6, slots.data()));
  EXPECT_EQ(pool.available(), 5u);
  EXPECT_TRUE(pool.take(5, slots.data()));
  EXPECT_EQ(std::set<uint32_t>(slots.begin(), slots.begin() + 5), (std::set<uint32_t>{0, 1, 2, 3, 4}));
  EXPECT_EQ(pool.available(), 0u);
  EXPECT_FALSE(pool.take(1, slots.data()));
  EXPECT_TRUE(pool.take(0, slots.data()));
}

TEST(BlockPoolTest, RefusesAListWithAnythingWrongInIt) {
  BlockPool pool(8);
  std::vector<uint32_t> slots(4);
  ASSERT_TRUE(pool.take(4, slots.data()));
  const std::vector<uint32_t> twice{slots[0], slots[1], slots[0]};
  EXPECT_FALSE(pool.give_back(twice.data(), 3));
  const std::vector<uint32_t> beyond{slots[0], 8};
  EXPECT_FALSE(pool.give_back(beyond.data(), 2));
  uint32_t never_taken = 0;
  while (std::find(slots.begin(), slots.end(), never_taken) != slots.end()) never_taken++;
  const std::vector<uint32_t> free_one{slots[3], never_taken};
  EXPECT_FALSE(pool.give_back(free_one.data(), 2));
  EXPECT_EQ(pool.available(), 4u);
  EXPECT_TRUE(pool.give_back(slots.data(), 4)) << "after refusals the same list is still taken";
  EXPECT_FALSE(pool.give_back(slots.data(), 1));
  EXPECT_EQ(pool.available(), 8u);
}

TEST(BlockPoolTest, ASharedSlotIsFreeWhenTheLastHasGivenItBack) {
  BlockPool pool(4);
  std::vector<uint32_t> slots(3);
  ASSERT_TRUE(pool.take(3, slots.data()));
  ASSERT_TRUE(pool.share(slots.data(), 2));
  EXPECT_TRUE(pool.give_back(slots.data(), 3));
  EXPECT_EQ(pool.available(), 2u);
  EXPECT_FALSE(pool.give_back(slots.data(), 3)) << "the third is free";
  EXPECT_FALSE(pool.share(slots.data(), 3));
  EXPECT_TRUE(pool.give_back(slots.data(), 2)) << "a refusal has changed nothing";
  EXPECT_FALSE(pool.give_back(slots.data(), 1));
  EXPECT_EQ(pool.available(), 4u);
  const uint32_t beyond = 4;
  EXPECT_FALSE(pool.share(&beyond, 1));
}

TEST(BlockPoolTest, NeverHandsOutASlotTwice) {
  std::mt19937 random(7);
  BlockPool pool(64);
  std::vector<std::vector<uint32_t>> held;
  std::set<uint32_t> out;
  for (int round = 0; round < 5000; round++) {
    if (random() % 2 == 0) {
      std::vector<uint32_t> list(random() % 12);
      const bool fits = list.size() <= 64 - out.size();
      ASSERT_EQ(pool.take(static_cast<uint32_t>(list.size()), list.data()), fits);
      if (!fits) continue;
      for (const uint32_t slot : list) ASSERT_TRUE(slot < 64 && out.insert(slot).second);
      held.push_back(std::move(list));
    } else if (!held.empty()) {
      const size_t which = random() % held.size();
      ASSERT_TRUE(pool.give_back(held[which].data(), static_cast<uint32_t>(held[which].size())));
      for (const uint32_t slot : held[which]) out.erase(slot);
      held.erase(held.begin() + static_cast<ptrdiff_t>(which));
    }
    ASSERT_EQ(pool.available(), 64 - out.size());
  }
}

}  // namespace
}  // namespace dualpath
