// READ and WRITE where the disk, the files or the owner fail.
#include <errno.h>
#include <gtest/gtest.h>
#include <string.h>

#include "test/transfer/storage_fixture.h"

namespace dualpath::test {
namespace {

class StorageFaultTest : public StorageTest {
 protected:
  // Reads blocks of which `bad` is the first bad one: it is named, those before it are right.
  void expect_bad(const std::vector<store::BlockKey>& keys, uint32_t bad) {
    wipe();
    dp_descriptor dependant = describe(DP_OP_BUMP);
    dependant.wait[0] = wait_for(0, engine_->counter(0) + keys.size());
    dependant.signal[0] = add(9);
    const dp_record record = engine_->run({dependant, read(keys, slots(kBlocks))});
    EXPECT_EQ(record.status, DP_ERROR_BAD_BLOCK);
    EXPECT_EQ(record.op, DP_OP_READ);
    EXPECT_EQ(record.error_index, 1u);
    EXPECT_EQ(record.error_block, bad);
    if (bad > 0) expect_kv(*buffer_, slots(bad), {0, bad * kTokens}, seeds_);
    EXPECT_EQ(engine_->counter(9), 0u);
  }
};

TEST_P(StorageFaultTest, ACorruptBlockIsAMissAndGoesToQuarantine) {
  const auto keys = stored_blocks();
  dir_.flip_byte(keys[5], 4096 + 100);
  dir_.flip_byte(keys[9], 4096 + 2 * shape_.layer_bytes(0));
  expect_bad(keys, 5);
  EXPECT_GE(engine_->statistics().bad_blocks.load(), 1u);
  EXPECT_FALSE(std::filesystem::exists(dir_.file(keys[5])));
  EXPECT_EQ(dir_.store()->longest_prefix(keys.data(), kBlocks), 5u);
  // The program may have ended before the other one was read.
  EXPECT_EQ(engine_->run({read({keys[9]}, slots(1))}).status, DP_ERROR_BAD_BLOCK);
  // They can be written again, and are good then.
  write_kv(*buffer_, slots(kBlocks), {0, kBlocks * kTokens}, seeds_);
  EXPECT_EQ(engine_->run({write(keys, slots(kBlocks))}).status, DP_ERROR_NONE);
  wipe();
  EXPECT_EQ(engine_->run({read(keys, slots(kBlocks))}).status, DP_ERROR_NONE);
  expect_kv(*buffer_, slots(kBlocks), {0, kBlocks * kTokens}, seeds_);
}

TEST_P(StorageFaultTest, ACorruptBlockIsServedOnlyWhereChecksAreSwitchedOff) {
  const auto keys = stored_blocks();
  dir_.flip_byte(keys[5], 4096 + 100);
  reactor_->faults().accept_bad_blocks = 1;
  EXPECT_EQ(engine_->run({read(keys, slots(kBlocks))}).status, DP_ERROR_NONE);
  EXPECT_EQ(engine_->statistics().bad_blocks.load(), 0u);
  reactor_->faults().accept_bad_blocks = 0;
  expect_bad(keys, 5);
}

TEST_P(StorageFaultTest, ABlockThatVanishedIsForgotten) {
  const auto keys = stored_blocks();
  std::filesystem::remove(dir_.file(keys[3]));
  EXPECT_EQ(dir_.store()->longest_prefix(keys.data(), kBlocks), kBlocks) << "the index does not know yet";
  expect_bad(keys, 3);
  EXPECT_EQ(dir_.store()->longest_prefix(keys.data(), kBlocks), 3u);
}

TEST_P(StorageFaultTest, ATruncatedBlockIsAMissWhereverItEnds) {
  const auto keys = stored_blocks();
  uint32_t bad = kBlocks;
  for (const size_t bytes : {size_t{0}, size_t{100}, size_t{4096}, size_t{5000}, size_t{5120},
                             dir_.file_bytes() - 4096, dir_.file_bytes() - 1}) {
    bad--;
    std::filesystem::resize_file(dir_.file(keys[bad]), bytes);
    SCOPED_TRACE(bytes);
    expect_bad(keys, bad);
  }
}

// The same on the file system that builds run on: it may take O_DIRECT in another way than memory does.
TEST_P(StorageFaultTest, ATruncatedBlockOnADiskIsAMissToo) {
  const StoreDir disk(shape_, std::filesystem::temp_directory_path());
  EngineOptions options;
  options.store = disk.store();
  engine_.reset();
  engine_ = std::make_unique<Engine>(*reactor_, "engine", options);
  buffer_id_ = engine_->add_geometry(buffer_);
  const auto keys = disk.keys(6);
  write_kv(*buffer_, slots(6), {0, 6 * kTokens}, seeds_);
  ASSERT_EQ(engine_->run({write(keys, slots(6))}).status, DP_ERROR_NONE);
  uint32_t bad = 6;
  for (const size_t bytes : {100u, 5000u, 5120u, 8192u}) {
    bad--;
    std::filesystem::resize_file(disk.file(keys[bad]), bytes);
    const dp_record record = engine_->run({read(keys, slots(6))});
    EXPECT_EQ(record.status, DP_ERROR_BAD_BLOCK) << bytes << " bytes: " << strerror(record.error_errno);
    EXPECT_EQ(record.error_block, bad);
  }
}

TEST_P(StorageFaultTest, AnIoErrorOfTheNthReadIsNotAMiss) {
  const auto keys = stored_blocks();
  reactor_->faults().read_errno = EIO;
  reactor_->faults().read_error_after = 4;
  const dp_record record = engine_->run({read(keys, slots(kBlocks))});
  EXPECT_EQ(record.status, DP_ERROR_STORAGE);
  EXPECT_EQ(record.error_errno, EIO);
  EXPECT_EQ(record.error_call, DP_CALL_READ);
  EXPECT_EQ(record.error_bytes, dir_.file_bytes());
  EXPECT_LT(record.error_block, kBlocks);
  EXPECT_LT(record.bytes_moved, kBlocks * dir_.file_bytes());
  EXPECT_EQ(dir_.store()->longest_prefix(keys.data(), kBlocks), kBlocks) << "the blocks stay";
  EXPECT_EQ(engine_->run({read(keys, slots(kBlocks))}).status, DP_ERROR_NONE);
}

TEST_P(StorageFaultTest, AFullDiskPublishesNothingAndLeavesNoTemp) {
  const auto keys = dir_.keys(1);
  reactor_->faults().write_errno = ENOSPC;
  reactor_->faults().write_error_after = 1;
  const dp_record record = engine_->run({write(keys, slots(1))});
  EXPECT_EQ(record.status, DP_ERROR_STORAGE);
  EXPECT_EQ(record.op, DP_OP_WRITE);
  EXPECT_EQ(record.error_errno, ENOSPC);
  EXPECT_EQ(record.error_call, DP_CALL_WRITE);
  EXPECT_EQ(record.error_block, 0u);
  EXPECT_EQ(record.bytes_moved, 0u);
  EXPECT_EQ(engine_->counter(1), 0u);
  EXPECT_EQ(dir_.store()->longest_prefix(keys.data(), 1), 0u);
  EXPECT_FALSE(std::filesystem::exists(dir_.file(keys[0])));
  EXPECT_TRUE(dir_.temp_empties());
}

TEST_P(StorageFaultTest, ADirectoryThatIsGoneFailsTheWrite) {
  const auto keys = dir_.keys(1);
  std::filesystem::remove_all(std::filesystem::path(dir_.file(keys[0])).parent_path());
  const dp_record record = engine_->run({write(keys, slots(1))});
  EXPECT_EQ(record.status, DP_ERROR_STORAGE);
  EXPECT_EQ(record.error_errno, ENOENT);
  EXPECT_EQ(record.error_call, DP_CALL_RENAME);
  EXPECT_TRUE(dir_.temp_empties());
}

TEST_P(StorageFaultTest, AFailedReadPostsNoEventAndOwesNone) {
  const auto keys = stored_blocks();
  dp_descriptor d = read(keys, slots(kBlocks));
  d.flags = DP_FLAG_EVENT;
  for (int round = 0; round < 200; round++) {  // more than the completion ring has entries
    reactor_->faults().read_errno = EIO;
    reactor_->faults().read_error_after = 1;
    const dp_record record = engine_->run({d});
    ASSERT_EQ(record.kind, DP_RECORD_PROGRAM);
    ASSERT_EQ(record.status, DP_ERROR_STORAGE);
  }
  EXPECT_EQ(engine_->run({describe(DP_OP_NOP)}).status, DP_ERROR_NONE);
}

TEST_P(StorageFaultTest, TheBufferIsNotTouchedAfterTheRecordOfACancelledRead) {
  EngineOptions options;
  const auto link = std::make_shared<RateLink>("snic", 0);  // it only counts
  options.links.storage_read = link;
  open(options);
  const auto keys = stored_blocks();
  reactor_->faults().read_delay_ns = 30'000'000;
  const uint64_t begin = now_ns();
  const uint32_t id = engine_->submit({read(keys, slots(kBlocks))});
  ASSERT_TRUE(eventually([&] { return link->operations() > 0; }));
  engine_->cancel(id);
  const dp_record record = engine_->next();
  EXPECT_EQ(record.program, id);
  EXPECT_EQ(record.status, DP_ERROR_CANCELLED);
  EXPECT_GE(now_ns() - begin, 30'000'000u) << "what was in flight came back first";
  wipe();
  EXPECT_TRUE(engine_->quiet(50'000'000));
  EXPECT_TRUE(untouched(memory_of(*buffer_).data(), memory_of(*buffer_).size()));
  EXPECT_EQ(engine_->counter(0), 0u);
}

TEST_P(StorageFaultTest, AReactorMayGoAwayInTheMiddleOfReadsAndWrites) {
  const auto keys = stored_blocks();
  for (const uint64_t delay_ns : {uint64_t{0}, uint64_t{10'000'000'000}}) {
    for (int round = 0; round < 10; round++) {
      reactor_->faults().read_delay_ns = delay_ns;  // with a delay finished operations wait in the engine
      engine_->submit(
          {read(keys, slots(kBlocks)), write(dir_.keys(5, 1000 * (round + 1)), slots(5, kBlocks))});
      usleep(static_cast<useconds_t>(round * 200));
      engine_->forget_reactor();
      const uint64_t begin = now_ns();
      reactor_.reset();
      EXPECT_LT(now_ns() - begin, 5'000'000'000u);
      engine_.reset();
      reactor_ = make_reactor(GetParam());
      open({});
    }
  }
  EXPECT_EQ(engine_->run({read(keys, slots(kBlocks))}).status, DP_ERROR_NONE);
}

TEST_P(StorageFaultTest, ClosingWaitsForReadsInFlight) {
  EngineOptions options;
  const auto link = std::make_shared<RateLink>("snic", 0);  // it only counts
  options.links.storage_read = link;
  open(options);
  const auto keys = stored_blocks();
  reactor_->faults().read_delay_ns = 200'000'000;
  const uint32_t id = engine_->submit({read(keys, slots(kBlocks))});
  ASSERT_TRUE(eventually([&] { return link->operations() > 0; }));
  engine_->close();
  dp_record record{};
  ASSERT_TRUE(engine_->poll_record(&record)) << "the record was there when remove() returned";
  EXPECT_EQ(record.program, id);
  EXPECT_EQ(record.status, DP_ERROR_CLOSED);
}

INSTANTIATE_TEST_SUITE_P(Both, StorageFaultTest, kBothWays(), name_of_way);

}  // namespace
}  // namespace dualpath::test
