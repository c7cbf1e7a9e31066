#include "store/evictor.h"

#include <chrono>
#include <thread>

#include "eviction_fixture.h"

namespace dualpath::store {
namespace {

class EvictorTest : public EvictionTest {
 protected:
  static constexpr uint64_t kBlockBytes = 4096 + 8192;

  static StoreOptions with_capacity(uint64_t blocks) {
    return {.create = true, .index_capacity = 5000, .capacity_bytes = blocks * kBlockBytes};
  }
  // However long a loaded machine takes.
  static bool soon(const std::function<bool()>& holds) {
    for (int i = 0; i < 10000 && !holds(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return holds();
  }
  size_t blocks_stored(const BlockStore& store, const std::vector<BlockKey>& keys) const {
    size_t count = 0;
    for (const BlockKey& key : keys) count += stored(store, key);
    return count;
  }
};

TEST_F(EvictorTest, KeepsTheStoreBelowItsCapacity) {
  const auto store = must_open(with_capacity(100));
  ASSERT_EQ(store->format().file_bytes(), kBlockBytes);
  ASSERT_TRUE(soon([&] { return store->stat().evictions.collections > 0; }));  // the first count
  const std::vector<BlockKey> keys = make_keys(300);
  for (uint32_t i = 0; i < keys.size(); ++i) {
    store_block(*store, keys[i], i);
    // A writer that leaves the collector no time goes over the capacity: it is a mark, not a wall.
    if (i % 10 == 9) {
      EXPECT_TRUE(soon([&] { return store->stat().store_bytes <= static_cast<int64_t>(100 * kBlockBytes); }));
    }
  }
  EXPECT_TRUE(soon([&] { return store->stat().store_bytes <= static_cast<int64_t>(95 * kBlockBytes); }));
  // Counted when a collection ends; the bytes go while it runs.
  EXPECT_TRUE(soon([&] { return store->stat().evictions.evicted_blocks >= 200; }));
  const StoreStatistics stat = store->stat();
  EXPECT_EQ(stat.evictions.failures, 0u);
  EXPECT_LE(blocks_stored(*store, keys), 100u);
  EXPECT_GE(blocks_stored(*store, keys), 80u);
}

TEST_F(EvictorTest, CountsWhatWasThereBefore) {
  const std::vector<BlockKey> keys = make_keys(50);
  {
    const auto store = must_open();
    for (uint32_t i = 0; i < keys.size(); ++i) {
      write_block(*store, keys[i]);
      set_age(*store, keys[i], 1000, i);
    }
  }
  const auto store = must_open(with_capacity(20));
  EXPECT_TRUE(soon([&] { return blocks_stored(*store, keys) == 18; }));  // 90 %
  EXPECT_EQ(store->longest_prefix(keys.data(), keys.size()), 18u);
}

TEST_F(EvictorTest, WaitsForWhatIsInUse) {
  const std::vector<BlockKey> keys = make_keys(30);
  const auto other = must_open();
  for (const BlockKey& key : keys) write_block(*other, key);
  ASSERT_EQ(other->acquire_prefix(keys.data(), keys.size()), 30u);
  const auto store = must_open(with_capacity(10));
  EXPECT_TRUE(soon([&] { return store->stat().evictions.pinned_blocks > 0; }));
  EXPECT_EQ(blocks_stored(*store, keys), 30u);
  other->release(keys.data(), 30, 0);
  EXPECT_TRUE(soon([&] { return blocks_stored(*store, keys) == 9; }));
}

TEST_F(EvictorTest, MakesRoomWhenTheFileSystemIsFullBefore) {
  const auto store = must_open(with_capacity(1000));
  ASSERT_TRUE(soon([&] { return store->stat().evictions.collections > 0; }));
  const std::vector<BlockKey> keys = make_keys(100);
  for (uint32_t i = 0; i < keys.size(); ++i) {
    store_block(*store, keys[i], i);
  }
  store->no_space();
  store->no_space();  // not more for a while
  EXPECT_TRUE(soon([&] { return blocks_stored(*store, keys) == 95; }));
  // Without a capacity a process has no leave to evict.
  const auto modest = must_open();
  modest->no_space();
  EXPECT_EQ(modest->stat().evictions.collections, 0u);
  EXPECT_EQ(modest->stat().capacity_bytes, 0u);
}

TEST_F(EvictorTest, RefusesACapacityOfLessThanABlock) {
  std::unique_ptr<BlockStore> store;
  const Status status =
      open_store(&store, {.create = true, .index_capacity = 10, .capacity_bytes = kBlockBytes - 1});
  ASSERT_FALSE(status.ok());
  EXPECT_STREQ(status.code, "INVALID_ARGUMENT");
  EXPECT_NE(status.message.find(std::to_string(kBlockBytes)), std::string::npos) << status.message;
}

}  // namespace
}  // namespace dualpath::store
