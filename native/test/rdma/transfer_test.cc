// Programs over verbs: bytes where they should be, signals behind them, one doorbell and one completion a
// chain.
#include "test/rdma/engines.h"

namespace dualpath::test {
namespace {

constexpr uint32_t kLayers = 12;

class VerbsTransferTest : public ::testing::TestWithParam<uint64_t> {};

TEST_P(VerbsTransferTest, LayersArriveWithTheirSignals) {
  VerbsEngines engines({.seed = GetParam()});
  Transfer transfer(engines, uniform_shape(kLayers, 16, {{256, 0}, {64, 0}}), 40);
  engines.meet();
  engines.connect();
  dp_descriptor d = transfer.send();
  const uint32_t arrived = engines.b.engine->door().counter_handle(10);
  d.signal[0] = remote(add(arrived, 1, 1));
  d.signal[1] = ordered(3);
  const dp_record record = engines.a.engine->run({d});
  ASSERT_EQ(record.status, DP_ERROR_NONE) << record.error_call << " " << record.error_offset;
  EXPECT_EQ(record.bytes_moved, 40 * transfer.shape.block_bytes());
  EXPECT_EQ(engines.a.engine->counter(3), kLayers);
  for (uint32_t l = 0; l < kLayers; l++) ASSERT_TRUE(engines.b.engine->reaches(10 + l, 1));
  transfer.expect_arrived();
  const auto counters = engines.a.counters(engines.at_a);
  EXPECT_EQ(counters.chains, kLayers) << "a chain a layer: 80 requests, of which the last announces it";
  EXPECT_EQ(counters.post_calls, counters.chains);
  EXPECT_EQ(counters.completions, counters.chains);
  EXPECT_EQ(counters.bytes, record.bytes_moved);
  EXPECT_EQ(engines.b.counters(engines.at_b).announcements, kLayers);
  EXPECT_EQ(engines.a.engine->statistics().send_steps.load(), kLayers);
}

// The receiver looks at a layer's bytes as soon as its counter says so.
TEST_P(VerbsTransferTest, ASignalNeverOvertakesItsData) {
  VerbsEngines engines({.seed = GetParam()});
  Transfer transfer(engines, uniform_shape(kLayers, 16, {{512, 0}}), 24);
  engines.meet();
  engines.connect();
  dp_descriptor d = transfer.send();
  d.signal[0] = remote(ordered(engines.b.engine->door().counter_handle(5)));
  const uint32_t id = engines.a.engine->submit({d});
  for (uint32_t l = 0; l < kLayers; l++) {
    ASSERT_TRUE(engines.b.engine->reaches(5, l + 1));
    const auto check = check_layer(*transfer.target, transfer.slots, l, transfer.range(), transfer.seeds);
    ASSERT_EQ(check.mismatched_bytes, 0u) << "layer " << l;
  }
  EXPECT_EQ(engines.a.engine->next().program, id);
  EXPECT_EQ(engines.b.counters(engines.at_b).messages, kLayers);
}

INSTANTIATE_TEST_SUITE_P(Seeds, VerbsTransferTest, ::testing::Range<uint64_t>(1, 4));

TEST(VerbsEnginesTest, BothSignalsOfABumpTravelInOneMessage) {
  VerbsEngines engines;
  engines.meet();
  engines.connect();
  dp_descriptor d = describe(DP_OP_BUMP);
  d.peer = engines.peer_b;
  d.layer_count = 300;
  d.signal[0] = remote(add(1, 7));
  d.signal[1] = remote(ordered(2, 1000));
  EXPECT_EQ(engines.a.engine->run({d}).status, DP_ERROR_NONE);
  EXPECT_TRUE(engines.b.engine->reaches(1, 2100));
  EXPECT_EQ(engines.b.engine->counter(2), 1300u);
  const auto counters = engines.a.counters(engines.at_a);
  EXPECT_EQ(counters.chains, counters.completions);
  EXPECT_EQ(engines.b.counters(engines.at_b).messages, 300u);
}

TEST(VerbsEnginesTest, EnginesWaitForOneAnotherWithoutSpinning) {
  VerbsEngines engines;
  engines.meet();
  engines.connect();
  for (uint32_t round = 1; round <= 50; round++) {
    dp_descriptor ping = describe(DP_OP_BUMP);
    ping.peer = engines.peer_b;
    ping.signal[0] = remote(add(0));
    dp_descriptor pong = ping;
    pong.peer = engines.peer_a;
    pong.wait[0] = wait_for(0, round);
    engines.b.engine->submit({pong});
    ASSERT_EQ(engines.a.engine->run({ping}).status, DP_ERROR_NONE);
    ASSERT_EQ(engines.b.engine->next().status, DP_ERROR_NONE);
    ASSERT_TRUE(engines.a.engine->reaches(0, round));
  }
}

TEST(VerbsEnginesTest, AFullSendQueueIsWaitedFor) {
  rdma::TransportOptions options;
  options.queue_pair.send_entries = 8;
  options.queue_pair.receive_entries = 4;
  options.queue_pair.sges = 1;
  VerbsEngines engines({.seed = 5}, options);
  Transfer transfer(engines, uniform_shape(kLayers, 16, {{128, 0}, {64, 0}, {32, 0}}), 50);
  engines.meet();
  engines.connect();
  dp_descriptor d = transfer.send();
  d.signal[0] = remote(add(1));
  ASSERT_EQ(engines.a.engine->run({d}).status, DP_ERROR_NONE);
  EXPECT_TRUE(engines.b.engine->reaches(1, kLayers));
  transfer.expect_arrived();
  EXPECT_GT(engines.a.engine->statistics().waits_peer.load(), 0u);
  EXPECT_LE(engines.fabric->counters().most_outstanding, 8u);
  EXPECT_EQ(engines.fabric->counters().refused_full, 0u);
}

TEST(VerbsEnginesTest, ClassesHaveConnectionsOfTheirOwn) {
  VerbsEngines engines;
  Transfer transfer(engines, uniform_shape(2, 16, {{128, 0}}), 2);
  engines.meet();
  engines.connect(DP_CLASS_KV);
  const uint32_t kv = engines.at_a;
  engines.connect(DP_CLASS_INFERENCE);
  const uint32_t inference = engines.at_a;
  dp_descriptor d = transfer.send();
  d.traffic_class = DP_CLASS_INFERENCE;
  ASSERT_EQ(engines.a.engine->run({d}).status, DP_ERROR_NONE);
  EXPECT_EQ(engines.a.counters(kv).requests, 0u);
  EXPECT_GT(engines.a.counters(inference).requests, 0u);
  d.traffic_class = DP_CLASS_CONTROL;
  EXPECT_EQ(engines.a.engine->run({d}).status, DP_ERROR_PEER) << "there is none of that class";
}

TEST(VerbsEnginesTest, WhatCannotBeSentIsRefused) {
  VerbsEngines engines;
  Transfer transfer(engines, uniform_shape(2, 16, {{128, 0}}), 2);
  const uint32_t other = engines.b.engine->add_geometry(full_blocks(uniform_shape(2, 16, {{64, 0}}), 2));
  engines.meet();
  engines.connect();
  dp_descriptor d = transfer.send();
  d.dst_geometry = other;
  EXPECT_EQ(engines.a.engine->run({d}).status, DP_ERROR_INVALID) << "another shape";
  d.dst_geometry = 40;
  EXPECT_EQ(engines.a.engine->run({d}).status, DP_ERROR_INVALID) << "no such geometry";
  d = transfer.send();
  d.signal[0] = remote(add(100'000));
  EXPECT_EQ(engines.a.engine->run({d}).status, DP_ERROR_INVALID) << "no such counter";
  d = transfer.send();
  d.dst_list = engines.a.engine->list({0, 99});
  const dp_record record = engines.a.engine->run({d});
  EXPECT_EQ(record.status, DP_ERROR_INVALID);
  EXPECT_EQ(record.error_block, 1u);
  dp_descriptor copy = describe(DP_OP_COPY);
  copy.src_geometry = copy.dst_geometry = transfer.from;
  copy.src_list = engines.a.engine->list({0});
  copy.dst_list = engines.a.engine->list({1});
  copy.list_count = 1;
  copy.peer = engines.peer_b;
  copy.signal[0] = remote(add(1));
  EXPECT_EQ(engines.a.engine->run({copy}).status, DP_ERROR_INVALID) << "a bump has to wait for the copy";
  EXPECT_EQ(engines.a.engine->run({transfer.send()}).status, DP_ERROR_NONE) << "the connection goes on";
  transfer.expect_arrived();
}

TEST(VerbsEnginesTest, ASignalForAnEarlierUseOfItsCounterIsDropped) {
  VerbsEngines engines;
  engines.meet();
  engines.connect();
  Door& door = engines.b.engine->door();
  const uint32_t before = door.counter_handle(7);
  dp_descriptor d = describe(DP_OP_BUMP);
  d.peer = engines.peer_b;
  d.signal[0] = remote(add(before));
  ASSERT_EQ(engines.a.engine->run({d}).status, DP_ERROR_NONE);
  ASSERT_TRUE(engines.b.engine->reaches(7, 1));
  engines.fabric->pause(true);
  engines.a.engine->submit({d});
  door.zero_counters(7, 1);
  engines.fabric->pause(false);
  ASSERT_EQ(engines.a.engine->next().status, DP_ERROR_NONE);
  ASSERT_TRUE(eventually([&] { return door.stale_signals() == 1; }));
  EXPECT_EQ(door.counter(7), 0u);
  d.signal[0] = remote(add(door.counter_handle(7)));
  ASSERT_EQ(engines.a.engine->run({d}).status, DP_ERROR_NONE);
  EXPECT_TRUE(engines.b.engine->reaches(7, 1));
}

}  // namespace
}  // namespace dualpath::test
