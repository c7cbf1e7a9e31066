// NOP and BUMP: waits, signals, events, records, the rings.
#include <gtest/gtest.h>

#include <set>

#include "test/transfer/harness.h"

namespace dualpath::test {
namespace {

class ProgramTest : public ::testing::Test {
 protected:
  std::unique_ptr<Reactor> reactor_ = make_reactor();
  Engine engine_{*reactor_, "engine"};
};

TEST_F(ProgramTest, ANopEndsWithARecordThatSaysAll) {
  dp_descriptor nop = describe(DP_OP_NOP);
  nop.tag = 77;
  const uint64_t before = now_ns();
  const dp_record record = engine_.run({nop});
  EXPECT_EQ(record.status, DP_ERROR_NONE);
  EXPECT_EQ(record.tag, 77u);
  EXPECT_EQ(record.bytes_moved, 0u);
  EXPECT_EQ(record.error_index, DP_NONE);
  EXPECT_EQ(record.error_block, DP_NONE);
  EXPECT_EQ(record.error_errno, 0);
  EXPECT_GE(record.submitted_ns + 50'000'000, before);  // the reactor's clock is read once a pass
  EXPECT_GE(record.finished_ns, before);
  EXPECT_LE(record.finished_ns, now_ns());
  EXPECT_EQ(engine_.statistics().programs.load(), 1u);
  EXPECT_EQ(engine_.statistics().descriptors.load(), 1u);
}

TEST_F(ProgramTest, ABumpWaitsForBothOfItsCounters) {
  dp_descriptor bump = describe(DP_OP_BUMP);
  bump.wait[0] = wait_for(1, 5);
  bump.wait[1] = wait_for(2, 3);
  bump.signal[0] = add(3, 10);
  bump.signal[1] = ordered(4, 100);
  engine_.submit({bump});
  engine_.bump(1, 5);
  EXPECT_TRUE(engine_.quiet());
  engine_.bump(2, 2);
  EXPECT_TRUE(engine_.quiet());
  EXPECT_EQ(engine_.counter(3), 0u);
  engine_.bump(2, 1);
  EXPECT_EQ(engine_.next().status, DP_ERROR_NONE);
  EXPECT_EQ(engine_.counter(3), 10u);
  EXPECT_EQ(engine_.counter(4), 101u);
}

TEST_F(ProgramTest, StepsWaitForValuesThatGrow) {
  dp_descriptor bump = describe(DP_OP_BUMP);
  bump.layer_count = 6;
  bump.wait[0] = wait_for(0, static_cast<uint64_t>(-1), 1, 2);  // step s waits for s - 1, the first two not
  bump.signal[0] = add(1);
  engine_.submit({bump});
  EXPECT_TRUE(engine_.reaches(1, 2));
  EXPECT_TRUE(engine_.quiet());
  for (uint64_t value = 1; value <= 3; value++) {
    EXPECT_EQ(engine_.counter(1), value + 1);
    engine_.bump(0);
    EXPECT_TRUE(engine_.reaches(1, value + 2));
    EXPECT_TRUE(engine_.quiet());
  }
  engine_.bump(0);
  EXPECT_EQ(engine_.next().status, DP_ERROR_NONE);
  EXPECT_EQ(engine_.counter(1), 6u);
}

TEST_F(ProgramTest, StepsMayWaitOnAndSignalACounterEach) {
  dp_descriptor bump = describe(DP_OP_BUMP);
  bump.layer_count = 4;
  bump.wait[0] = wait_for(10, 1, 0, 0, 3);  // counters 10, 13, 16, 19
  bump.signal[0] = add(40, 5, 2);           // 40, 42, 44, 46
  engine_.submit({bump});
  engine_.bump(13);
  engine_.bump(16);
  EXPECT_TRUE(engine_.quiet());
  EXPECT_EQ(engine_.counter(40), 0u) << "steps begin in order";
  engine_.bump(10);
  EXPECT_TRUE(engine_.reaches(44, 5));
  EXPECT_EQ(engine_.counter(46), 0u);
  engine_.bump(19);
  EXPECT_EQ(engine_.next().status, DP_ERROR_NONE);
  for (const uint32_t counter : {40, 42, 44, 46}) EXPECT_EQ(engine_.counter(counter), 5u);
  for (const uint32_t counter : {41, 43, 45, 47}) EXPECT_EQ(engine_.counter(counter), 0u);
}

TEST_F(ProgramTest, DescriptorsOfAProgramMeetThroughCountersOnly) {
  // Last first: each waits for the one behind it in the list.
  std::vector<dp_descriptor> chain;
  for (uint32_t i = 0; i < 10; i++) {
    dp_descriptor bump = describe(DP_OP_BUMP);
    bump.wait[0] = wait_for(i + 1, 1);
    bump.signal[0] = add(i);
    chain.push_back(bump);
  }
  engine_.submit(chain);
  EXPECT_TRUE(engine_.quiet());
  engine_.bump(10);
  EXPECT_EQ(engine_.next().status, DP_ERROR_NONE);
  EXPECT_EQ(engine_.counter(0), 1u);
}

TEST_F(ProgramTest, EventsTellEachStepBeforeTheProgramsRecord) {
  dp_descriptor bump = describe(DP_OP_BUMP);
  bump.layer_count = 5;
  bump.flags = DP_FLAG_EVENT;
  bump.tag = 9;
  dp_descriptor silent = describe(DP_OP_NOP);
  silent.tag = 8;
  const uint32_t id = engine_.submit({silent, bump});
  for (uint16_t step = 0; step < 5; step++) {
    const dp_record record = engine_.next();
    EXPECT_EQ(record.kind, DP_RECORD_STEP);
    EXPECT_EQ(record.op, DP_OP_BUMP);
    EXPECT_EQ(record.step, step);
    EXPECT_EQ(record.tag, 9u);
    EXPECT_EQ(record.program, id);
    EXPECT_EQ(record.status, DP_ERROR_NONE);
  }
  const dp_record last = engine_.next();
  EXPECT_EQ(last.kind, DP_RECORD_PROGRAM);
  EXPECT_EQ(last.tag, 8u) << "the program's tag is its first descriptor's";
  EXPECT_TRUE(engine_.quiet());
}

TEST_F(ProgramTest, RingsWrapAroundManyTimes) {
  dp_descriptor bump = describe(DP_OP_BUMP);
  bump.signal[0] = add(0);
  uint64_t submitted = 0;
  for (int round = 0; round < 400; round++) {
    const size_t count = 1 + round % 5;
    bump.tag = static_cast<uint32_t>(round);
    const dp_record record = engine_.run(std::vector<dp_descriptor>(count, bump));
    submitted += count;
    ASSERT_EQ(record.status, DP_ERROR_NONE);
    ASSERT_EQ(record.tag, static_cast<uint32_t>(round));
    ASSERT_EQ(engine_.counter(0), submitted);
  }
  EXPECT_GT(engine_.door().submission().tail, 10 * 64u);
  EXPECT_GT(engine_.door().completion().tail, 5 * 64u);
}

TEST_F(ProgramTest, RingIndicesMayWrapAtTheEndOf32Bits) {
  Engine engine(*reactor_, "old", {}, small_door(), UINT32_MAX - 2);
  for (int i = 0; i < 10; i++) EXPECT_EQ(engine.run({describe(DP_OP_NOP)}).status, DP_ERROR_NONE);
  EXPECT_LT(engine.door().submission().tail, 10u);
}

class BackPressureTest : public ::testing::Test {
 protected:
  static DoorOptions tiny_door() {
    DoorOptions door = small_door();
    door.submission_entries = 128;
    door.completion_entries = 8;
    return door;
  }
  std::unique_ptr<Reactor> reactor_ = make_reactor();
};

TEST_F(BackPressureTest, AFullCompletionRingLosesNothingAndGoesOnWithoutADoorbell) {
  EngineOptions options;
  options.max_programs = 7;
  Engine engine(*reactor_, "engine", options, tiny_door());
  std::vector<dp_descriptor> programs;
  for (uint32_t i = 0; i < 70; i++) {
    dp_descriptor nop = describe(DP_OP_NOP);
    nop.program = (i / 7 + 1) << 16 | i % 7;
    nop.flags = DP_FLAG_END;
    programs.push_back(nop);
  }
  ASSERT_TRUE(engine.submit_raw(programs));
  EXPECT_TRUE(eventually([&] { return engine.unread_records() == 8; }));
  usleep(5000);
  EXPECT_EQ(engine.unread_records(), 8u);
  std::set<uint32_t> ended;
  for (size_t i = 0; i < programs.size(); i++) {
    const dp_record record = engine.next();
    EXPECT_EQ(record.status, DP_ERROR_NONE);
    EXPECT_TRUE(ended.insert(record.program).second);
  }
  EXPECT_EQ(ended.size(), 70u);
}

TEST_F(BackPressureTest, EventsWaitForRoomAndNoneIsLost) {
  EngineOptions options;
  options.max_programs = 7;
  Engine engine(*reactor_, "engine", options, tiny_door());
  dp_descriptor bump = describe(DP_OP_BUMP);
  bump.layer_count = 50;
  bump.flags = DP_FLAG_EVENT;
  bump.signal[0] = add(0);
  for (int i = 0; i < 7; i++) engine.submit({bump});  // programs that hold all entries but one
  usleep(20'000);
  EXPECT_LE(engine.unread_records(), 8u);
  EXPECT_LT(engine.counter(0), 10u);
  int steps = 0;
  int programs = 0;
  while (programs < 7) {
    const dp_record record = engine.next();
    ASSERT_NE(record.kind, 0);
    (record.kind == DP_RECORD_STEP ? steps : programs)++;
  }
  EXPECT_EQ(steps, 7 * 50);
  EXPECT_EQ(engine.counter(0), 7u * 50);
  EXPECT_TRUE(engine.quiet());
}

TEST_F(BackPressureTest, DescriptorsBeyondTheLimitStayInTheRing) {
  EngineOptions options;
  options.max_descriptors = 10;
  Engine engine(*reactor_, "engine", options);
  dp_descriptor waits = describe(DP_OP_BUMP);
  waits.wait[0] = wait_for(0, 1);
  waits.signal[0] = add(1);
  const uint32_t first = engine.submit(std::vector<dp_descriptor>(8, waits));
  const uint32_t second = engine.submit(std::vector<dp_descriptor>(30, waits));
  const uint32_t third = engine.submit({describe(DP_OP_NOP)});
  EXPECT_TRUE(eventually([&] { return engine.free_entries() == 64 - 39 + 10; }));
  EXPECT_TRUE(engine.quiet());
  EXPECT_EQ(engine.free_entries(), 64u - 39 + 10);
  engine.bump(0);
  for (const uint32_t id : {first, second, third}) {
    const dp_record record = engine.next();
    EXPECT_EQ(record.program, id);
    EXPECT_EQ(record.status, DP_ERROR_NONE);
  }
  EXPECT_EQ(engine.counter(1), 38u);
}

TEST_F(BackPressureTest, SlotsOfTheSubmissionRingAreGivenBackOnlyOnceTaken) {
  EngineOptions options;
  options.max_descriptors = 1;
  Engine engine(*reactor_, "engine", options);
  dp_descriptor waits = describe(DP_OP_BUMP);
  waits.wait[0] = wait_for(0, 1);
  engine.submit({waits});
  EXPECT_TRUE(eventually([&] { return engine.free_entries() == 64; }));
  for (int i = 0; i < 16; i++) engine.submit(std::vector<dp_descriptor>(4, describe(DP_OP_NOP)));
  EXPECT_EQ(engine.free_entries(), 0u);
  EXPECT_FALSE(engine.submit_raw({describe(DP_OP_NOP)}));
  engine.bump(0);
  for (int i = 0; i < 17; i++) EXPECT_EQ(engine.next().status, DP_ERROR_NONE);
  EXPECT_EQ(engine.free_entries(), 64u);
}

TEST(EngineTest, RefusesLimitsThatCannotWork) {
  FaultPlan faults;
  EngineOptions options;
  ASSERT_TRUE(Door::create(small_door(), &options.door).ok());
  options.name = "engine";
  const auto code = [&](uint32_t programs, uint32_t descriptors) {
    options.max_programs = programs;
    options.max_descriptors = descriptors;
    std::shared_ptr<TransferEngine> engine;
    return std::string(TransferEngine::create(options, &faults, &engine).ok() ? "" : "INVALID_ARGUMENT");
  };
  EXPECT_EQ(code(0, 10), "INVALID_ARGUMENT");
  EXPECT_EQ(code(64, 10), "INVALID_ARGUMENT") << "as many as completion entries: none is left for events";
  EXPECT_EQ(code(63, 0), "INVALID_ARGUMENT");
  EXPECT_EQ(code(63, (1 << 20) + 1), "INVALID_ARGUMENT");
  EXPECT_EQ(code(63, 10), "");
}

}  // namespace
}  // namespace dualpath::test
