// Named namespaces, and what is done to a directory that is not (only) a store's.
#include <atomic>
#include <thread>

#include "eviction_fixture.h"
#include "store/store_directory.h"
#include "store/survey.h"
#include "store/sweep.h"

namespace dualpath::store {
namespace {

const StoreOptions kTenant{.create = true, .namespace_name = "tenant-a", .index_capacity = 1000};

StoreRoot root_of(const std::string& path) {
  StoreRoot root;
  const Status status = StoreRoot::open(path, &root);
  if (!status.ok()) throw std::runtime_error(status.message);
  return root;
}

SweepResult remove_namespace(const std::string& path, const std::string& name, bool expected = true) {
  const StoreRoot root = root_of(path);
  EvictionLog log;
  log.open(root.fd());
  ToolProgress progress;
  SweepResult result;
  bool found = false;
  const Status status = delete_namespace(root, name, log, progress, &found, &result);
  EXPECT_TRUE(status.ok()) << status.message;
  EXPECT_EQ(found, expected);
  return result;
}

TEST_F(EvictionTest, NamespacesHaveTheirOwnDirectoriesAndKeys) {
  const auto plain = must_open();
  const auto tenant = must_open(kTenant);
  EXPECT_NE(plain->root_key(), tenant->root_key());
  const BlockKey key = make_keys(1)[0];
  EXPECT_EQ(block_file(*tenant, key),
            root_ + "/namespaces/tenant-a/" + key.to_hex().substr(0, 2) + "/" + key.to_hex() + ".kvb");
  store_block(*tenant, key);
  EXPECT_EQ(tenant->longest_prefix(&key, 1), 1u);
  EXPECT_EQ(plain->longest_prefix(&key, 1), 0u);
  EXPECT_TRUE(read_block(*tenant, key).ok());
  EXPECT_EQ(must_open(kTenant)->stat().blocks, 1u);
  EXPECT_EQ(must_open()->stat().blocks, 0u);
  const auto longest =
      must_open({.create = true, .namespace_name = std::string(40, 'z'), .index_capacity = 10});
  write_block(*longest, key);
  EXPECT_TRUE(read_block(*longest, key).ok());
}

TEST_F(EvictionTest, RefusesNamesThatAreNone) {
  for (const std::string& name :
       {std::string("."), std::string(".."), std::string("a/b"), std::string("-a"), std::string("A"),
        std::string(41, 'a'), std::string("a b"), std::string("_x"), std::string("a\n")}) {
    std::unique_ptr<BlockStore> store;
    const Status status = open_store(&store, {.create = true, .namespace_name = name, .index_capacity = 10});
    ASSERT_FALSE(status.ok()) << name;
    EXPECT_STREQ(status.code, "INVALID_ARGUMENT");
    EXPECT_NE(status.message.find("namespace '" + name), std::string::npos) << status.message;
  }
  EXPECT_FALSE(std::filesystem::exists(root_));
}

TEST_F(EvictionTest, ADeletedNamespaceIsAMissAtOnceAndOthersStay) {
  const auto plain = must_open();
  const auto tenant = must_open(kTenant);
  const std::vector<BlockKey> keys = make_keys(20);
  for (const BlockKey& key : keys) {
    write_block(*plain, key);
    store_block(*tenant, key);
  }
  EXPECT_EQ(tenant->acquire_prefix(keys.data(), 20), 20u);  // a deletion does not ask
  const SweepResult result = remove_namespace(root_, "tenant-a");
  EXPECT_EQ(result.trash.files, 20u);
  EXPECT_EQ(result.trash.bytes, 20 * plain->format().file_bytes());
  EXPECT_EQ(tenant->longest_prefix(keys.data(), 20), 0u);
  EXPECT_EQ(tenant->stat().index_resets, 1u);
  EXPECT_EQ(plain->longest_prefix(keys.data(), 20), 20u);
  EXPECT_EQ(entries(root_ + "/trash"), 0u);
  EXPECT_FALSE(std::filesystem::exists(root_ + "/namespaces/tenant-a"));
  tenant->release(keys.data(), 20, 20);
  remove_namespace(root_, "tenant-a", false);
  // Opened again it is empty, and the store that was open all the time sees what comes into it.
  const auto again = must_open(kTenant);
  EXPECT_EQ(again->stat().blocks, 0u);
  write_block(*again, keys[0]);
  EXPECT_EQ(tenant->longest_prefix(keys.data(), 20), 1u);
}

TEST_F(EvictionTest, ANamespaceIsDeletedWhileOthersReadAndWriteIt) {
  const auto store = must_open(kTenant);
  const std::vector<BlockKey> keys = make_keys(8);
  std::atomic<bool> done{false};
  std::atomic<size_t> wrong{0};
  std::thread reader([&] {
    while (!done.load()) {
      const size_t held = store->acquire_prefix(keys.data(), keys.size());
      for (size_t i = 0; i < held; ++i) {
        const BlockVerdict verdict = read_block(*store, keys[i]);  // truncated: the file is gone
        if (!verdict.ok() && verdict.fault != BlockFault::kTruncated) ++wrong;
      }
      store->release(keys.data(), held, held);
    }
  });
  for (int round = 0; round < 15; ++round) {
    const auto writer = must_open(kTenant);
    for (uint32_t i = 0; i < keys.size(); ++i) {
      store_block(*writer, keys[i], i);
    }
    EXPECT_EQ(remove_namespace(root_, "tenant-a").failed, 0u);
  }
  done = true;
  reader.join();
  EXPECT_EQ(wrong.load(), 0u);
  EXPECT_EQ(entries(root_ + "/trash"), 0u);
  EXPECT_EQ(store->longest_prefix(keys.data(), keys.size()), 0u);
}

TEST_F(EvictionTest, AnotherProgramsDirectoryIsLeftAlone) {
  std::filesystem::create_directories(root_ + "/src");
  write_text(root_ + "/package.json", "{}");
  for (const StoreOptions& options : {kCreate, kOpen, kTenant}) {
    std::unique_ptr<BlockStore> store;
    const Status status = open_store(&store, options);
    ASSERT_FALSE(status.ok());
    EXPECT_STREQ(status.code, "STORE_MISMATCH");
    EXPECT_NE(status.message.find("another program's"), std::string::npos) << status.message;
  }
  EXPECT_EQ(entries(root_), 2u);
  // Empty, or with what file systems put there, it is anybody's.
  std::filesystem::remove_all(root_);
  std::filesystem::create_directories(root_ + "/lost+found");
  EXPECT_EQ(must_open()->stat().blocks, 0u);
}

TEST_F(EvictionTest, ASymbolicLinkToTheStoreIsFollowedOnceWithinItNone) {
  const auto store = must_open();
  const BlockKey key = make_keys(1)[0];
  write_block(*store, key);
  const std::string real = root_;
  const std::string link = base_ + "/link";
  std::filesystem::create_directory_symlink(real, link);
  root_ = link;
  const auto linked = must_open();
  EXPECT_EQ(linked->longest_prefix(&key, 1), 1u);
  std::filesystem::remove(link);
  EXPECT_TRUE(read_block(*linked, key).ok());  // held by its descriptor
  std::filesystem::create_directory_symlink(base_ + "/nowhere", link);
  std::unique_ptr<BlockStore> none;
  const Status dangling = open_store(&none, kOpen);
  EXPECT_STREQ(dangling.code, "STORAGE_IO");
  EXPECT_NE(dangling.message.find("leads nowhere"), std::string::npos) << dangling.message;
  root_ = real;
  std::filesystem::remove_all(root_ + "/blocks/00");
  std::filesystem::create_directory_symlink(base_, root_ + "/blocks/00");
  const Status status = open_store(&none, kOpen);
  ASSERT_FALSE(status.ok());
  EXPECT_STREQ(status.code, "STORAGE_IO");
}

TEST_F(EvictionTest, OtherLayerSizesUnderOneIdentityAreRefused) {
  must_open();
  BlockFormat other;
  ASSERT_TRUE(BlockFormat::create(std::string(kIdentity), {1000, 3000, 300}, &other).ok());
  std::unique_ptr<BlockStore> store;
  const Status status = BlockStore::open(root_, other, {}, kCreate, &store);
  ASSERT_FALSE(status.ok());
  EXPECT_STREQ(status.code, "STORE_MISMATCH");
  EXPECT_NE(status.message.find("store.layers"), std::string::npos) << status.message;
  // A store made before that file was gets it from whoever opens it next.
  std::filesystem::remove(root_ + "/store.layers");
  must_open(kOpen);
  EXPECT_FALSE(std::filesystem::exists(root_ + "/store.layers"));
  must_open();
  EXPECT_EQ(root_of(root_).layer_bytes, (std::vector<uint64_t>{1000, 3000, 200}));
  for (const std::string text : {"", "x", "dualpath block layers\nversion=1\nlayer_bytes=\n",
                                 "dualpath block layers\nversion=1\nlayer_bytes=0x5\n",
                                 "dualpath block layers\nversion=1\nlayer_bytes=497x5\n",
                                 "dualpath block layers\nversion=1\nlayer_bytes=1x5,\n"}) {
    write_text(root_ + "/store.layers", text);
    StoreRoot root;
    EXPECT_STREQ(StoreRoot::open(root_, &root).code, "STORE_MISMATCH") << text;
  }
}

TEST_F(EvictionTest, SurveyCountsWhatIsThere) {
  const auto store = must_open({.create = true, .index_capacity = 100, .capacity_bytes = 1 << 30});
  const auto tenant = must_open(kTenant);
  const std::vector<BlockKey> keys = make_keys(7);
  for (size_t i = 0; i < 7; ++i) write_block(i < 5 ? *store : *tenant, keys[i]);
  set_age(*store, keys[0], 1000, 0);
  ASSERT_TRUE(store->quarantine(keys[1], BlockFault::kLayerCorrupt).ok());
  char temp[kBlockPathBytes];
  store->temp_path(temp);
  write_text(root_ + "/" + temp, "half");
  write_text(root_ + "/blocks/00/README", "x");
  ToolProgress progress;
  Survey survey;
  const Status status = survey_store(root_of(root_), progress, &survey);
  ASSERT_TRUE(status.ok()) << status.message;
  const uint64_t block_bytes = store->format().file_bytes();
  EXPECT_EQ(survey.blocks.files, 6u);
  EXPECT_EQ(survey.blocks.bytes, 6 * block_bytes);
  ASSERT_EQ(survey.namespaces.size(), 2u);
  EXPECT_EQ(survey.namespaces[1].name, "tenant-a");
  EXPECT_EQ(survey.namespaces[1].blocks.files, 2u);
  EXPECT_EQ(survey.ages.front().files, 5u);
  EXPECT_EQ(survey.ages.back().files, 1u);
  EXPECT_EQ(survey.quarantined.files, 1u);
  EXPECT_EQ(survey.temps.files, 1u);
  EXPECT_EQ(survey.foreign_names, 1u);
  ASSERT_EQ(survey.tables.size(), 2u);
  EXPECT_EQ(survey.tables[0].capacity_bytes + survey.tables[1].capacity_bytes, uint64_t{1} << 30);
  EXPECT_EQ(progress.done.load(), progress.total.load());
  EXPECT_EQ(store->stat().faults[static_cast<size_t>(BlockFault::kLayerCorrupt)], 1u);
}

}  // namespace
}  // namespace dualpath::store
