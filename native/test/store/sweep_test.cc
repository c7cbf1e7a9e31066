#include "store/sweep.h"

#include <ctime>

#include "eviction_fixture.h"
#include "store/store_directory.h"

namespace dualpath::store {
namespace {

class SweepTest : public EvictionTest {
 protected:
  SweepResult sweep(const SweepOptions& options = {}) const {
    StoreRoot root;
    Status status = StoreRoot::open(root_, &root);
    SweepResult result;
    ToolProgress progress;
    if (status.ok()) status = sweep_store(root, options, progress, &result);
    if (!status.ok()) throw std::runtime_error(status.message);
    return result;
  }

  void kill_a_writer() const {
    const pid_t child = in_child([&] {
      std::unique_ptr<BlockStore> own;
      if (!open_store(&own).ok()) return 1;
      char temp[kBlockPathBytes];
      for (int i = 0; i < 3; ++i) {
        own->temp_path(temp);
        write_text(root_ + "/" + temp, "half a block");
      }
      kill(getpid(), SIGKILL);
      return 2;
    });
    if (exit_status(child) != 128 + SIGKILL) std::abort();
  }
};

TEST_F(SweepTest, RemovesAtOnceWhatAKilledProcessLeft) {
  const auto store = must_open();
  char temp[kBlockPathBytes];
  store->temp_path(temp);
  write_text(root_ + "/" + temp, "a block that is being written");
  kill_a_writer();
  EXPECT_EQ(entries(root_ + "/tmp"), 4u);
  EXPECT_EQ(tables().size(), 2u);
  SweepOptions options;
  options.dry_run = true;
  EXPECT_EQ(sweep(options).temps.files, 3u);
  EXPECT_EQ(entries(root_ + "/tmp"), 4u);
  const SweepResult result = sweep();
  EXPECT_EQ(result.temps.files, 3u);
  EXPECT_EQ(result.temps.bytes, 36u);
  EXPECT_EQ(result.temps_left.files, 1u);
  EXPECT_EQ(result.tables.files, 1u);
  EXPECT_EQ(result.failed, 0u);
  EXPECT_TRUE(std::filesystem::exists(root_ + "/" + temp));
  EXPECT_EQ(tables().size(), 1u);
  EXPECT_EQ(sweep().temps.files + sweep().tables.files, 0u);
}

TEST_F(SweepTest, OfAWriterNobodyKnowsOnlyWhatIsOld) {
  must_open();
  const std::string name = root_ + "/tmp/77-0123456789abcdef-0000000000000008.tmp";
  write_text(name, "x");
  EXPECT_EQ(sweep().temps_left.files, 1u);
  const timespec old[2] = {{1, 0}, {1, 0}};
  ASSERT_EQ(utimensat(AT_FDCWD, name.c_str(), old, 0), 0);
  EXPECT_EQ(sweep().temps.files, 1u);
}

TEST_F(SweepTest, RemovesTrashWhateverIsInIt) {
  must_open({.create = true, .namespace_name = "a", .index_capacity = 10});
  std::filesystem::create_directories(root_ + "/trash/b-0/00");
  write_text(root_ + "/trash/b-0/00/block", "1234");
  write_text(root_ + "/trash/b-0/notes", "12");
  std::filesystem::create_symlink(base_, root_ + "/trash/link");
  const SweepResult result = sweep();
  EXPECT_EQ(result.failed, 0u);
  EXPECT_EQ(result.trash.files, 3u);
  EXPECT_EQ(entries(root_ + "/trash"), 0u);
  EXPECT_TRUE(std::filesystem::exists(root_ + "/namespaces/a/00"));
  EXPECT_TRUE(std::filesystem::exists(base_));
}

TEST_F(SweepTest, KeepsYoungQuarantinedBlocksUnlessToldOtherwise) {
  const auto store = must_open();
  const BlockKey key = make_keys(1)[0];
  write_block(*store, key);
  ASSERT_TRUE(store->quarantine(key).ok());
  write_text(root_ + "/bad/notes.txt", "about it");
  EXPECT_EQ(sweep().quarantined.files, 0u);
  SweepOptions options;
  options.all_quarantined = true;
  EXPECT_EQ(sweep(options).quarantined.files, 1u);
  EXPECT_EQ(entries(root_ + "/bad"), 1u);
}

TEST_F(SweepTest, ForgetsKernelsThatHaveStopped) {
  must_open();
  const std::string host = root_ + "/hosts/00000000-0000-0000-0000-000000000000";
  std::filesystem::create_directories(host);
  write_text(host + "/7-0123456789abcdef.pins", "");
  write_text(host + "/evictions", "");
  EXPECT_EQ(sweep().tables.files, 1u);
  EXPECT_FALSE(std::filesystem::exists(host));
  EXPECT_TRUE(std::filesystem::exists(root_ + "/" + host_directory() + "/evictions"));
}

TEST_F(SweepTest, NeedsAStore) {
  StoreRoot root;
  EXPECT_STREQ(StoreRoot::open(root_, &root).code, "STORAGE_IO");
  std::filesystem::create_directory(root_);
  EXPECT_STREQ(StoreRoot::open(root_, &root).code, "STORE_MISMATCH");
  write_text(root_ + "/store.manifest", "dualpath block store\nversion=2\n");
  const Status newer = StoreRoot::open(root_, &root);
  EXPECT_STREQ(newer.code, "STORE_MISMATCH");
  EXPECT_NE(newer.message.find("format version '2'"), std::string::npos);
}

}  // namespace
}  // namespace dualpath::store
