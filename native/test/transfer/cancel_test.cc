// A cancelled program ends with exactly one record, wherever the cancellation meets it.
#include <gtest/gtest.h>

#include <map>
#include <random>

#include "test/transfer/harness.h"
#include "test/transfer/kv.h"

namespace dualpath::test {
namespace {

constexpr uint32_t kTokens = 16;

class CancelTest : public ::testing::Test {
 protected:
  CancelTest() { reopen({}); }

  void reopen(EngineOptions options) {
    engine_.reset();
    link_ = std::make_shared<NicLink>("egress", 10'000'000);
    options.links.nic_egress = link_;
    options.chunk_bytes = 4 << 10;
    engine_ = std::make_unique<Engine>(*reactor_, "engine", options);
    from_ = engine_->add_geometry(full_blocks(shape_, 4));
    to_ = engine_->add_geometry(full_blocks(shape_, 4));
    list_ = engine_->list({0, 1, 2, 3});
  }

  static dp_descriptor waits_for_ever() {
    dp_descriptor d = describe(DP_OP_BUMP);
    d.wait[0] = wait_for(200, 1);
    d.signal[0] = add(0);
    return d;
  }
  dp_descriptor copy() const {  // 16 chunks a layer, 6.5 ms a layer
    dp_descriptor d = describe(DP_OP_COPY);
    d.src_geometry = from_;
    d.dst_geometry = to_;
    d.src_list = d.dst_list = list_;
    d.list_count = 4;
    d.token_end = 4 * kTokens;
    d.layer_count = 40;
    d.signal[0] = ordered(1);
    return d;
  }
  // The next record is the program's, and no other follows.
  void expect_cancelled(uint32_t id) {
    const dp_record record = engine_->next();
    EXPECT_EQ(record.kind, DP_RECORD_PROGRAM);
    EXPECT_EQ(record.program, id);
    EXPECT_EQ(record.status, DP_ERROR_CANCELLED);
    EXPECT_EQ(record.error_index, DP_NONE);
    EXPECT_TRUE(engine_->quiet(2'000'000));
  }

  const Shape shape_ = uniform_shape(40, kTokens, {{1024, 0}});
  std::unique_ptr<Reactor> reactor_ = make_reactor();
  std::unique_ptr<Engine> engine_;
  std::shared_ptr<NicLink> link_;
  uint32_t from_, to_, list_;
};

TEST_F(CancelTest, WaitingForEver) {
  const uint32_t id = engine_->submit({waits_for_ever(), waits_for_ever()});
  EXPECT_TRUE(engine_->quiet());
  engine_->cancel(id);
  expect_cancelled(id);
  engine_->bump(200);
  EXPECT_TRUE(engine_->quiet());
  EXPECT_EQ(engine_->counter(0), 0u);
}

TEST_F(CancelTest, BeforeItIsTakenFromTheRing) {
  EngineOptions options;
  options.max_descriptors = 1;
  reopen(options);
  const uint32_t first = engine_->submit({waits_for_ever()});
  const uint32_t second = engine_->submit({waits_for_ever()});  // stays in the ring
  engine_->cancel(second);
  EXPECT_TRUE(engine_->quiet());
  engine_->cancel(first);
  dp_record record = engine_->next();
  EXPECT_EQ(record.program, first);
  record = engine_->next();
  EXPECT_EQ(record.program, second);
  EXPECT_EQ(record.status, DP_ERROR_CANCELLED);
  EXPECT_TRUE(engine_->quiet());
}

TEST_F(CancelTest, WhileItIsBeingTaken) {
  EngineOptions options;
  options.max_descriptors = 2;
  reopen(options);
  const uint32_t id = engine_->submit(std::vector<dp_descriptor>(6, waits_for_ever()));
  EXPECT_TRUE(engine_->quiet());
  EXPECT_LT(engine_->free_entries(), 64u);
  engine_->cancel(id);
  expect_cancelled(id);
  EXPECT_EQ(engine_->free_entries(), 64u);
}

// Submitted and cancelled while the reactor works off what it saw in the ring before: the request must not
// be taken for one that speaks of the past.
TEST_F(CancelTest, AtOnceAfterSubmitting) {
  std::minstd_rand random(11);
  for (int i = 0; i < 2000; i++) {
    for (int n = 0; n < 25; n++) engine_->submit({describe(DP_OP_NOP)});
    const uint64_t until = now_ns() + random() % 60'000;
    while (now_ns() < until) continue;
    const uint32_t id = engine_->submit({waits_for_ever()});
    engine_->cancel(id);
    bool cancelled = false;
    for (int n = 0; n < 26; n++) {
      const dp_record record = engine_->next(5'000'000'000);
      cancelled |= record.program == id && record.status == DP_ERROR_CANCELLED;
    }
    ASSERT_TRUE(cancelled) << "round " << i;
  }
}

TEST_F(CancelTest, BetweenTwoChunksOfALayer) {
  dp_descriptor d = copy();
  d.flags = DP_FLAG_EVENT;
  for (int round = 0; round < 100; round++) {  // more than the completion ring has entries
    const uint64_t before = link_->bytes();
    const uint32_t id = engine_->submit({d});
    while (link_->bytes() == before) usleep(50);
    engine_->cancel(id);
    dp_record record = engine_->next();
    while (record.kind == DP_RECORD_STEP) record = engine_->next();
    ASSERT_EQ(record.program, id);
    ASSERT_EQ(record.status, DP_ERROR_CANCELLED);
    ASSERT_GT(record.bytes_moved, 0u);
    ASSERT_LT(record.bytes_moved, 4 * shape_.block_bytes());
  }
  EXPECT_TRUE(engine_->quiet());
  EXPECT_EQ(engine_->run({describe(DP_OP_NOP)}).status, DP_ERROR_NONE);
}

TEST_F(CancelTest, AfterSomeLayersWithOthersOnTheirWay) {
  dp_descriptor dependant = describe(DP_OP_BUMP);
  dependant.wait[0] = wait_for(1, 40);
  dependant.signal[0] = add(0);
  const uint32_t id = engine_->submit({dependant, copy()});
  ASSERT_TRUE(engine_->reaches(1, 2));
  engine_->cancel(id);
  expect_cancelled(id);
  EXPECT_GE(engine_->counter(1), 2u);
  EXPECT_LT(engine_->counter(1), 40u);
  EXPECT_EQ(engine_->counter(0), 0u);
}

TEST_F(CancelTest, WithAStepBegunAndTheLinkTakenByAnother) {
  const uint32_t other = engine_->submit({copy()});
  while (link_->bytes() == 0) usleep(50);
  dp_descriptor blocked = copy();
  blocked.flags = DP_FLAG_EVENT;
  link_->enqueue(DP_CLASS_KV, 3'000'000, now_ns());  // 300 ms: the step begins and gets no turn
  const uint32_t id = engine_->submit({blocked});
  usleep(2000);
  engine_->cancel(id);
  const dp_record record = engine_->next();
  EXPECT_EQ(record.program, id);
  EXPECT_EQ(record.status, DP_ERROR_CANCELLED);
  EXPECT_EQ(record.bytes_moved, 0u);
  engine_->cancel(other);
  EXPECT_EQ(engine_->next().program, other);
}

TEST_F(CancelTest, WhatHasEndedOrNeverWasIsNothing) {
  const uint32_t id = engine_->submit({describe(DP_OP_NOP)});
  engine_->next();
  for (const uint32_t unknown : {id, id + (1u << 16), 0u, DP_NONE, kProgramPlaces}) engine_->cancel(unknown);
  EXPECT_TRUE(engine_->quiet());
  const uint32_t later = engine_->submit({waits_for_ever()});
  EXPECT_TRUE(engine_->quiet());
  engine_->cancel(later);
  engine_->cancel(later);
  expect_cancelled(later);
}

TEST_F(CancelTest, OthersGoOn) {
  std::map<uint32_t, int> status;
  std::vector<uint32_t> ids;
  for (int i = 0; i < 20; i++) ids.push_back(engine_->submit({waits_for_ever()}));
  for (int i = 0; i < 20; i += 2) engine_->cancel(ids[i]);
  for (int i = 0; i < 10; i++) {
    const dp_record record = engine_->next();
    status[record.program] = record.status;
  }
  engine_->bump(200);
  for (int i = 0; i < 10; i++) {
    const dp_record record = engine_->next();
    status[record.program] = record.status;
  }
  for (int i = 0; i < 20; i++) {
    EXPECT_EQ(status.at(ids[i]), i % 2 == 0 ? DP_ERROR_CANCELLED : DP_ERROR_NONE) << i;
  }
  EXPECT_TRUE(engine_->quiet());
}

TEST_F(CancelTest, ClosingEndsEveryProgramOnce) {
  std::vector<uint32_t> ids{engine_->submit({waits_for_ever()}), engine_->submit({copy()}),
                            engine_->submit({waits_for_ever(), copy()})};
  usleep(2000);
  engine_->request_close();
  std::map<uint32_t, int> status;
  for (int i = 0; i < 3; i++) {
    const dp_record record = engine_->next();
    EXPECT_TRUE(status.emplace(record.program, record.status).second);
  }
  for (const uint32_t id : ids) EXPECT_EQ(status.at(id), DP_ERROR_CLOSED);
  EXPECT_EQ(engine_->run({describe(DP_OP_NOP)}).status, DP_ERROR_CLOSED) << "and those that come later";
  EXPECT_TRUE(engine_->quiet());
}

TEST_F(CancelTest, RemoveReturnsWhateverIsGoingOn) {
  for (int round = 0; round < 50; round++) {
    Engine brief(*reactor_, "brief");
    dp_descriptor d = copy();
    d.src_geometry = brief.add_geometry(full_blocks(shape_, 4));
    d.dst_geometry = brief.add_geometry(full_blocks(shape_, 4));
    d.src_list = d.dst_list = brief.list({0, 1, 2, 3});
    brief.submit({waits_for_ever(), d});
    if (round % 3 == 0) usleep(static_cast<useconds_t>(round * 10));
  }
}

}  // namespace
}  // namespace dualpath::test
