// What does not exist or goes out of bounds ends its program with INVALID, and nothing that waits for it
// runs.
#include <gtest/gtest.h>

#include "test/memory/shapes.h"
#include "test/transfer/harness.h"

namespace dualpath::test {
namespace {

constexpr uint32_t kLayers = 3;
constexpr uint32_t kTokens = 4;

class InvalidTest : public ::testing::Test {
 protected:
  InvalidTest() {
    const Shape shape = uniform_shape(kLayers, kTokens, {{8, 0}});
    from_ = engine_.add_geometry(full_blocks(shape, 4));
    to_ = engine_.add_geometry(full_blocks(shape, 4));
    other_ = engine_.add_geometry(full_blocks(uniform_shape(kLayers, kTokens, {{9, 0}}), 4));
    peer_.add_geometry(full_blocks(shape, 4));
    handle_ = engine_.connect("peer");
    list_ = engine_.list({0, 1, 2, 3});
  }

  dp_descriptor copy() const {
    dp_descriptor d = describe(DP_OP_COPY);
    d.src_geometry = from_;
    d.dst_geometry = to_;
    d.src_list = d.dst_list = list_;
    d.list_count = 2;
    d.token_end = 2 * kTokens;
    d.layer_count = kLayers;
    d.signal[0] = add(0);
    return d;
  }
  dp_descriptor send() const {
    dp_descriptor d = copy();
    d.op = DP_OP_SEND;
    d.dst_geometry = 0;
    d.peer = handle_;
    return d;
  }

  // The descriptor is refused, one before it and one that waits for it do not change that.
  void expect_invalid(const dp_descriptor& bad, const char* what) {
    SCOPED_TRACE(what);
    dp_descriptor dependant = describe(DP_OP_BUMP);
    dependant.wait[0] = wait_for(0, engine_.counter(0) + 1);
    dependant.signal[0] = add(1);
    const dp_record record = engine_.run({describe(DP_OP_NOP), bad, dependant});
    EXPECT_EQ(record.status, DP_ERROR_INVALID);
    EXPECT_EQ(record.error_index, 1u);
    EXPECT_EQ(record.op, bad.op);
    engine_.bump(0, 1000);  // nobody waits any more
    EXPECT_TRUE(engine_.quiet(500'000));
    EXPECT_EQ(engine_.counter(1), 0u);
  }

  std::unique_ptr<Reactor> reactor_ = make_reactor();
  Engine engine_{*reactor_, "engine"};
  Engine peer_{*reactor_, "peer"};
  uint32_t from_, to_, other_, handle_, list_;
};

TEST_F(InvalidTest, TheGoodOnesAreGood) {
  EXPECT_EQ(engine_.run({copy()}).status, DP_ERROR_NONE);
  EXPECT_EQ(engine_.run({send()}).status, DP_ERROR_NONE);
  dp_descriptor last = copy();
  last.src_list = last.dst_list = 4096;  // an empty list may begin at the end
  last.list_count = 0;
  last.token_end = 0;
  EXPECT_EQ(engine_.run({last}).status, DP_ERROR_NONE);
}

TEST_F(InvalidTest, EachKindIsRefused) {
  const auto bad = [&](dp_descriptor d, auto change, const char* what) {
    change(d);
    expect_invalid(d, what);
  };
  const dp_descriptor bump = describe(DP_OP_BUMP);
  bad(
      bump, [](auto& d) { d.op = DP_OP_BUMP + 1; }, "op");
  bad(
      bump, [](auto& d) { d.traffic_class = DP_CLASS_CONTROL + 1; }, "class");
  bad(
      bump, [](auto& d) { d.layer_count = 0; }, "no steps");
  bad(
      bump, [](auto& d) { d.wait[1] = wait_for(256, 0); }, "wait counter");
  bad(
      bump, [](auto& d) { d.wait[0] = wait_for(0xfffffffe, 0); }, "wait counter far off");
  bad(
      bump, [](auto& d) { d.wait[0] = wait_for(250, 0, 0, 0, 2), d.layer_count = 4; }, "last wait counter");
  bad(
      bump, [](auto& d) { d.signal[0] = add(256); }, "signal counter");
  bad(
      bump, [](auto& d) { d.signal[1] = add(0, 1, 255), d.layer_count = 3; }, "last signal counter");
  bad(
      bump, [](auto& d) { d.signal[0] = add(2), d.signal[0].mode = 2; }, "signal mode");
  bad(
      bump, [](auto& d) { d.signal[0] = add(2), d.signal[0].remote = 2; }, "remote");
  bad(
      bump, [](auto& d) { d.signal[0] = remote(add(2)); }, "remote signal without a peer");
  bad(
      bump, [&](auto& d) { d.signal[0] = remote(add(256)), d.peer = handle_; }, "counter the peer lacks");
  bad(
      copy(), [](auto& d) { d.src_geometry = 3; }, "source");
  bad(
      copy(), [](auto& d) { d.src_geometry = DP_NONE; }, "no source");
  bad(
      copy(), [](auto& d) { d.dst_geometry = DP_NONE; }, "no target");
  bad(
      copy(), [&](auto& d) { d.dst_geometry = other_; }, "other shape");
  bad(
      copy(), [](auto& d) { d.first_layer = 1; }, "layers");
  bad(
      copy(), [](auto& d) { d.first_layer = 0xffff, d.layer_count = 0xffff; }, "layers far off");
  bad(
      copy(), [](auto& d) { d.src_list = 4095; }, "source list");
  bad(
      copy(), [](auto& d) { d.dst_list = 0xffffffff; }, "target list");
  bad(
      copy(), [](auto& d) { d.list_count = 0xffffffff; }, "list length");
  bad(
      copy(), [](auto& d) { d.token_begin = 5, d.token_end = 4; }, "tokens the wrong way round");
  bad(
      copy(), [](auto& d) { d.token_end = 2 * kTokens + 1; }, "tokens behind the list");
  bad(
      copy(), [](auto& d) { d.first_block = 1; }, "tokens before the list");
  bad(
      send(), [](auto& d) { d.peer = 1; }, "peer");
  bad(
      send(), [](auto& d) { d.peer = DP_NONE; }, "no peer");
  bad(
      send(), [](auto& d) { d.dst_geometry = 1; }, "geometry the peer lacks");
  bad(
      send(), [&](auto& d) { d.src_geometry = other_; }, "shape the peer lacks");
  bad(
      describe(DP_OP_READ), [&](auto& d) { d.dst_geometry = from_; }, "read without a store");
  bad(
      describe(DP_OP_WRITE), [&](auto& d) { d.src_geometry = from_; }, "write without a store");
}

TEST_F(InvalidTest, ASlotThatIsNotThereIsNamed) {
  const uint32_t good = engine_.list({0, 1, 2, 3});
  const uint32_t bad = engine_.list({0, 1, 4, 3});
  dp_descriptor d = copy();
  d.list_count = 4;
  d.token_end = 4 * kTokens;
  d.src_list = bad;
  d.dst_list = good;
  dp_record record = engine_.run({d});
  EXPECT_EQ(record.status, DP_ERROR_INVALID);
  EXPECT_EQ(record.error_block, 2u);
  std::swap(d.src_list, d.dst_list);
  record = engine_.run({d});
  EXPECT_EQ(record.status, DP_ERROR_INVALID);
  EXPECT_EQ(record.error_block, 2u);
  d.op = DP_OP_SEND;
  d.dst_geometry = 0;
  d.peer = handle_;
  EXPECT_EQ(engine_.run({d}).status, DP_ERROR_INVALID);
  EXPECT_EQ(engine_.counter(0), 0u) << "no step was finished";
}

TEST_F(InvalidTest, OnlyTheFirstCauseIsTold) {
  dp_descriptor first = copy();
  first.layer_count = 0;
  dp_descriptor second = describe(DP_OP_BUMP);
  second.op = 99;
  const dp_record record = engine_.run({first, second});
  EXPECT_EQ(record.error_index, 0u);
  EXPECT_EQ(record.op, DP_OP_COPY);
}

TEST_F(InvalidTest, ProgramIdsThatCannotBe) {
  dp_descriptor d = describe(DP_OP_BUMP);
  d.signal[0] = add(5);
  d.flags = DP_FLAG_END;
  d.tag = 3;
  for (const uint32_t id : {0u, kProgramPlaces, 0xffffu, DP_NONE}) {
    d.program = id;
    ASSERT_TRUE(engine_.submit_raw({d}));
    const dp_record record = engine_.next();
    EXPECT_EQ(record.status, DP_ERROR_INVALID);
    EXPECT_EQ(record.program, id);
    EXPECT_EQ(record.tag, 3u);
  }
  EXPECT_EQ(engine_.counter(5), 0u);
}

TEST_F(InvalidTest, AnIdInFlightIsRefusedAndTheOneInFlightGoesOn) {
  dp_descriptor waits = describe(DP_OP_BUMP);
  waits.wait[0] = wait_for(5, 1);
  const uint32_t id = engine_.submit({waits});
  dp_descriptor again = describe(DP_OP_BUMP);
  again.flags = DP_FLAG_END;
  for (const uint32_t busy : {id, id + (1u << 16)}) {  // the same, and another in the same place
    again.program = busy;
    ASSERT_TRUE(engine_.submit_raw({again}));
    const dp_record record = engine_.next();
    EXPECT_EQ(record.program, busy);
    EXPECT_EQ(record.status, DP_ERROR_INVALID);
  }
  engine_.bump(5);
  dp_record record = engine_.next();
  EXPECT_EQ(record.program, id);
  EXPECT_EQ(record.status, DP_ERROR_NONE);
  again.program = id;  // free again: may be reused
  ASSERT_TRUE(engine_.submit_raw({again}));
  record = engine_.next();
  EXPECT_EQ(record.program, id);
  EXPECT_EQ(record.status, DP_ERROR_NONE);
}

TEST_F(InvalidTest, AProgramWithoutItsEndFailsWhenTheNextBegins) {
  dp_descriptor lost = describe(DP_OP_BUMP);
  lost.wait[0] = wait_for(5, 1);
  lost.program = engine_.new_id();
  dp_descriptor next = describe(DP_OP_BUMP);
  next.program = engine_.new_id();
  next.flags = DP_FLAG_END;
  ASSERT_TRUE(engine_.submit_raw({lost, lost, next}));
  int status_of_lost = -1;
  int status_of_next = -1;
  for (int i = 0; i < 2; i++) {
    const dp_record record = engine_.next();
    (record.program == lost.program ? status_of_lost : status_of_next) = record.status;
  }
  EXPECT_EQ(status_of_lost, DP_ERROR_INVALID);
  EXPECT_EQ(status_of_next, DP_ERROR_NONE);
  EXPECT_TRUE(engine_.quiet());
}

TEST_F(InvalidTest, AfterThousandsOfRefusalsNothingHasLeaked) {
  dp_descriptor bad = copy();
  bad.layer_count = 0;
  bad.flags = DP_FLAG_EVENT;
  for (int i = 0; i < 2000; i++) {
    const dp_record record = engine_.run({describe(DP_OP_NOP), bad, describe(DP_OP_NOP)});
    ASSERT_EQ(record.status, DP_ERROR_INVALID);
  }
  EXPECT_EQ(engine_.run(std::vector<dp_descriptor>(50, describe(DP_OP_NOP))).status, DP_ERROR_NONE);
}

}  // namespace
}  // namespace dualpath::test
