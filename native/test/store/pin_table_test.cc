#include "store/pin_table.h"

#include <sys/file.h>

#include <atomic>
#include <thread>

#include "eviction_fixture.h"

namespace dualpath::store {
namespace {

TEST_F(EvictionTest, PinsCountAndEnd) {
  const auto store = must_open();
  const BlockKey key = make_keys(1)[0];
  write_block(*store, key);
  PinTables tables(store->root_fd(), root_, nullptr);
  ASSERT_TRUE(tables.refresh().ok());
  EXPECT_EQ(tables.size(), 1u);
  store->pin(key);
  store->pin(key);
  EXPECT_TRUE(tables.pinned(key));
  store->unpin(key);
  EXPECT_TRUE(tables.pinned(key));
  EXPECT_EQ(collect(*store, 0).pinned_blocks, 1u);
  store->unpin(key);
  store->unpin(key);  // once too often: nothing
  EXPECT_FALSE(tables.pinned(key));
  store->pin(key);
  EXPECT_TRUE(tables.pinned(key));
  store->unpin(key);
  EXPECT_EQ(collect(*store, 0).evicted_blocks, 1u);
}

TEST_F(EvictionTest, ATableGoesWithItsStore) {
  auto first = must_open();
  const auto second = must_open();
  EXPECT_EQ(tables().size(), 2u);
  PinTables seen(second->root_fd(), root_, nullptr);
  ASSERT_TRUE(seen.refresh().ok());
  EXPECT_EQ(seen.size(), 2u);
  first.reset();
  EXPECT_EQ(tables().size(), 1u);
  ASSERT_TRUE(seen.refresh().ok());
  EXPECT_EQ(seen.size(), 1u);
}

TEST_F(EvictionTest, PinsOfAKilledProcessHoldNothing) {
  const auto store = must_open();
  const std::vector<BlockKey> keys = make_keys(2);
  for (const BlockKey& key : keys) write_block(*store, key);
  int gate[2];
  ASSERT_EQ(pipe2(gate, O_CLOEXEC), 0);
  const pid_t child = in_child([&] {
    std::unique_ptr<BlockStore> own;
    if (!open_store(&own).ok() || own->acquire_prefix(keys.data(), 2) != 2) return 1;
    if (write(gate[1], "x", 1) != 1) return 2;
    pause();
    return 3;
  });
  char byte;
  ASSERT_EQ(read(gate[0], &byte, 1), 1);
  EXPECT_EQ(collect(*store, 0).pinned_blocks, 2u);
  EXPECT_EQ(tables().size(), 2u);
  std::vector<PinTableFile> files;
  ASSERT_TRUE(list_pin_tables(store->root_fd(), root_, &files).ok());
  EXPECT_EQ(std::count_if(files.begin(), files.end(), [](const auto& file) { return file.dead; }), 0);
  kill(child, SIGKILL);
  ASSERT_EQ(exit_status(child), 128 + SIGKILL);
  EXPECT_EQ(tables().size(), 2u);  // left behind
  files.clear();
  ASSERT_TRUE(list_pin_tables(store->root_fd(), root_, &files).ok());
  ASSERT_EQ(files.size(), 2u);
  for (const PinTableFile& file : files) EXPECT_EQ(file.dead, file.pid == static_cast<uint32_t>(child));
  EXPECT_EQ(collect(*store, 0).evicted_blocks, 2u);
  close(gate[0]);
  close(gate[1]);
}

TEST_F(EvictionTest, WithoutSharingPinsHoldWithinTheProcess) {
  must_open();
  std::filesystem::remove_all(root_ + "/hosts");
  write_text(root_ + "/hosts", "a file where the directory should be");
  std::unique_ptr<BlockStore> store;
  const Status status = open_store(&store, kOpen);
  ASSERT_TRUE(status.ok()) << status.message;
  EXPECT_FALSE(store->stat().shared);
  PinTable own;
  own.open(store->root_fd(), 1, 0);
  EXPECT_FALSE(own.shared());
  const BlockKey key = make_keys(1)[0];
  write_block(*store, key);
  own.pin(key);
  EvictionLog log;
  log.open(store->root_fd());
  EXPECT_FALSE(log.shared());
}

TEST_F(EvictionTest, FilesThatAreNoTablesAreIgnored) {
  const auto store = must_open();
  const std::string host = root_ + "/" + host_directory();
  write_text(host + "/1-0123456789abcdef.pins", "too short");
  write_text(host + "/x.pins", "");
  write_text(host + "/notes.txt", "");
  PinTables seen(store->root_fd(), root_, nullptr);
  ASSERT_TRUE(seen.refresh().ok());
  EXPECT_EQ(seen.size(), 1u);
  EXPECT_FALSE(seen.pinned(make_keys(1)[0]));
}

// The race that Dekker's algorithm closes: a look-up that finds a block pins it before the collector looks,
// or learns that it is condemned. Threads, so that TSan sees them.
TEST_F(EvictionTest, ALookUpAndACollectorNeverBothWin) {
  const auto store = must_open();
  const std::vector<BlockKey> keys = make_keys(8);
  std::atomic<bool> done{false};
  std::atomic<size_t> found{0};
  std::atomic<size_t> lost{0};
  const auto reader = [&] {
    while (!done.load()) {
      const size_t held = store->acquire_prefix(keys.data(), keys.size());
      found += held;
      for (size_t i = 0; i < held; ++i) {
        if (!stored(*store, keys[i])) ++lost;
      }
      store->release(keys.data(), held, 0);
    }
  };
  std::thread first(reader);
  std::thread second(reader);
  EvictionLog log;
  log.open(store->root_fd());
  PinTables pins(store->root_fd(), root_, nullptr);
  char path[kBlockPathBytes];
  for (int round = 0; round < 400; ++round) {
    for (const BlockKey& key : keys) {
      if (!stored(*store, key)) write_block(*store, key);
    }
    // A collector's batch, without the scan around it.
    log.announce({keys.data(), keys.size()});
    ASSERT_TRUE(pins.refresh().ok());
    for (const BlockKey& key : keys) {
      store->block_path(key, path);
      if (!pins.pinned(key)) unlinkat(store->root_fd(), path, 0);
    }
    log.settle();
  }
  for (int i = 0; i < 1000 && found.load() == 0; ++i) std::this_thread::yield();
  done = true;
  first.join();
  second.join();
  EXPECT_EQ(lost.load(), 0u);
}

TEST_F(EvictionTest, AReaderFarBehindTheLogForgetsItsIndex) {
  const auto store = must_open();
  const std::vector<BlockKey> keys = make_keys(3);
  for (const BlockKey& key : keys) {
    store_block(*store, key);
  }
  EvictionLog log;
  log.open(store->root_fd());
  const std::vector<BlockKey> others = make_keys(EvictionLog::kMaxBatch, 50000);
  log.announce(keys);
  for (const BlockKey& key : keys) unlink(block_file(*store, key).c_str());
  log.settle();
  for (uint64_t sent = 0; sent <= EvictionLog::kEntries; sent += others.size()) {
    log.announce(others);
    log.settle();
  }
  EXPECT_EQ(store->longest_prefix(keys.data(), 3), 0u);
  EXPECT_EQ(store->stat().index_resets, 1u);
  EXPECT_EQ(store->stat().blocks, 0u);
}

}  // namespace
}  // namespace dualpath::store
