// What goes wrong under way: every program ends, with the first cause; memory in flight is nobody else's; a
// peer's id goes on with a new queue pair.
#include "test/rdma/engines.h"

namespace dualpath::test {
namespace {

using Kind = rdma::TransportEvent::Kind;
constexpr uint32_t kLayers = 10;
constexpr uint32_t kBlocks = 30;

class VerbsFaultTest : public ::testing::Test {
 protected:
  VerbsFaultTest() {
    engines_.meet();
    engines_.connect();
  }
  dp_descriptor send() {
    dp_descriptor d = transfer_.send();
    d.signal[0] = remote(add(1));
    d.signal[1] = ordered(2);
    return d;
  }
  void expect_peer_error(const dp_record& record, ibv_wc_status status) {
    EXPECT_EQ(record.status, DP_ERROR_PEER);
    EXPECT_EQ(record.error_call, static_cast<uint32_t>(DP_CALL_RDMA));
    EXPECT_EQ(record.error_offset, static_cast<uint32_t>(status));
    EXPECT_NE(record.error_bytes, 0u) << "the queue pair's number";
  }
  bool broke_and_drained(VerbsEnd& end) {
    return eventually([&] { return end.told(Kind::kBroke) && end.told(Kind::kDrained); });
  }

  VerbsEngines engines_;
  Transfer transfer_{engines_, uniform_shape(kLayers, 16, {{256, 0}}), kBlocks};
  Engine& a_ = *engines_.a.engine;
  Engine& b_ = *engines_.b.engine;
};

TEST_F(VerbsFaultTest, ARequestThatFailsFailsItsProgramAndARebuiltConnectionCarriesTheRetry) {
  engines_.fabric->fail_request(0, 40, IBV_WC_RETRY_EXC_ERR);
  dp_descriptor dependant = describe(DP_OP_BUMP);
  dependant.wait[0] = wait_for(2, kLayers);
  dependant.signal[0] = add(3);
  const dp_record record = a_.run({send(), dependant});
  expect_peer_error(record, IBV_WC_RETRY_EXC_ERR);
  EXPECT_EQ(record.error_index, 0u);
  EXPECT_LT(a_.counter(2), kLayers);
  EXPECT_EQ(a_.counter(3), 0u) << "dependants never run";
  rdma::TransportEvent event(Kind::kPort);
  ASSERT_TRUE(engines_.a.told(Kind::kBroke, &event)) << "said before the record";
  EXPECT_EQ(event.connection, engines_.at_a);
  EXPECT_EQ(event.peer, engines_.peer_b);
  EXPECT_EQ(event.error.blame, verbs::Blame::kRemote);
  EXPECT_TRUE(broke_and_drained(engines_.a));
  EXPECT_EQ(a_.run({send()}).status, DP_ERROR_PEER) << "until there is a new one";
  engines_.connect();
  EXPECT_EQ(a_.run({send()}).status, DP_ERROR_NONE);
  transfer_.expect_arrived();
  EXPECT_EQ(engines_.a.transport->statistics().connections.size(), 1u) << "the broken one is gone";
}

TEST_F(VerbsFaultTest, AWrongKeyIsAnAccessErrorAndNothingIsWritten) {
  VerbsEngines engines;
  Transfer transfer(engines, uniform_shape(kLayers, 16, {{256, 0}}), 2);
  engines.change_memory = [](rdma::RemoteMemory* memory) { memory->geometries[0].arenas[0].key += 2; };
  engines.meet();
  engines.connect();
  expect_peer_error(engines.a.engine->run({transfer.send()}), IBV_WC_REM_ACCESS_ERR);
  EXPECT_TRUE(untouched(memory_of(*transfer.target).data(), memory_of(*transfer.target).size()));
  EXPECT_TRUE(broke_and_drained(engines.a));
  EXPECT_TRUE(broke_and_drained(engines.b)) << "its side of the connection is broken, too";
}

TEST_F(VerbsFaultTest, ALinkThatGoesDownIsToldAndFailsWhatIsInFlight) {
  engines_.fabric->set_link(1, false);
  expect_peer_error(a_.run({send()}), IBV_WC_RETRY_EXC_ERR);
  rdma::TransportEvent event(Kind::kBroke);
  ASSERT_TRUE(eventually([&] { return engines_.b.told(Kind::kPort, &event); }));
  EXPECT_FALSE(event.up);
  engines_.b.events.clear();
  engines_.fabric->set_link(1, true);
  ASSERT_TRUE(eventually([&] { return engines_.b.told(Kind::kPort, &event); }));
  EXPECT_TRUE(event.up);
  engines_.connect();
  EXPECT_EQ(a_.run({send()}).status, DP_ERROR_NONE);
  transfer_.expect_arrived();
}

// Cancelled is not quiescent: the record comes when the NIC has let go of the memory.
TEST_F(VerbsFaultTest, ACancelledProgramEndsOnlyWhenItsRequestsHave) {
  engines_.fabric->pause(true);
  const uint32_t id = a_.submit({send()});
  ASSERT_TRUE(eventually([&] { return engines_.a.counters(engines_.at_a).chains != 0; }));
  a_.cancel(id);
  EXPECT_TRUE(a_.quiet(20'000'000));
  engines_.fabric->pause(false);
  const dp_record record = a_.next();
  EXPECT_EQ(record.program, id);
  EXPECT_EQ(record.status, DP_ERROR_CANCELLED);
  EXPECT_EQ(engines_.a.transport->statistics().connections[0].in_flight_bytes, 0u);
  EXPECT_EQ(a_.run({send()}).status, DP_ERROR_NONE) << "the connection goes on";
  transfer_.expect_arrived();
}

TEST_F(VerbsFaultTest, DrainingEndsWhatIsInFlight) {
  engines_.fabric->pause(true);
  const uint32_t id = a_.submit({send()});
  ASSERT_TRUE(eventually([&] { return engines_.a.counters(engines_.at_a).chains != 0; }));
  EXPECT_TRUE(engines_.a.transport->drain(engines_.at_a).ok());
  engines_.fabric->pause(false);
  const dp_record record = a_.next();
  EXPECT_EQ(record.program, id);
  EXPECT_EQ(record.status, DP_ERROR_PEER);
  EXPECT_TRUE(eventually([&] { return engines_.a.told(Kind::kDrained); }));
}

TEST_F(VerbsFaultTest, AProviderThatDoesNotFlushIsNotWaitedForForEver) {
  engines_.fabric->pause(true);
  a_.submit({send()});
  ASSERT_TRUE(eventually([&] { return engines_.a.counters(engines_.at_a).chains != 0; }));
  EXPECT_TRUE(engines_.a.transport->drain(engines_.at_a).ok());
  EXPECT_EQ(a_.next().status, DP_ERROR_PEER);
  EXPECT_TRUE(eventually([&] { return engines_.a.told(Kind::kDrained); }));
}

TEST_F(VerbsFaultTest, ClosingAConnectionEndsWhatIsInFlightAtOnce) {
  engines_.fabric->pause(true);
  a_.submit({send()});
  ASSERT_TRUE(eventually([&] { return engines_.a.counters(engines_.at_a).chains != 0; }));
  EXPECT_TRUE(engines_.a.transport->close_connection(engines_.at_a).ok());
  EXPECT_EQ(a_.next().status, DP_ERROR_PEER);
  EXPECT_STREQ(engines_.a.transport->close_connection(engines_.at_a).code, "INVALID_ARGUMENT");
}

TEST_F(VerbsFaultTest, ASenderThatClosesLeavesNothingInFlight) {
  for (const bool paused : {false, true}) {
    VerbsEngines engines;
    Transfer transfer(engines, uniform_shape(kLayers, 16, {{256, 0}}), kBlocks);
    engines.meet();
    engines.connect();
    engines.fabric->pause(paused);
    engines.a.engine->submit({transfer.send()});
    ASSERT_TRUE(eventually([&] { return engines.a.counters(engines.at_a).chains != 0; }));
    engines.a.engine->close();  // where nothing is flushed the queue pair is destroyed after a second
    dp_record record{};
    ASSERT_TRUE(engines.a.engine->poll_record(&record));
    EXPECT_TRUE(record.status == DP_ERROR_CLOSED || record.status == DP_ERROR_NONE) << record.status;
    const auto memory = memory_of(*transfer.target);
    const std::vector<std::byte> then(memory.begin(), memory.end());
    engines.fabric->pause(false);
    usleep(5000);
    EXPECT_EQ(memcmp(memory.data(), then.data(), then.size()), 0) << "nothing is written afterwards";
  }
}

// The other side's bytes around the slots it gave away, and all of them once it has closed.
TEST_F(VerbsFaultTest, AReceiverThatClosesIsNotWrittenAnyMore) {
  for (int round = 0; round < 10; round++) {
    VerbsEngines engines({.seed = static_cast<uint64_t>(round + 1)});
    Transfer transfer(engines, uniform_shape(40, 16, {{256, 0}}), kBlocks);
    engines.meet();
    engines.connect();
    dp_descriptor d = transfer.send();
    d.signal[0] = remote(add(1));
    engines.a.engine->submit({d});
    if (round % 2 == 0) engines.b.engine->reaches(1, 1 + static_cast<uint64_t>(round));
    engines.b.engine->close();
    const auto memory = memory_of(*transfer.target);
    std::fill(memory.begin(), memory.end(), std::byte{0xca});
    const dp_record record = engines.a.engine->next();
    EXPECT_EQ(record.status, DP_ERROR_PEER);
    for (const std::byte byte : memory) ASSERT_EQ(byte, std::byte{0xca});
  }
}

TEST_F(VerbsFaultTest, AReactorThatEndsLeavesNothingInFlight) {
  engines_.fabric->pause(true);
  a_.submit({send()});
  ASSERT_TRUE(eventually([&] { return engines_.a.counters(engines_.at_a).chains != 0; }));
  a_.forget_reactor();
  engines_.a.reactor.reset();
  engines_.fabric->pause(false);
  usleep(5000);
  EXPECT_TRUE(untouched(memory_of(*transfer_.target).data(), memory_of(*transfer_.target).size()));
}

TEST_F(VerbsFaultTest, ACompletionQueueThatFailsIsTheEndOfItsEnginesAndIsSaid) {
  engines_.fabric->fail_completion_queues(0);
  EXPECT_EQ(a_.run({send()}).status, DP_ERROR_PEER);
  rdma::TransportEvent event(Kind::kPort);
  ASSERT_TRUE(eventually([&] { return engines_.a.told(Kind::kDeviceFailed, &event); }));
  EXPECT_NE(event.cause.find("stub0"), std::string::npos) << event.cause;
  rdma::ConnectionHalf half;
  EXPECT_STREQ(engines_.a.transport->open(DP_CLASS_KV, -1, &half).code, "RDMA_FAILED");
  EXPECT_TRUE(engines_.b.transport->open(DP_CLASS_KV, -1, &half).ok()) << "the other device works";
}

TEST(VerbsLimitsTest, MemoryThatMayNotBeLocked) {
  VerbsEngines engines({.memlock_bytes = 2 << 20});
  engines.a.engine->add_geometry(full_blocks(uniform_shape(4, 16, {{4096, 0}}), 16));
  rdma::RemoteMemory memory;
  const Status status = engines.a.transport->memory(&memory);
  EXPECT_STREQ(status.code, "MEMORY_LIMIT");
  EXPECT_NE(status.message.find("RLIMIT_MEMLOCK"), std::string::npos) << status.message;
}

TEST(VerbsLimitsTest, ConnectionsAndCompletionQueueEntries) {
  rdma::TransportOptions options;
  options.max_connections = 2;
  VerbsEngines engines({}, options);
  rdma::ConnectionHalf half;
  EXPECT_TRUE(engines.a.transport->open(DP_CLASS_KV, -1, &half).ok());
  EXPECT_TRUE(engines.a.transport->open(DP_CLASS_CONTROL, -1, &half).ok());
  EXPECT_STREQ(engines.a.transport->open(DP_CLASS_INFERENCE, -1, &half).code, "CAPACITY_EXHAUSTED");
  EXPECT_TRUE(engines.a.transport->close_connection(half.connection).ok());
  EXPECT_TRUE(engines.a.transport->open(DP_CLASS_INFERENCE, -1, &half).ok());
  VerbsEngines few({.max_cq_entries = 400});
  EXPECT_TRUE(few.a.transport->open(DP_CLASS_KV, -1, &half).ok());
  EXPECT_STREQ(few.a.transport->open(DP_CLASS_KV, -1, &half).code, "CAPACITY_EXHAUSTED");
}

TEST(VerbsLimitsTest, APortThatIsClaimedIsRefusedToOthers) {
  rdma::TransportOptions options;
  options.exclusive = true;
  VerbsEngines engines({}, options);
  VerbsEnd third("third");
  const Status status = third.attach(engines.fabric, "stub0", options);
  EXPECT_STREQ(status.code, "CAPACITY_EXHAUSTED");
  EXPECT_NE(status.message.find("process " + std::to_string(getpid())), std::string::npos) << status.message;
  engines.a.engine->close();
  EXPECT_TRUE(third.attach(engines.fabric, "stub0", options).ok()) << "it ends with its engine";
}

TEST(VerbsLimitsTest, WhatDoesNotExist) {
  VerbsEngines engines;
  VerbsEnd third("third");
  EXPECT_STREQ(third.attach(engines.fabric, "stub7").code, "INVALID_ARGUMENT");
  rdma::TransportOptions options;
  options.port = 2;
  EXPECT_STREQ(third.attach(engines.fabric, "stub0", options).code, "INVALID_ARGUMENT");
  EXPECT_STREQ(engines.a.transport->drain(99).code, "INVALID_ARGUMENT");
  rdma::ConnectionHalf half;
  EXPECT_STREQ(engines.a.transport->open(DP_CLASS_KV, 77, &half).code, "INVALID_ARGUMENT");
  ASSERT_TRUE(engines.a.transport->open(DP_CLASS_KV, -1, &half).ok());
  EXPECT_STREQ(engines.a.transport->connect(half.connection, 5, path_to(half)).code, "INVALID_ARGUMENT");
  rdma::RemoteMemory memory;
  memory.geometries.resize(1);
  uint32_t peer;
  EXPECT_STREQ(engines.a.transport->add_peer("x", memory, &peer).code, "INVALID_ARGUMENT");
}

TEST(VerbsLimitsTest, EverythingOfTheProviderIsGivenBack) {
  auto fabric = std::make_shared<verbs::stub::StubFabric>(verbs::stub::StubOptions{.own_thread = true});
  {
    VerbsEnd end("end");
    end.engine->add_geometry(full_blocks(uniform_shape(4, 16, {{64, 0}}), 4));
    ASSERT_TRUE(end.attach(fabric, "stub0").ok());
    rdma::RemoteMemory memory;
    rdma::ConnectionHalf half;
    ASSERT_TRUE(end.transport->memory(&memory).ok());
    ASSERT_TRUE(end.transport->open(DP_CLASS_KV, -1, &half).ok());
    EXPECT_GT(fabric->objects(), 0u);
    end.engine->close();
    end.transport.reset();
  }
  EXPECT_EQ(fabric->objects(), 0u);
}

}  // namespace
}  // namespace dualpath::test
