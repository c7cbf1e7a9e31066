// READ and WRITE through a real store: what goes well, and in which time.
#include <gtest/gtest.h>

#include "test/transfer/storage_fixture.h"

namespace dualpath::test {
namespace {

TEST_P(StorageTest, WhatIsWrittenIsFoundAndReadBack) {
  const auto keys = dir_.keys(kBlocks);
  write_kv(*buffer_, slots(kBlocks), {0, kBlocks * kTokens}, seeds_);
  dp_descriptor w = write(keys, slots(kBlocks));
  w.signal[1] = ordered(2, 40);
  EXPECT_EQ(dir_.store()->longest_prefix(keys.data(), kBlocks), 0u);
  dp_record record = engine_->run({w});
  EXPECT_EQ(record.status, DP_ERROR_NONE);
  EXPECT_EQ(record.bytes_moved, kBlocks * dir_.file_bytes());
  EXPECT_EQ(engine_->counter(1), kBlocks);
  EXPECT_EQ(engine_->counter(2), 41u) << "the whole list is one step";
  EXPECT_EQ(dir_.store()->longest_prefix(keys.data(), kBlocks), kBlocks);
  EXPECT_TRUE(dir_.temp_empties());

  wipe();
  std::vector<uint32_t> elsewhere = slots(kBlocks, kBlocks);
  std::reverse(elsewhere.begin(), elsewhere.end());
  record = engine_->run({read(keys, elsewhere)});
  EXPECT_EQ(record.status, DP_ERROR_NONE);
  EXPECT_EQ(record.bytes_moved, kBlocks * dir_.file_bytes());
  EXPECT_EQ(engine_->counter(0), kBlocks);
  expect_kv(*buffer_, elsewhere, {0, kBlocks * kTokens}, seeds_);
  EXPECT_EQ(engine_->statistics().read_blocks.load(), kBlocks);
  EXPECT_EQ(engine_->statistics().write_blocks.load(), kBlocks);
}

TEST_P(StorageTest, ABlockThatIsThereIsNotWrittenAgain) {
  const auto keys = stored_blocks();
  auto more = dir_.keys(kBlocks + 3);
  const dp_record record = engine_->run({write(more, slots(kBlocks + 3))});
  EXPECT_EQ(record.status, DP_ERROR_NONE);
  EXPECT_EQ(record.bytes_moved, 3 * dir_.file_bytes());
  EXPECT_EQ(engine_->counter(1), 2 * kBlocks + 3) << "skipped blocks count as done";
  EXPECT_EQ(engine_->statistics().write_skipped_blocks.load(), kBlocks);
  EXPECT_EQ(engine_->run({read(keys, slots(kBlocks))}).status, DP_ERROR_NONE);
  expect_kv(*buffer_, slots(kBlocks), {0, kBlocks * kTokens}, seeds_);
}

TEST_P(StorageTest, DurableWritesEndToo) {
  EngineOptions options;
  options.durable_writes = true;
  open(options);
  stored_blocks();
  EXPECT_EQ(dir_.store()->stat().published, kBlocks);
}

TEST_P(StorageTest, AnEmptyListIsOneStepDone) {
  dp_descriptor d = read({}, {});
  d.signal[1] = ordered(2);
  EXPECT_EQ(engine_->run({d}).status, DP_ERROR_NONE);
  EXPECT_EQ(engine_->counter(0), 0u);
  EXPECT_EQ(engine_->counter(2), 1u);
}

TEST_P(StorageTest, AnEventTellsTheEndOfTheList) {
  const auto keys = stored_blocks();
  for (const uint32_t count : {0u, 1u, kBlocks}) {
    dp_descriptor d = read({keys.begin(), keys.begin() + count}, slots(count));
    d.flags = DP_FLAG_EVENT;
    d.tag = 5;
    engine_->submit({describe(DP_OP_NOP), d});
    const dp_record record = engine_->next();
    EXPECT_EQ(record.kind, DP_RECORD_STEP);
    EXPECT_EQ(record.op, DP_OP_READ);
    EXPECT_EQ(record.tag, 5u);
    EXPECT_EQ(record.bytes_moved, count * dir_.file_bytes());
    EXPECT_EQ(engine_->next().kind, DP_RECORD_PROGRAM);
  }
  EXPECT_TRUE(engine_->quiet());
}

TEST_P(StorageTest, ShortReadsAreContinued) {
  const auto keys = stored_blocks();
  reactor_->faults().short_read_bytes = 4096;
  EXPECT_EQ(engine_->run({read(keys, slots(kBlocks))}).status, DP_ERROR_NONE);
  expect_kv(*buffer_, slots(kBlocks), {0, kBlocks * kTokens}, seeds_);
  wipe();
  reactor_->faults().short_read_bytes = 1000;  // direct reads make whole pages of it
  EXPECT_EQ(engine_->run({read(keys, slots(kBlocks))}).status, DP_ERROR_NONE);
  expect_kv(*buffer_, slots(kBlocks), {0, kBlocks * kTokens}, seeds_);
}

TEST_P(StorageTest, MoreBlocksThanOperations) {
  constexpr uint32_t kMany = 300;
  const auto keys = dir_.keys(kMany);
  buffer_id_ = engine_->add_geometry(full_blocks(shape_, 2 * kMany));
  EXPECT_EQ(engine_->run({write(keys, slots(kMany))}).status, DP_ERROR_NONE);
  EXPECT_EQ(engine_->run({read(keys, slots(kMany)), read(keys, slots(kMany, kMany))}).status, DP_ERROR_NONE);
  EXPECT_EQ(engine_->counter(0), 2u * kMany);
}

TEST_P(StorageTest, ABufferTooSmallForBlockFilesIsRefused) {
  const auto keys = stored_blocks();
  const auto refused = [&](std::shared_ptr<const Geometry> geometry) {
    dp_descriptor d = read(keys, slots(kBlocks));
    d.list_count = 1;
    d.dst_geometry = engine_->add_geometry(std::move(geometry));
    const dp_record record = engine_->run({d});
    return record.status == DP_ERROR_INVALID && record.error_index == 0;
  };
  EXPECT_TRUE(refused(full_blocks(shape_, 4, 0))) << "no room for the header";
  EXPECT_TRUE(refused(interleaved(shape_, 4, 0))) << "strides that are no pages";
  EXPECT_TRUE(refused(full_blocks(uniform_shape(3, kTokens, {{200, 0}}), 4))) << "other layers";
  // The payload of the last slot fits its arena, the padding of its file does not.
  GeometryOptions tight;
  tight.slots = 2;
  tight.block_tokens = kTokens;
  tight.slot_stride_bytes = buffer_->slot_stride_bytes();
  for (uint32_t l = 0; l < 4; l++) {
    tight.layers.push_back({4096 + l * shape_.layer_bytes(0), stacked_planes(shape_.layers[l], kTokens)});
  }
  ASSERT_NE((4096 + shape_.block_bytes()) % 4096, 0u);
  EXPECT_TRUE(refused(make_geometry(tight, tight.slot_stride_bytes + 4096 + shape_.block_bytes())));
}

TEST_P(StorageTest, ASlotThatIsNotThereIsNamed) {
  const auto keys = stored_blocks();
  std::vector<uint32_t> list = slots(kBlocks);
  list[7] = 2 * kBlocks;
  dp_record record = engine_->run({read(keys, list)});
  EXPECT_EQ(record.status, DP_ERROR_INVALID);
  EXPECT_EQ(record.error_block, 7u);
  record = engine_->run({write(dir_.keys(kBlocks, 500), list)});
  EXPECT_EQ(record.status, DP_ERROR_INVALID);
  EXPECT_EQ(record.error_block, 7u);
}

class StorageRateTest : public StorageTest {
 protected:
  // Blocks of 64 KiB and a header.
  StorageRateTest() : large_dir_(large_) {}

  void open_large(uint64_t bytes_per_s) {
    link_ = std::make_shared<RateLink>("snic", bytes_per_s);
    EngineOptions options;
    options.store = large_dir_.store();
    options.links.storage_read = link_;
    options.links.storage_write = std::make_shared<RateLink>("snic/write", bytes_per_s);
    options.storage_lookahead_ns = 5'000'000;
    engine_.reset();
    engine_ = std::make_unique<Engine>(*reactor_, "engine", options);
    buffer_id_ = engine_->add_geometry(large_buffer_);
  }
  void store_large() {
    open_large(0);
    keys_ = large_dir_.keys(40);
    ASSERT_EQ(engine_->run({write(keys_, slots(40))}).status, DP_ERROR_NONE);
  }
  std::vector<store::BlockKey> some(size_t begin, size_t end) const {
    return {keys_.begin() + static_cast<ptrdiff_t>(begin), keys_.begin() + static_cast<ptrdiff_t>(end)};
  }

  const Shape large_ = uniform_shape(4, kTokens, {{1024, 0}});
  const std::shared_ptr<const Geometry> large_buffer_ = full_blocks(large_, 40);
  StoreDir large_dir_;
  std::shared_ptr<RateLink> link_;
  std::vector<store::BlockKey> keys_;
};

TEST_P(StorageRateTest, ReadingTakesBytesOverRate) {
  store_large();
  open_large(20'000'000);
  const double expected_ns = 40.0 * static_cast<double>(large_dir_.file_bytes()) * 50;  // 139 ms
  double took_ns = 0;
  for (int attempt = 0; attempt < 10; attempt++) {  // other processes may take the core
    const uint64_t begin = now_ns();
    const dp_record record = engine_->run({read(keys_, slots(40))});
    took_ns = static_cast<double>(record.finished_ns - begin);
    ASSERT_EQ(record.status, DP_ERROR_NONE);
    EXPECT_GE(took_ns, expected_ns);
    if (took_ns <= 1.1 * expected_ns) break;
  }
  EXPECT_LE(took_ns, 1.1 * expected_ns);
}

TEST_P(StorageRateTest, ReadersAreServedFirstComeFirstServed) {
  store_large();
  open_large(20'000'000);
  const uint64_t half_ns = link_->duration_ns(20 * large_dir_.file_bytes());
  const uint32_t first = engine_->submit({read(some(0, 20), slots(20))});
  const uint32_t second = engine_->submit({read(some(20, 40), slots(20, 20))});
  const dp_record one = engine_->next();
  EXPECT_EQ(one.program, first);
  const dp_record two = engine_->next();
  EXPECT_EQ(two.program, second);
  EXPECT_GE(two.finished_ns - one.finished_ns, half_ns * 7 / 10);
}

TEST_P(StorageRateTest, AShortWriteOvertakesALongOne) {
  open_large(4'000'000);  // 17 ms a block
  keys_ = large_dir_.keys(40);
  const uint32_t long_write = engine_->submit({write(some(0, 36), slots(36))});
  const uint32_t short_write = engine_->submit({write(some(36, 38), slots(2, 36))});
  const dp_record one = engine_->next();
  EXPECT_EQ(one.program, short_write);
  EXPECT_EQ(one.status, DP_ERROR_NONE);
  const dp_record two = engine_->next();
  EXPECT_EQ(two.program, long_write);
  EXPECT_EQ(two.status, DP_ERROR_NONE);
}

TEST_P(StorageTest, EvenWithoutARateALaterReaderIssuesOnlyWhatTheFirstCannot) {
  const auto keys = stored_blocks();
  std::vector<store::BlockKey> many;
  for (int i = 0; i < 20; i++) many.insert(many.end(), keys.begin(), keys.end());
  // A slot for each: two reads under way into one would be a race.
  buffer_id_ = engine_->add_geometry(full_blocks(shape_, 21 * kBlocks));
  const auto list = slots(20 * kBlocks);
  reactor_->faults().read_delay_ns = 2'000'000;  // operations run out: 240 blocks, 128 operations
  dp_descriptor late = read(keys, slots(kBlocks, 20 * kBlocks));
  late.signal[0] = add(5);
  engine_->submit({read(many, list)});
  engine_->submit({late});
  ASSERT_TRUE(engine_->reaches(5, 1));
  EXPECT_GE(engine_->counter(0), 240u - 128u) << "all of the first were issued before any of the second";
  for (int i = 0; i < 2; i++) EXPECT_EQ(engine_->next().status, DP_ERROR_NONE);
}

INSTANTIATE_TEST_SUITE_P(Both, StorageTest, kBothWays(), name_of_way);
INSTANTIATE_TEST_SUITE_P(Both, StorageRateTest, kBothWays(), name_of_way);

}  // namespace
}  // namespace dualpath::test
