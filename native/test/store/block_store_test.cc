#include "store/block_store.h"

#include <sys/stat.h>

#include <atomic>
#include <ctime>
#include <set>
#include <thread>

#include "store_fixture.h"

namespace dualpath::store {
namespace {

TEST_F(StoreTest, FindsWhatIsPublishedAndServesIt) {
  const auto store = must_open();
  const std::vector<BlockKey> keys = make_keys(6);
  EXPECT_EQ(store->longest_prefix(keys.data(), keys.size()), 0u);
  for (size_t i = 0; i < 4; ++i) {
    store_block(*store, keys[i]);
  }
  EXPECT_EQ(store->longest_prefix(keys.data(), keys.size()), 4u);
  EXPECT_EQ(store->longest_prefix(keys.data(), 2), 2u);
  EXPECT_EQ(store->longest_prefix(keys.data(), 0), 0u);
  EXPECT_EQ(store->longest_prefix(keys.data() + 4, 2), 0u);
  for (size_t i = 0; i < 4; ++i) EXPECT_TRUE(read_block(*store, keys[i]).ok());
  const StoreStatistics stat = store->stat();
  EXPECT_EQ(stat.blocks, 4u);
  EXPECT_EQ(stat.bytes, 4 * store->format().file_bytes());
  EXPECT_EQ(stat.published, 4u);
  EXPECT_EQ(stat.probes, 3u);  // one for each look-up that met a missing key
  EXPECT_EQ(stat.probe_hits, 0u);
}

TEST_F(StoreTest, StopsAtTheFirstGap) {
  const auto store = must_open();
  const std::vector<BlockKey> keys = make_keys(5);
  for (const size_t i : {0u, 1u, 3u, 4u}) {
    store_block(*store, keys[i]);
  }
  EXPECT_EQ(store->longest_prefix(keys.data(), keys.size()), 2u);
  EXPECT_EQ(store->stat().probes, 1u);
}

TEST_F(StoreTest, HoldsTheRootOfItsIdentityAndSalt) {
  std::unique_ptr<BlockStore> store;
  const std::vector<uint8_t> salt{1, 2, 3};
  ASSERT_TRUE(BlockStore::open(root_, make_format(), salt, kCreate, &store).ok());
  BlockKey root;
  ASSERT_TRUE(chain_root(kIdentity, salt, &root).ok());
  EXPECT_EQ(store->root_key(), root);
  EXPECT_NE(must_open()->root_key(), root);  // another namespace may share the directory
  EXPECT_EQ(read_text(root_ + "/store.manifest").find("\x01\x02\x03"), std::string::npos);
}

TEST_F(StoreTest, NamesBlocksByKeyAndTempsByWriter) {
  const auto store = must_open();
  const BlockKey key = make_keys(1)[0];
  char path[kBlockPathBytes];
  store->block_path(key, path);
  EXPECT_EQ(std::string(path), "blocks/" + key.to_hex().substr(0, 2) + "/" + key.to_hex() + ".kvb");
  store->temp_path(path);
  EXPECT_TRUE(std::string(path).starts_with("tmp/" + std::to_string(getpid()) + "-")) << path;
}

TEST_F(StoreTest, GivesEveryWriterItsOwnTempName) {
  const auto first = must_open();
  const auto second = must_open();
  constexpr size_t kNames = 500;
  std::vector<std::string> names(4 * kNames);
  std::vector<std::thread> threads;
  for (size_t t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (size_t i = 0; i < kNames; ++i) {
        char path[kBlockPathBytes];
        (t % 2 == 0 ? first : second)->temp_path(path);
        names[t * kNames + i] = path;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(std::set<std::string>(names.begin(), names.end()).size(), names.size());
}

TEST_F(StoreTest, SeesTheBlocksOfAnotherStoreOnTheSameDirectory) {
  const auto writer = must_open();
  const auto reader = must_open();
  const std::vector<BlockKey> keys = make_keys(5);
  for (size_t i = 0; i < 4; ++i) {
    store_block(*writer, keys[i]);
  }
  EXPECT_EQ(reader->longest_prefix(keys.data(), keys.size()), 4u);
  EXPECT_EQ(reader->stat().probes, 5u);
  EXPECT_EQ(reader->stat().probe_hits, 4u);
  EXPECT_EQ(reader->longest_prefix(keys.data(), keys.size()), 4u);
  EXPECT_EQ(reader->stat().probes, 6u);  // the four are known now
  EXPECT_TRUE(read_block(*reader, keys[3]).ok());
}

TEST_F(StoreTest, FindsItsBlocksAgainWhenOpenedAgain) {
  const std::vector<BlockKey> keys = make_keys(300);
  {
    const auto store = must_open();
    for (const BlockKey& key : keys) write_block(*store, key);
  }
  const auto store = must_open(kOpen);
  EXPECT_EQ(store->stat().blocks, 300u);
  EXPECT_EQ(store->longest_prefix(keys.data(), keys.size()), 300u);
  EXPECT_EQ(store->stat().probes, 0u);
}

TEST_F(StoreTest, SkipsAndCountsWhatIsNotNamedLikeABlock) {
  const BlockKey key = make_keys(1)[0];
  {
    const auto store = must_open();
    write_block(*store, key);
    const std::string place = block_file(*store, key);
    const std::string directory = place.substr(0, place.rfind('/') + 1);
    std::string elsewhere = key.to_hex();
    elsewhere[0] = elsewhere[0] == '0' ? '1' : '0';  // belongs into another directory
    for (const std::string& name :
         {std::string("README"), key.to_hex(), elsewhere + ".kvb", std::string(".kvb")}) {
      write_text(directory + name, "x");
    }
  }
  const auto store = must_open();
  EXPECT_EQ(store->stat().blocks, 1u);
  EXPECT_EQ(store->stat().foreign_names, 4u);
}

TEST_F(StoreTest, ProbesForWhatAFullIndexCannotHold) {
  const auto store = must_open({.create = true, .index_capacity = 3});
  const std::vector<BlockKey> keys = make_keys(6);
  for (size_t i = 0; i < 5; ++i) {
    store_block(*store, keys[i]);
  }
  EXPECT_EQ(store->stat().blocks, 3u);
  EXPECT_EQ(store->stat().index_capacity, 3u);
  EXPECT_EQ(store->stat().index_overflows, 2u);
  EXPECT_EQ(store->longest_prefix(keys.data(), keys.size()), 5u);
  EXPECT_EQ(store->stat().probes, 3u);
  EXPECT_EQ(store->stat().probe_hits, 2u);
  const auto again = must_open({.create = false, .index_capacity = 2});
  EXPECT_EQ(again->stat().blocks, 2u);
  EXPECT_EQ(again->stat().index_overflows, 3u);
  EXPECT_EQ(again->longest_prefix(keys.data(), keys.size()), 5u);
}

TEST_F(StoreTest, ForgetsABlockThatVanished) {
  const auto store = must_open();
  const std::vector<BlockKey> keys = make_keys(2);
  for (const BlockKey& key : keys) {
    store_block(*store, key);
  }
  ASSERT_EQ(unlink(block_file(*store, keys[1]).c_str()), 0);
  EXPECT_EQ(store->longest_prefix(keys.data(), 2), 2u);  // the index is a hint
  store->forget(keys[1]);
  EXPECT_EQ(store->longest_prefix(keys.data(), 2), 1u);
  EXPECT_EQ(store->stat().forgotten, 1u);
  EXPECT_EQ(store->stat().blocks, 1u);
}

TEST_F(StoreTest, TakesABadBlockOutOfServiceAndItsRewriteIn) {
  const auto store = must_open();
  const BlockKey key = make_keys(1)[0];
  store_block(*store, key);
  std::string spoiled = read_text(block_file(*store, key));
  spoiled[5000] ^= 1;
  write_text(block_file(*store, key), spoiled);
  EXPECT_EQ(read_block(*store, key).fault, BlockFault::kLayerCorrupt);

  ASSERT_TRUE(store->quarantine(key).ok());
  EXPECT_EQ(store->longest_prefix(&key, 1), 0u);
  EXPECT_EQ(read_text(root_ + "/bad/" + key.to_hex() + ".kvb"), spoiled);
  EXPECT_EQ(must_open()->longest_prefix(&key, 1), 0u);

  store_block(*store, key);
  EXPECT_EQ(store->longest_prefix(&key, 1), 1u);
  EXPECT_TRUE(read_block(*store, key).ok());
  EXPECT_EQ(store->stat().quarantined, 1u);
  EXPECT_EQ(store->stat().quarantine_unlinked, 0u);
}

TEST_F(StoreTest, QuarantineOfAVanishedBlockIsFine) {
  const auto store = must_open();
  const BlockKey key = make_keys(1)[0];
  store->publish(key, store->settled_position());
  EXPECT_TRUE(store->quarantine(key).ok());
  EXPECT_EQ(store->longest_prefix(&key, 1), 0u);
  EXPECT_EQ(store->stat().quarantined, 0u);
}

TEST_F(StoreTest, UnlinksBadBlocksOnceTheQuarantineIsFull) {
  const StoreOptions options{.create = true, .index_capacity = 100, .quarantine_capacity = 2};
  const std::vector<BlockKey> keys = make_keys(4);
  {
    const auto store = must_open(options);
    for (const BlockKey& key : keys) write_block(*store, key);
    for (size_t i = 0; i < 3; ++i) ASSERT_TRUE(store->quarantine(keys[i]).ok());
    EXPECT_EQ(store->stat().quarantined, 3u);
    EXPECT_EQ(store->stat().quarantine_unlinked, 1u);
  }
  const auto store = must_open(options);  // what is in bad/ counts after a restart too
  ASSERT_TRUE(store->quarantine(keys[3]).ok());
  EXPECT_EQ(store->stat().quarantine_unlinked, 1u);
  EXPECT_EQ(entries(root_ + "/bad"), 2u);
  EXPECT_EQ(must_open()->stat().blocks, 0u);
}

TEST_F(StoreTest, QuarantineWithoutItsDirectoryStillStopsTheBlock) {
  const auto store = must_open();
  const BlockKey key = make_keys(1)[0];
  store_block(*store, key);
  std::filesystem::remove(root_ + "/bad");
  EXPECT_TRUE(store->quarantine(key).ok());
  EXPECT_EQ(store->longest_prefix(&key, 1), 0u);
  EXPECT_EQ(store->stat().quarantine_unlinked, 1u);
}

TEST_F(StoreTest, QuarantineThatFailsNamesThePath) {
  const auto store = must_open();
  const BlockKey key = make_keys(1)[0];
  std::filesystem::create_directory(root_ + "/bad/" + key.to_hex() + ".kvb");
  std::filesystem::create_directories(block_file(*store, key) + "/inside");
  std::filesystem::create_directories(root_ + "/bad/" + key.to_hex() + ".kvb/inside");
  const Status status = store->quarantine(key);
  ASSERT_FALSE(status.ok());
  EXPECT_STREQ(status.code, "STORAGE_IO");
  EXPECT_EQ(status.sys_errno, EISDIR);
  EXPECT_NE(status.message.find(block_file(*store, key)), std::string::npos) << status.message;
}

TEST_F(StoreTest, RemovesOldLeftoversOfDeadWritersOnly) {
  const std::string old_temp = "tmp/4194304-0123456789abcdef-0000000000000007.tmp";
  const std::string new_temp = "tmp/77-0123456789abcdef-0000000000000008.tmp";
  const std::vector<std::string> not_temps{"tmp/notes.txt",
                                           "tmp/x-0123456789abcdef-0000000000000007.tmp",
                                           "tmp/1-0123456789abcdef-000000000000000.tmp",
                                           "tmp/1-0123456789abcde-f0000000000000007.tmp",
                                           "tmp/12345678901-0123456789abcdef-0000000000000007.tmp",
                                           "tmp/1-0123456789ABCDEF-0000000000000007.tmp",
                                           "tmp/1-0123456789abcdef-0000000000000007"};
  must_open();
  const time_t now = time(nullptr);
  const auto put = [&](const std::string& name, time_t age_s) {
    write_text(root_ + "/" + name, "half a block");
    const timespec times[2] = {{now - age_s, 0}, {now - age_s, 0}};
    ASSERT_EQ(utimensat(AT_FDCWD, (root_ + "/" + name).c_str(), times, 0), 0);
  };
  put(old_temp, 3700);
  put(new_temp, 3500);
  for (const std::string& name : not_temps) put(name, 7200);
  const auto store = must_open();
  EXPECT_EQ(store->stat().stale_temps_removed, 1u);
  EXPECT_EQ(store->stat().stale_temps_left, 0u);
  EXPECT_FALSE(std::filesystem::exists(root_ + "/" + old_temp));
  EXPECT_TRUE(std::filesystem::exists(root_ + "/" + new_temp));
  for (const std::string& name : not_temps) EXPECT_TRUE(std::filesystem::exists(root_ + "/" + name)) << name;
}

TEST_F(StoreTest, CountsProbesThatFail) {
  const auto store = must_open();
  const BlockKey key = make_keys(1)[0];
  const std::string directory = block_file(*store, key).substr(0, root_.size() + sizeof "/blocks/00" - 1);
  std::filesystem::remove(directory);
  write_text(directory, "a file where a directory should be");
  EXPECT_EQ(store->longest_prefix(&key, 1), 0u);
  EXPECT_EQ(store->stat().probe_errors, 1u);
  EXPECT_EQ(store->stat().last_probe_errno, static_cast<uint64_t>(ENOTDIR));
}

TEST_F(StoreTest, ServesThreadsAtOnce) {
  const auto store = must_open({.create = true, .index_capacity = 100, .quarantine_capacity = 5});
  const std::vector<BlockKey> keys = make_keys(120);
  std::atomic<size_t> ready{0};
  std::vector<std::thread> threads;
  for (size_t t = 0; t < 2; ++t) {
    threads.emplace_back([&, t] {  // both write every block: the second rename replaces the first's
      for (size_t i = 0; i < keys.size(); ++i) {
        store_block(*store, keys[i]);
        if (t == 0) ready.store(i + 1, std::memory_order_release);
      }
    });
  }
  for (size_t t = 0; t < 2; ++t) {
    threads.emplace_back([&] {
      for (size_t least = 0; least < keys.size();) {
        least = ready.load(std::memory_order_acquire);
        const size_t found = store->longest_prefix(keys.data(), keys.size());
        ASSERT_GE(found, least);
        if (found > 0) {
          ASSERT_TRUE(read_block(*store, keys[found - 1]).ok());
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(store->longest_prefix(keys.data(), keys.size()), keys.size());
  EXPECT_EQ(store->stat().blocks, 100u);

  threads.clear();
  std::atomic<size_t> failures{0};
  for (size_t t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (const BlockKey& key : keys) {
        if (!store->quarantine(key).ok()) failures.fetch_add(1);
        store->forget(key);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(failures.load(), 0u);
  EXPECT_EQ(store->stat().blocks, 0u);
  EXPECT_EQ(store->stat().quarantined, keys.size());  // each block once, whoever came first
  EXPECT_LE(entries(root_ + "/bad"), 5u);
  EXPECT_EQ(store->longest_prefix(keys.data(), keys.size()), 0u);
}

}  // namespace
}  // namespace dualpath::store
