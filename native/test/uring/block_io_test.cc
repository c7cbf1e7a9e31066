#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <set>
#include <string>

#include "test/uring/block_io_fixture.h"

namespace dualpath::test {
namespace {

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

TEST_P(BlockIoTest, ShortTransfersGoOnWhereTheyStopped) {
  for (const bool direct : {false, true}) {
    faults_.short_write_bytes = 5000;  // a page at a time when direct
    faults_.short_read_bytes = 4097;
    for (size_t i = 0; i < kBytes; i++) buffer(0)[i] = static_cast<std::byte>(i * 7 + i / 4096);
    const std::vector<std::byte> sent(buffer(0), buffer(0) + kBytes);
    const std::string name = direct ? "direct" : "cached";
    const Ended written = run(true, name, direct);
    if (direct && written.error == EINVAL) GTEST_SKIP() << "this file system has no O_DIRECT";
    ASSERT_EQ(written.error, 0);
    EXPECT_EQ(written.done, kBytes);
    memset(buffer(0), 0, kBytes);
    EXPECT_EQ(run(false, name, direct).done, kBytes);
    EXPECT_TRUE(std::equal(sent.begin(), sent.end(), buffer(0)));
  }
}

TEST_P(BlockIoTest, AWriteThatFindsItsPlaceTakenLeavesWhatIsThere) {
  memset(buffer(0), 1, kBytes);
  ASSERT_EQ(run(true, "block").error, 0);
  memset(buffer(0), 2, kBytes);
  BlockOp* op = prepare(true, "block", 0);
  op->durable = true;
  io_->start(op);
  bool existed = false;
  for (bool over = false; !over;) {
    io_->submit_and_wait(1'000'000'000);
    io_->reap([&](BlockOp* ended) {
      over = true;
      existed = ended->existed;
      EXPECT_EQ(ended->error, 0);
      io_->release(ended);
    });
  }
  EXPECT_TRUE(existed);
  EXPECT_FALSE(std::filesystem::exists(base_ + "/block.tmp"));
  ASSERT_EQ(run(false, "block").error, 0);
  EXPECT_EQ(buffer(0)[0], std::byte{1});
}

TEST_P(BlockIoTest, ADurableWriteReachesAPlaceInADirectoryAndWithout) {
  std::filesystem::create_directory(base_ + "/sub");
  for (const char* name : {"top", "sub/block"}) {
    BlockOp* op = prepare(true, name, 0);
    op->durable = true;
    io_->start(op);
    EXPECT_EQ(finish(1)[0].error, 0);
    EXPECT_EQ(std::filesystem::file_size(base_ + "/" + name), kBytes);
  }
}

TEST_P(BlockIoTest, AFileSystemThatCannotRenameExclusivelyIsWrittenAllTheSame) {
  faults_.refuse_exclusive_renames = true;
  for (const bool durable : {true, false}) {
    for (size_t i = 0; i < 4; i++) {  // the first finds it out, two give the same block
      BlockOp* op = prepare(true, "block" + std::to_string(i / 2), i);
      snprintf(op->path, sizeof op->path, "%zu.tmp", i);
      op->durable = durable;
      io_->start(op);
    }
    for (const Ended& ended : finish(4)) {
      EXPECT_EQ(ended.error, 0) << strerror(ended.error) << " of call " << static_cast<int>(ended.call);
      EXPECT_EQ(ended.done, kBytes);
    }
    for (const char* name : {"block0", "block1"}) EXPECT_EQ(run(false, name).done, kBytes);
    for (const auto& entry : std::filesystem::directory_iterator(base_)) {
      EXPECT_NE(entry.path().extension(), ".tmp") << entry.path();
    }
    recreate();  // who has found it out does not try again
  }
}

TEST_P(BlockIoTest, RangesOfAnOpenFile) {
  for (size_t i = 0; i < kBytes; i++) buffer(0)[i] = static_cast<std::byte>(i / 4096);
  ASSERT_EQ(run(true, "file").error, 0);
  const int fd = open((base_ + "/file").c_str(), O_RDWR | O_CLOEXEC);
  const int file = io_->add_file(fd);
  close(fd);
  ASSERT_GE(file, 0);
  const auto range = [&](bool write, size_t offset, size_t bytes) {
    BlockOp* op = prepare(write, "", 0);
    op->file = file;
    op->offset = offset;
    op->bytes = bytes;
    io_->start(op);
    return finish(1)[0];
  };
  memset(buffer(0), 9, 4096);
  EXPECT_EQ(range(true, 4096, 4096).error, 0);
  EXPECT_EQ(range(false, 4096, 8192).done, 8192u);
  EXPECT_EQ(buffer(0)[0], std::byte{9});
  EXPECT_EQ(buffer(0)[4096], std::byte{2});
  EXPECT_EQ(range(false, kBytes - 4096, 8192).done, 4096u) << "the file ends there";
  std::vector<int> files;
  const int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
  for (unsigned i = 1; i < BlockIo::kMaxFiles; i++) files.push_back(io_->add_file(null));
  EXPECT_EQ(std::count_if(files.begin(), files.end(), [](int added) { return added < 0; }), 0);
  EXPECT_EQ(io_->add_file(null), -ENFILE);
  close(null);
  for (const int added : files) io_->drop_file(added);
  io_->drop_file(file);
}

TEST_P(BlockIoTest, MemoryIsRegisteredOnceAndSaysWhenItIsNot) {
  const bool uring = GetParam().io == StorageIo::kUring;
  memset(buffer(0), 0x5a, kBytes);
  EXPECT_EQ(io_->add_arena(arena_), uring);
  EXPECT_EQ(io_->add_arena(arena_), uring);
  const StorageIoFacts& facts = io_->facts();
  EXPECT_EQ(facts.registered_arenas, uring ? 1u : 0u);
  EXPECT_EQ(facts.unregistered_arenas, uring ? 0u : 1u);
  ASSERT_EQ(run(true, "file").error, 0);
  memset(buffer(0), 0, kBytes);
  BlockOp* op = prepare(false, "file", 0);
  io_->start(op);
  EXPECT_EQ(op->registered, uring);
  EXPECT_EQ(finish(1)[0].done, kBytes);
  EXPECT_EQ(buffer(0)[kBytes - 1], std::byte{0x5a});
  io_->drop_arena(arena_.get());
  EXPECT_EQ(facts.registered_arenas, uring ? 1u : 0u) << "it has another user";
  io_->drop_arena(arena_.get());
  EXPECT_EQ(facts.registered_arenas + facts.unregistered_arenas, 0u);
  EXPECT_EQ(arena_.use_count(), 1);

  faults_.register_errno = ENOMEM;
  EXPECT_FALSE(io_->add_arena(arena_));
  EXPECT_EQ(facts.unregistered_arenas, 1u);
  EXPECT_EQ(facts.register_errno, ENOMEM);
  EXPECT_EQ(run(false, "file").done, kBytes) << "it works all the same";
  io_->drop_arena(arena_.get());
}

TEST_P(BlockIoTest, SubmissionsThatTheKernelRefusesAreTriedAgainAndEnd) {
  ASSERT_EQ(run(true, "file").error, 0);
  if (GetParam().io == StorageIo::kThreadPool) return;  // it has no submissions
  faults_.submit_errno = EAGAIN;
  faults_.submit_errors = 3;
  EXPECT_EQ(run(false, "file").done, kBytes);
  faults_.submit_errno = EBUSY;
  faults_.submit_errors = 1'000'000;
  io_->start(prepare(false, "file", 0));
  io_->start(prepare(true, "other", 1));
  const std::vector<Ended> ended = finish(2);
  faults_.submit_errors = 0;
  EXPECT_EQ(ended[0].error, EBUSY);
  EXPECT_EQ(ended[1].error, EBUSY);
  EXPECT_FALSE(std::filesystem::exists(base_ + "/other.tmp"));
  EXPECT_EQ(run(false, "file").done, kBytes) << "and it goes on";
}

TEST_P(BlockIoTest, AChainThatIsCutEndsWithAnErrorOrWhole) {
  ASSERT_EQ(run(true, "file").error, 0);
  if (GetParam().io == StorageIo::kThreadPool) return;
  for (uint32_t most = 1; most < 8; most++) {  // two chains of three, one of eight
    const std::string name = "cut" + std::to_string(most);
    BlockOp* write = prepare(true, name, 2);
    write->durable = true;
    io_->start(prepare(false, "file", 0));
    io_->start(prepare(false, "file", 1));
    io_->start(write);
    faults_.submit_at_most = most;
    const std::vector<Ended> ended = finish(3);
    for (const Ended& one : ended) EXPECT_TRUE(one.error == EAGAIN || one.done == kBytes) << most;
    EXPECT_EQ(std::filesystem::exists(base_ + "/" + name),
              ended[2].error == 0 || ended[2].call > BlockCall::kPublish);
    EXPECT_FALSE(std::filesystem::exists(base_ + "/" + name + ".tmp"));
    EXPECT_EQ(run(false, "file").done, kBytes);
  }
}

TEST_P(BlockIoTest, NoDescriptorIsLeftForTheFile) {
  ASSERT_EQ(run(true, "file").error, 0);
  rlimit before{};
  getrlimit(RLIMIT_NOFILE, &before);
  const int next = dup(0);
  close(next);
  const rlimit none{static_cast<rlim_t>(next), before.rlim_max};
  setrlimit(RLIMIT_NOFILE, &none);
  const Ended ended = run(false, "file");
  setrlimit(RLIMIT_NOFILE, &before);
  if (GetParam().io == StorageIo::kUring) {
    EXPECT_EQ(ended.error, 0) << "direct descriptors are not the process's";
  } else {
    EXPECT_EQ(ended.error, EMFILE);
    EXPECT_EQ(ended.call, BlockCall::kOpen);
  }
  EXPECT_EQ(run(false, "file").error, 0);
}

INSTANTIATE_TEST_SUITE_P(All, BlockIoTest, all_ways(), way_name);

}  // namespace
}  // namespace dualpath::test
