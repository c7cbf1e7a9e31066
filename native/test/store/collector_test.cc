#include "store/collector.h"

#include <algorithm>
#include <atomic>
#include <map>
#include <random>
#include <thread>

#include "eviction_fixture.h"

namespace dualpath::store {
namespace {

TEST_F(EvictionTest, TakesTheOldestLeafFirstAndStopsAtTheTarget) {
  const auto store = must_open();
  const std::vector<BlockKey> keys = make_keys(10);
  for (uint32_t i = 0; i < keys.size(); ++i) {
    write_block(*store, keys[i]);
    set_age(*store, keys[i], 1000, i);  // one chain, used in one interval
  }
  const CollectResult result = collect(*store, 6);
  EXPECT_EQ(result.blocks, 10u);
  EXPECT_EQ(result.evicted_blocks, 4u);
  EXPECT_EQ(result.evicted_bytes, 4 * store->format().file_bytes());
  EXPECT_FALSE(result.busy);
  for (size_t i = 0; i < keys.size(); ++i) EXPECT_EQ(stored(*store, keys[i]), i < 6) << i;
  EXPECT_EQ(store->longest_prefix(keys.data(), keys.size()), 6u);
}

TEST_F(EvictionTest, LeavesAloneWhatIsSmallEnough) {
  const auto store = must_open();
  for (const BlockKey& key : make_keys(5)) write_block(*store, key);
  EXPECT_EQ(collect(*store, 5).evicted_blocks, 0u);
  CollectOptions options;
  options.trigger_bytes = 5 * store->format().file_bytes();
  EXPECT_EQ(collect(*store, 3, options).evicted_blocks, 0u);  // not above the mark that starts it
  options = {};
  options.dry_run = true;
  EXPECT_EQ(collect(*store, 3, options).evicted_blocks, 2u);
  EXPECT_EQ(collect(*store, 5).blocks, 5u);
}

class CollectorModelTest : public EvictionTest {
 protected:
  struct Block {
    BlockKey key;
    int64_t age_ns;
    bool pinned;
    uint32_t chain;
    uint32_t depth;
  };

  uint32_t pick(uint32_t below) { return static_cast<uint32_t>(random_() % below); }

  // Chains of blocks, oldest first; no two have one age, so that there is one right order.
  std::vector<Block> write_chains(BlockStore& store) {
    std::vector<Block> blocks;
    std::set<int64_t> taken;
    for (uint32_t chain = 0; chain < 8; ++chain) {
      const std::vector<BlockKey> keys = make_keys(1 + pick(12), 1000 * chain + 1);
      int64_t interval = 100000 + pick(6);
      for (uint32_t depth = 0; depth < keys.size(); ++depth) {
        if (pick(4) == 0) interval -= pick(3);  // children may have been used less lately
        int64_t age_ns = interval * kInterval_ns - int64_t{depth} * 1000;
        while (!taken.insert(age_ns).second) age_ns -= 1;
        write_block(store, keys[depth]);
        const timespec time{age_ns / 1'000'000'000, age_ns % 1'000'000'000};
        const timespec times[2] = {time, time};
        EXPECT_EQ(utimensat(AT_FDCWD, block_file(store, keys[depth]).c_str(), times, 0), 0);
        blocks.push_back({keys[depth], age_ns, pick(5) == 0, chain, depth});
      }
    }
    std::sort(blocks.begin(), blocks.end(),
              [](const Block& a, const Block& b) { return a.age_ns < b.age_ns; });
    return blocks;
  }

 private:
  std::mt19937 random_{20240601};
};

// Any chains, ages, pins and batches: what goes is what a plain sort says, and no block goes before one
// that follows it in its chain.
TEST_F(CollectorModelTest, AgreesWithAPlainSort) {
  for (int round = 0; round < 12; ++round) {
    std::filesystem::remove_all(root_);
    const auto store = must_open();
    const std::vector<Block> blocks = write_chains(*store);
    for (const Block& block : blocks) {
      if (block.pinned) store->pin(block.key);
    }
    const size_t left = pick(static_cast<uint32_t>(blocks.size()) + 1);
    CollectOptions options;
    options.candidates = 1 + pick(40);  // fewer than there are: the store is scanned again
    const CollectResult result = collect(*store, left, options);

    std::map<uint32_t, uint32_t> shallowest_gone;
    size_t present = blocks.size();
    for (const Block& block : blocks) {
      // With few candidates, all of them pinned, a collection ends early: it never takes another than the
      // oldest unpinned ones.
      const bool gone = !stored(*store, block.key);
      if (gone) {
        EXPECT_FALSE(block.pinned);
        --present;
      } else if (!block.pinned) {
        break;
      }
    }
    EXPECT_EQ(blocks.size() - present, result.evicted_blocks) << "something younger went";
    EXPECT_GE(present, left);
    for (const Block& block : blocks) {
      if (stored(*store, block.key) || shallowest_gone.count(block.chain) != 0) continue;
      for (const Block& other : blocks) {
        if (other.chain != block.chain || other.depth <= block.depth || other.pinned) continue;
        EXPECT_FALSE(stored(*store, other.key)) << "an orphan in chain " << block.chain;
      }
      shallowest_gone[block.chain] = block.depth;
    }
    for (const Block& block : blocks) {
      if (block.pinned) store->unpin(block.key);
    }
    // Nothing pinned any more, and room for all candidates: exactly as many stay as may.
    collect(*store, left);
    size_t now = 0;
    for (const Block& block : blocks) now += stored(*store, block.key);
    EXPECT_EQ(now, std::min(left, present));
  }
}

TEST_F(EvictionTest, CountsEveryNamespaceTogether) {
  const auto store = must_open();
  const auto tenant = must_open({.create = true, .namespace_name = "tenant-a", .index_capacity = 100});
  const std::vector<BlockKey> keys = make_keys(4);
  for (uint32_t i = 0; i < 4; ++i) {
    BlockStore& owner = i % 2 == 0 ? *store : *tenant;
    write_block(owner, keys[i]);
    set_age(owner, keys[i], 1000 + i, 0);
  }
  const CollectResult result = collect(*store, 1);
  EXPECT_EQ(result.blocks, 4u);
  EXPECT_EQ(result.evicted_blocks, 3u);
  EXPECT_TRUE(stored(*tenant, keys[3]));
}

TEST_F(EvictionTest, SparesWhatWasUsedSinceTheScan) {
  const auto store = must_open();
  const std::vector<BlockKey> keys = make_keys(3);
  for (uint32_t i = 0; i < 3; ++i) {
    write_block(*store, keys[i]);
    set_age(*store, keys[i], 1000 + i, 0);
  }
  CollectOptions options;
  int calls = 0;
  options.go_on = [&] {
    // One call for each directory of the scan; then comes the eviction.
    if (++calls == 257) set_age(*store, keys[0], 5000, 0);
    return true;
  };
  const CollectResult result = collect(*store, 2, options);
  EXPECT_EQ(result.changed_blocks, 1u);
  EXPECT_TRUE(stored(*store, keys[0]));
}

TEST_F(EvictionTest, StopsWhenTold) {
  const auto store = must_open();
  for (const BlockKey& key : make_keys(20)) write_block(*store, key);
  CollectOptions options;
  options.go_on = [] { return false; };
  const CollectResult result = collect(*store, 0, options);
  EXPECT_TRUE(result.stopped);
  EXPECT_EQ(result.evicted_blocks, 0u);
}

TEST_F(EvictionTest, TwoProcessesCollectingTakeTurns) {
  const auto store = must_open();
  const std::vector<BlockKey> keys = make_keys(400);
  for (uint32_t i = 0; i < keys.size(); ++i) {
    write_block(*store, keys[i]);
    set_age(*store, keys[i], 1000, i);
  }
  const auto other = [&] {
    return in_child([&] {
      CollectOptions options;
      options.wait = true;
      const CollectResult result = collect(*store, 100, options);
      return result.busy || result.failed_blocks != 0 ? 1 : 0;
    });
  };
  const pid_t first = other();
  const pid_t second = other();
  EXPECT_EQ(exit_status(first), 0);
  EXPECT_EQ(exit_status(second), 0);
  for (size_t i = 0; i < keys.size(); ++i) EXPECT_EQ(stored(*store, keys[i]), i < 100) << i;
}

TEST_F(EvictionTest, SaysWhenAnotherIsAtWork) {
  const auto store = must_open();
  for (const BlockKey& key : make_keys(5)) write_block(*store, key);
  CollectOptions options;
  bool busy = false;
  options.go_on = [&] {
    busy = collect(*store, 0).busy;  // while this one holds the lock
    return false;
  };
  EXPECT_TRUE(collect(*store, 0, options).stopped);
  EXPECT_TRUE(busy);
  EXPECT_EQ(collect(*store, 0).evicted_blocks, 5u);
}

TEST_F(EvictionTest, ACollectorThatDiesLeavesNothingLocked) {
  const auto store = must_open();
  const std::vector<BlockKey> keys = make_keys(50);
  for (const BlockKey& key : keys) write_block(*store, key);
  const pid_t child = in_child([&] {
    EvictionLog log;
    log.open(store->root_fd());
    CollectOptions options;
    int calls = 0;
    options.go_on = [&] {
      if (++calls < 200) return true;
      log.announce({keys.data(), 3});  // condemned, and never settled
      kill(getpid(), SIGKILL);
      return true;
    };
    CollectResult result;
    Collector(store->root_fd(), root_, &log, nullptr).collect(options, &result);
    return 1;
  });
  ASSERT_EQ(exit_status(child), 128 + SIGKILL);
  // What it had condemned is a miss for the moment; the next collector puts that right.
  EXPECT_EQ(store->longest_prefix(keys.data(), keys.size()), 0u);
  EXPECT_EQ(collect(*store, 50).evicted_blocks, 0u);
  EXPECT_EQ(store->longest_prefix(keys.data(), keys.size()), 50u);
}

TEST_F(EvictionTest, AStoreOpenedWhileBlocksAreCondemnedDoesNotTakeThemForThere) {
  const auto store = must_open();
  const std::vector<BlockKey> keys = make_keys(4);
  for (const BlockKey& key : keys) write_block(*store, key);
  EvictionLog log;  // of a collector that has read the pins and is about to unlink
  log.open(store->root_fd());
  log.announce({keys.data() + 2, 2});
  const auto late = must_open();
  EXPECT_EQ(late->acquire_prefix(keys.data(), keys.size()), 2u);
  log.settle();  // they stay after all
  EXPECT_EQ(late->longest_prefix(keys.data(), keys.size()), 4u);
}

TEST_F(EvictionTest, ABlockThatIsTakenBeforeItsWriterSaysSoIsNotTakenForThere) {
  const auto store = must_open();
  const BlockKey key = make_keys(1)[0];
  const uint64_t settled = store->settled_position();
  write_block(*store, key);
  EXPECT_EQ(collect(*store, 0).evicted_blocks, 1u);
  store->publish(key, settled);
  EXPECT_EQ(store->acquire_prefix(&key, 1), 0u);
}

// A reader in a process of its own holds what it looked up, while two collectors take all they can.
TEST_F(EvictionTest, NothingHeldByAReaderIsEvicted) {
  const auto store = must_open();
  constexpr uint32_t kChains = 20;
  constexpr size_t kBlocks = 30;
  std::vector<std::vector<BlockKey>> chains;
  for (uint32_t c = 0; c < kChains; ++c) chains.push_back(make_keys(kBlocks, 1000 * c + 1));
  const auto reader = [&](uint32_t seed) {
    std::unique_ptr<BlockStore> own;
    if (!open_store(&own).ok()) return 100;
    std::mt19937 random(seed);
    for (int round = 0; round < 300; ++round) {
      const std::vector<BlockKey>& keys = chains[random() % kChains];
      if (random() % 3 == 0) {
        for (const BlockKey& key : keys) {
          if (own->longest_prefix(&key, 1) == 1) continue;
          store_block(*own, key, static_cast<uint32_t>(&key - keys.data()));
        }
      }
      const size_t held = own->acquire_prefix(keys.data(), keys.size());
      for (size_t i = 0; i < held; ++i) {
        if (!read_block(*own, keys[i]).ok()) return 1;
      }
      own->release(keys.data(), held, held);
    }
    return 0;
  };
  const auto collector = [&] {
    std::unique_ptr<BlockStore> own;
    if (!open_store(&own).ok()) return 100;
    for (int round = 0; round < 150; ++round) collect(*own, static_cast<uint64_t>(round % 7) * 20);
    return 0;
  };
  const std::vector<pid_t> children{in_child([&] { return reader(1); }), in_child([&] { return reader(2); }),
                                    in_child(collector), in_child(collector)};
  for (const pid_t child : children) EXPECT_EQ(exit_status(child), 0);
}

}  // namespace
}  // namespace dualpath::store
