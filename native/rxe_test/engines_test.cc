// Engines that send to each other over soft-RoCE.
#include "test/rdma/engines.h"

#include "rxe_pair.h"

namespace dualpath::test {
namespace {

using Kind = rdma::TransportEvent::Kind;
constexpr uint32_t kLayers = 8;

class RxeEngines : public ::testing::Test {
 protected:
  RxeEngines() {
    engines_.meet();
    engines_.connect();
  }
  static std::shared_ptr<verbs::Verbs> library() {
    std::shared_ptr<verbs::Verbs> verbs;
    const Status status = verbs::process_library(&verbs);
    EXPECT_TRUE(status.ok()) << status.message;
    return verbs;
  }
  static std::string device() {
    const char* const name = getenv("DUALPATH_RXE_DEVICE");
    return name == nullptr ? "rxe0" : name;
  }
  dp_descriptor send() {
    dp_descriptor d = transfer_.send();
    d.signal[0] = remote(add(engines_.b.engine->door().counter_handle(1)));
    return d;
  }

  VerbsEngines engines_{library(), device(), routable_gid(*rxe_device())};
  Transfer transfer_{engines_, uniform_shape(kLayers, 16, {{256, 0}, {64, 0}}), 20};
};

TEST_F(RxeEngines, LayersArriveWithTheirSignals) {
  for (uint64_t round = 1; round <= 3; round++) {
    ASSERT_EQ(engines_.a.engine->run({send()}).status, DP_ERROR_NONE);
    ASSERT_TRUE(engines_.b.engine->reaches(1, round * kLayers));
  }
  transfer_.expect_arrived();
  const auto counters = engines_.a.counters(engines_.at_a);
  EXPECT_EQ(counters.chains, 3 * kLayers);
  EXPECT_EQ(counters.completions, counters.chains);
  EXPECT_EQ(engines_.b.counters(engines_.at_b).announcements, 3 * kLayers);
}

TEST_F(RxeEngines, BumpsWithoutDataArriveAsImmediatesAndAsMessages) {
  dp_descriptor d = describe(DP_OP_BUMP);
  d.peer = engines_.peer_b;
  d.layer_count = 200;
  d.signal[0] = remote(add(1));
  ASSERT_EQ(engines_.a.engine->run({d}).status, DP_ERROR_NONE);
  EXPECT_TRUE(engines_.b.engine->reaches(1, 200));
  d.signal[1] = remote(ordered(2, 5));
  ASSERT_EQ(engines_.a.engine->run({d}).status, DP_ERROR_NONE);
  EXPECT_TRUE(engines_.b.engine->reaches(1, 400));
  EXPECT_TRUE(engines_.b.engine->reaches(2, 205));
}

TEST_F(RxeEngines, EnginesWakeOneAnother) {
  for (uint32_t round = 1; round <= 100; round++) {
    dp_descriptor ping = describe(DP_OP_BUMP);
    ping.peer = engines_.peer_b;
    ping.signal[0] = remote(add(0));
    dp_descriptor pong = ping;
    pong.peer = engines_.peer_a;
    pong.wait[0] = wait_for(0, round);
    engines_.b.engine->submit({pong});
    ASSERT_EQ(engines_.a.engine->run({ping}).status, DP_ERROR_NONE);
    ASSERT_EQ(engines_.b.engine->next().status, DP_ERROR_NONE);
    ASSERT_TRUE(engines_.a.engine->reaches(0, round));
  }
}

TEST_F(RxeEngines, DrainedConnectionsAreRebuilt) {
  for (int round = 0; round < 3; round++) {
    ASSERT_EQ(engines_.a.engine->run({send()}).status, DP_ERROR_NONE);
    for (VerbsEnd* const end : {&engines_.a, &engines_.b}) end->events.clear();
    ASSERT_TRUE(engines_.a.transport->drain(engines_.at_a).ok());
    ASSERT_TRUE(engines_.b.transport->drain(engines_.at_b).ok());
    ASSERT_TRUE(eventually([&] { return engines_.a.told(Kind::kDrained); }));
    ASSERT_TRUE(eventually([&] { return engines_.b.told(Kind::kDrained); }));
    engines_.connect();
  }
  ASSERT_EQ(engines_.a.engine->run({send()}).status, DP_ERROR_NONE);
  transfer_.expect_arrived();
}

TEST_F(RxeEngines, AReceiverThatClosesInTheMidstOfItIsAPeerLost) {
  dp_descriptor d = send();
  engines_.a.engine->submit({d});
  engines_.b.engine->reaches(1, 2);
  engines_.b.engine->close();
  const auto memory = memory_of(*transfer_.target);
  std::fill(memory.begin(), memory.end(), std::byte{0xca});
  const dp_record record = engines_.a.engine->next(60'000'000'000);
  if (record.status != DP_ERROR_NONE) {
    EXPECT_EQ(record.status, DP_ERROR_PEER);
    EXPECT_EQ(record.error_call, static_cast<uint32_t>(DP_CALL_RDMA));
    EXPECT_TRUE(engines_.a.told(Kind::kBroke));
  }
  for (const std::byte byte : memory) ASSERT_EQ(byte, std::byte{0xca}) << "written after it had closed";
}

TEST_F(RxeEngines, AWrongKeyIsRefusedByThePeer) {
  VerbsEngines engines(library(), device(), routable_gid(*rxe_device()));
  Transfer transfer(engines, uniform_shape(2, 16, {{256, 0}}), 2);
  engines.change_memory = [](rdma::RemoteMemory* memory) { memory->geometries[0].arenas[0].key ^= 0x5500; };
  engines.meet();
  engines.connect();
  const dp_record record = engines.a.engine->run({transfer.send()});
  EXPECT_EQ(record.status, DP_ERROR_PEER);
  EXPECT_EQ(record.error_offset, static_cast<uint32_t>(IBV_WC_REM_ACCESS_ERR));
  EXPECT_TRUE(untouched(memory_of(*transfer.target).data(), memory_of(*transfer.target).size()));
}

}  // namespace
}  // namespace dualpath::test
