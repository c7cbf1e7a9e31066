#include "uring/block_io.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <string.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <set>

#include "test/memory/shapes.h"

namespace dualpath::test {
namespace {

constexpr size_t kBytes = 5 * 4096;

class BlockIoTest : public ::testing::TestWithParam<StorageIo> {
 protected:
  BlockIoTest() {
    base_ = std::filesystem::temp_directory_path().string() + "/dualpath-uring-XXXXXX";
    if (mkdtemp(base_.data()) == nullptr) std::abort();
    directory_ = open(base_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    const Status status = BlockIo::create(GetParam(), &faults_, &io_);
    EXPECT_TRUE(status.ok()) << status.message;
  }
  ~BlockIoTest() override {
    io_.reset();
    close(directory_);
    std::error_code ignored;
    std::filesystem::remove_all(base_, ignored);
  }

  std::byte* buffer(size_t index) { return arena_->base() + index * kBytes; }

  BlockOp* prepare(bool write, const std::string& name, size_t index) {
    BlockOp* op = io_->acquire();
    if (op == nullptr) return nullptr;
    op->write = write;
    op->directory_fd = directory_;
    op->buffer = buffer(index);
    op->bytes = kBytes;
    op->index = static_cast<uint32_t>(index);
    snprintf(op->path, sizeof op->path, "%s%s", name.c_str(), write ? ".tmp" : "");
    snprintf(op->final_path, sizeof op->final_path, "%s", name.c_str());
    return op;
  }

  struct Ended {
    int error;
    size_t done;
    BlockCall call;
  };
  // The ends of `count` operations, by index.
  std::vector<Ended> finish(size_t count) {
    std::vector<Ended> ended(count, {-1, 0, BlockCall::kOpen});
    size_t seen = 0;
    for (int i = 0; seen < count && i < 10'000; i++) {
      io_->submit_and_wait(1'000'000'000);
      io_->reap([&](BlockOp* op) {
        ended.at(op->index) = {op->error, op->done, op->call};
        io_->release(op);
        seen++;
      });
    }
    EXPECT_EQ(seen, count);
    return ended;
  }
  Ended run(bool write, const std::string& name, bool direct = false) {
    BlockOp* op = prepare(write, name, 0);
    op->direct = direct;
    io_->start(op);
    return finish(1)[0];
  }

  std::string base_;
  int directory_ = -1;
  FaultPlan faults_;
  std::shared_ptr<Arena> arena_ = exact_arena((BlockIo::kMaxOps + 1) * kBytes);
  std::unique_ptr<BlockIo> io_;
};

TEST_P(BlockIoTest, WritesUnderATempNameAndReadsBack) {
  for (const bool direct : {false, true}) {
    const std::string name = direct ? "direct" : "cached";
    memset(buffer(0), 0x5a, kBytes);
    const Ended written = run(true, name, direct);
    if (direct && written.error == EINVAL) GTEST_SKIP() << "this file system has no O_DIRECT";
    EXPECT_EQ(written.error, 0) << strerror(written.error);
    EXPECT_EQ(written.done, kBytes);
    EXPECT_FALSE(std::filesystem::exists(base_ + "/" + name + ".tmp"));
    EXPECT_EQ(std::filesystem::file_size(base_ + "/" + name), kBytes);
    memset(buffer(0), 0, kBytes);
    EXPECT_EQ(run(false, name, direct).error, 0);
    for (size_t i = 0; i < kBytes; i++) ASSERT_EQ(buffer(0)[i], std::byte{0x5a});
    EXPECT_EQ(buffer(1)[0], std::byte{0xee});
  }
}

TEST_P(BlockIoTest, AReadEndsAtTheEndOfTheFileAndSaysWhere) {
  for (const bool direct : {false, true}) {
    for (const size_t bytes : {size_t{0}, size_t{1}, size_t{512}, size_t{4096}, size_t{5000}, kBytes - 1}) {
      std::filesystem::remove(base_ + "/short");
      ASSERT_EQ(run(true, "short").error, 0);
      std::filesystem::resize_file(base_ + "/short", bytes);
      const Ended ended = run(false, "short", direct);
      if (direct && ended.error == EINVAL && ended.call == BlockCall::kOpen) GTEST_SKIP() << "no O_DIRECT";
      EXPECT_EQ(ended.error, 0) << bytes << " bytes, direct " << direct << ": " << strerror(ended.error);
      EXPECT_EQ(ended.done, bytes);
    }
  }
}

TEST_P(BlockIoTest, NamesTheCallThatFailed) {
  const Ended missing = run(false, "missing");
  EXPECT_EQ(missing.error, ENOENT);
  EXPECT_EQ(missing.call, BlockCall::kOpen);
  ASSERT_EQ(run(true, "there").error, 0);
  ASSERT_EQ(symlink("there", (base_ + "/link").c_str()), 0);
  EXPECT_EQ(run(false, "link").error, ELOOP) << "a block file is never a link";
  const Ended unplaced = run(true, "nowhere/file");
  EXPECT_EQ(unplaced.error, ENOENT);
  EXPECT_EQ(unplaced.call, BlockCall::kOpen);
}

TEST_P(BlockIoTest, AFixedNumberOfOperationsAtOnce) {
  std::set<BlockOp*> ops;
  for (size_t i = 0; i < BlockIo::kMaxOps; i++) {
    BlockOp* op = prepare(true, "block" + std::to_string(i), i);
    ASSERT_NE(op, nullptr);
    ASSERT_TRUE(ops.insert(op).second);
    op->durable = i % 7 == 0;
  }
  EXPECT_EQ(io_->acquire(), nullptr);
  for (BlockOp* op : ops) io_->start(op);
  for (const Ended& ended : finish(BlockIo::kMaxOps)) EXPECT_EQ(ended.error, 0);
  EXPECT_NE(io_->acquire(), nullptr);
}

TEST_P(BlockIoTest, InjectedErrorsStrikeOnceAndRemoveTheTemp) {
  faults_.write_errno = ENOSPC;
  faults_.write_error_after = 2;
  EXPECT_EQ(run(true, "a").error, 0);
  const Ended full = run(true, "b");
  EXPECT_EQ(full.error, ENOSPC);
  EXPECT_EQ(full.call, BlockCall::kTransfer);
  EXPECT_EQ(run(true, "c").error, 0);
  for (int i = 0; i < 1000 && std::filesystem::exists(base_ + "/b.tmp"); i++) usleep(1000);
  EXPECT_FALSE(std::filesystem::exists(base_ + "/b.tmp"));
  EXPECT_FALSE(std::filesystem::exists(base_ + "/b"));
}

TEST_P(BlockIoTest, DestructionWaitsForTheKernelAndNotForTheOwner) {
  ASSERT_EQ(run(true, "file").error, 0);
  for (size_t i = 0; i < 20; i++) io_->start(prepare(false, "file", i));
  io_->submit();
  // Some have ended and are still their owner's; some are under way; one was never started.
  for (int i = 0; i < 5; i++) io_->reap([](BlockOp*) {});
  ASSERT_NE(io_->acquire(), nullptr);
  io_.reset();
  memset(buffer(0), 0, 20 * kBytes);  // nobody writes here any more
  for (size_t i = 0; i < 20 * kBytes; i++) ASSERT_EQ(buffer(0)[i], std::byte{0});
}

TEST_P(BlockIoTest, NoDescriptorIsLeftOpen) {
  const auto open_files = [] {
    size_t count = 0;
    for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) count++;
    return count;
  };
  ASSERT_EQ(run(true, "warm").error, 0);
  for (int i = 0; i < 1000 && open_files() > 10; i++) io_->reap([](BlockOp*) {});
  const size_t before = open_files();
  faults_.read_errno = EIO;
  for (int round = 0; round < 100; round++) {
    faults_.read_error_after = round % 3 == 0 ? 1 : 0;
    run(false, "warm");
    run(false, "missing");
    run(true, "more" + std::to_string(round));
  }
  size_t after = open_files();
  for (int i = 0; i < 1000 && after > before; i++) {
    io_->submit();
    usleep(1000);
    io_->reap([](BlockOp*) {});
    after = open_files();
  }
  EXPECT_LE(after, before);
}

INSTANTIATE_TEST_SUITE_P(Both, BlockIoTest, ::testing::Values(StorageIo::kUring, StorageIo::kThreadPool),
                         [](const auto& info) { return std::string(storage_io_name(info.param)); });

}  // namespace
}  // namespace dualpath::test
