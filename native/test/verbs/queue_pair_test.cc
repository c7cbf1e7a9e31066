#include "verbs/queue_pair.h"

#include <errno.h>

#include <algorithm>

#include "pair.h"

namespace dualpath::test {
namespace {

// Eight bytes of one region to eight of the other's, each its own request.
void fill(Chain& chain, const Registered& from, const Registered& to, uint32_t requests) {
  for (uint32_t i = 0; i < requests; i++) {
    ASSERT_TRUE(chain.write(
        {from.address(16 * i), to.address(16 * i), from.region->local_key(), to.region->remote_key(), 8}));
  }
}

TEST(QueuePairTest, AChainIsOnePostAndOneCompletion) {
  Pair pair;
  Registered from(pair.a.device, 4096), to(pair.b.device, 4096);
  std::fill_n(from.base(), 4096, std::byte{7});
  Chain chain(pair.a.queue_pair->chain_options());
  Tracked tracked;
  for (const uint32_t requests : {1u, 8u, 64u}) {
    const auto before = pair.fabric->counters();
    fill(chain, from, to, requests);
    EXPECT_EQ(chain.size(), requests);
    tracked.begin();
    ASSERT_EQ(pair.a.queue_pair->post(chain, &tracked.operation), PostResult::kPosted);
    EXPECT_TRUE(chain.empty());
    tracked.operation.seal();
    ASSERT_TRUE(pair.settle());
    const auto after = pair.fabric->counters();
    EXPECT_EQ(after.post_calls - before.post_calls, 1u);
    EXPECT_EQ(after.requests - before.requests, requests);
    EXPECT_EQ(after.signalled - before.signalled, 1u);
    EXPECT_EQ(after.completions - before.completions, 1u);
  }
  EXPECT_EQ(tracked.ended, 3u);
  EXPECT_EQ(to.base()[16 * 63 + 7], std::byte{7});
  EXPECT_EQ(to.base()[16 * 63 + 8], std::byte{0xee}) << "a byte too far";
}

TEST(QueuePairTest, ReadsComeInOneChainToo) {
  Pair pair;
  Registered to(pair.a.device, 4096), from(pair.b.device, 4096, RegionAccess::kPeersReadAndWrite);
  Registered closed(pair.b.device, 4096);
  std::fill_n(from.base(), 4096, std::byte{7});
  Chain chain(pair.a.queue_pair->chain_options());
  for (const Registered* target : {&from, &closed}) {
    for (uint32_t i = 0; i < 4; i++) {
      ASSERT_TRUE(chain.read({to.address(64 * i), target->address(128 * i), to.region->local_key(),
                              target->region->remote_key(), 32}));
    }
    Tracked tracked;
    tracked.begin();
    ASSERT_EQ(pair.a.queue_pair->post(chain, &tracked.operation), PostResult::kPosted);
    tracked.operation.seal();
    ASSERT_TRUE(pair.settle());
    EXPECT_EQ(tracked.ended, 1u);
    EXPECT_EQ(tracked.operation.error().status, target == &from ? IBV_WC_SUCCESS : IBV_WC_REM_ACCESS_ERR);
  }
  EXPECT_EQ(to.base()[64 * 3 + 31], std::byte{7});
  EXPECT_EQ(to.base()[64 * 3 + 32], std::byte{0xee});
  EXPECT_EQ(pair.fabric->counters().reads, 8u);
}

TEST(QueuePairTest, ChainsAreAtMostHalfTheQueueAndNeverMoreThanItHolds) {
  QueuePairOptions options;
  options.send_entries = 16;
  Pair pair(options);
  Registered from(pair.a.device, 4096), to(pair.b.device, 4096);
  QueuePair& queue_pair = *pair.a.queue_pair;
  EXPECT_EQ(queue_pair.chain_options().requests, 7u);
  Chain chain(queue_pair.chain_options());
  Tracked tracked;
  tracked.begin();
  for (int i = 0; i < 2; i++) {
    fill(chain, from, to, 7);
    ASSERT_EQ(queue_pair.post(chain, &tracked.operation), PostResult::kPosted);
  }
  EXPECT_EQ(queue_pair.room(), 1u);
  fill(chain, from, to, 2);
  EXPECT_EQ(queue_pair.post(chain, &tracked.operation), PostResult::kAgain);
  EXPECT_EQ(chain.size(), 2u);
  ASSERT_TRUE(pair.settle());
  EXPECT_EQ(queue_pair.room(), 15u);
  EXPECT_EQ(queue_pair.post(chain, &tracked.operation), PostResult::kPosted);
  tracked.operation.seal();
  ASSERT_TRUE(pair.settle());
  EXPECT_EQ(tracked.ended, 1u);
  EXPECT_EQ(pair.fabric->counters().refused_full, 0u);
  EXPECT_EQ(pair.fabric->counters().most_outstanding, 14u);
}

TEST(QueuePairTest, OnlyTheFirstErrorIsReportedWithItsPlace) {
  Pair pair;
  Registered from(pair.a.device, 4096), to(pair.b.device, 4096);
  Chain chain(pair.a.queue_pair->chain_options());
  Tracked first, second;
  pair.fabric->fail_request(pair.a.queue_pair->qp_num(), 3, IBV_WC_REM_OP_ERR);
  for (Tracked* tracked : {&first, &second}) {
    tracked->begin();
    fill(chain, from, to, 5);
    ASSERT_EQ(pair.a.queue_pair->post(chain, &tracked->operation), PostResult::kPosted);
    tracked->operation.seal();
  }
  ASSERT_TRUE(pair.settle());
  ASSERT_EQ(pair.a.recorder.broken.size(), 1u);
  const WorkError& error = pair.a.recorder.broken[0];
  EXPECT_EQ(error.blame, Blame::kRemote);
  EXPECT_EQ(error.status, IBV_WC_REM_OP_ERR);
  EXPECT_EQ(error.position, 2u);
  EXPECT_EQ(describe(error), "the peer could not carry it out (remote), queue pair " +
                                 std::to_string(error.qp_num) + ", request 2; the connection is rebuilt");
  EXPECT_EQ(first.operation.error().flushed, false);
  EXPECT_EQ(second.operation.error().flushed, true);
  EXPECT_EQ(second.operation.error().status, IBV_WC_REM_OP_ERR) << "the cause, not the noise";
  EXPECT_EQ(first.ended + second.ended, 2u);
  EXPECT_EQ(pair.a.queue_pair->counters().errors, 1u);
  EXPECT_GE(pair.a.queue_pair->counters().flushed, 7u);
  EXPECT_EQ(pair.a.recorder.drained, 1u);
  EXPECT_EQ(pair.a.queue_pair->state(), QueuePair::State::kDrained);
}

TEST(QueuePairTest, LocalAndRemoteFaultsAreToldApart) {
  for (const bool local : {true, false}) {
    Pair pair;
    Registered from(pair.a.device, 4096), to(pair.b.device, 4096);
    Chain chain(pair.a.queue_pair->chain_options());
    const uint32_t wrong = 9999;
    chain.write({from.address(), to.address(), local ? wrong : from.region->local_key(),
                 local ? to.region->remote_key() : wrong, 8});
    Tracked tracked;
    tracked.begin();
    ASSERT_EQ(pair.a.queue_pair->post(chain, &tracked.operation), PostResult::kPosted);
    tracked.operation.seal();
    ASSERT_TRUE(pair.settle());
    EXPECT_EQ(tracked.operation.error().blame, local ? Blame::kLocal : Blame::kRemote);
    EXPECT_EQ(tracked.ended, 1u);
    // The responder of a wrong remote key goes to the error state as well, and drains.
    if (!local) {
      EXPECT_EQ(pair.b.recorder.drained, 1u);
      DeviceEvent event{};
      ASSERT_TRUE(pair.b.device->take_event(&event));
      EXPECT_EQ(event.kind, DeviceEventKind::kQueuePairFatal);
    }
  }
}

TEST(QueuePairTest, MemoryIsFreeOnlyWhenTheOperationOrTheQueuePairSaysSo) {
  Pair pair;
  Registered from(pair.a.device, 4096), to(pair.b.device, 4096);
  uint32_t released = 0;
  MemoryOwner source([](void* count, uint64_t) { ++*static_cast<uint32_t*>(count); }, &released, 0);
  MemoryOwner target([](void* count, uint64_t) { ++*static_cast<uint32_t*>(count); }, &released, 0);
  uint32_t immediate = 0;
  ASSERT_TRUE(pair.b.queue_pair->landings().open(target.hold(), 5, &immediate));
  Chain chain(pair.a.queue_pair->chain_options());
  fill(chain, from, to, 4);
  Tracked tracked;
  tracked.begin(source.hold());
  ASSERT_EQ(pair.a.queue_pair->post(chain, &tracked.operation), PostResult::kPosted);
  tracked.operation.seal();
  source.retire();
  target.retire();
  EXPECT_EQ(released, 0u) << "a deadline is not quiescence";
  pair.a.queue_pair->drain();
  EXPECT_EQ(released, 0u) << "nor is the error state";
  ASSERT_TRUE(pair.settle());
  EXPECT_EQ(tracked.ended, 1u);
  EXPECT_EQ(released, 1u) << "the target does not know yet";
  pair.b.queue_pair->drain();
  EXPECT_EQ(released, 1u);
  ASSERT_TRUE(pair.settle());
  EXPECT_EQ(released, 2u);
}

TEST(QueuePairTest, DestroyingEndsWhatIsInFlight) {
  Pair pair;
  Registered from(pair.a.device, 4096), to(pair.b.device, 4096);
  Chain chain(pair.a.queue_pair->chain_options());
  fill(chain, from, to, 4);
  Tracked tracked;
  tracked.begin();
  ASSERT_EQ(pair.a.queue_pair->post(chain, &tracked.operation), PostResult::kPosted);
  tracked.operation.seal();
  pair.a.queue_pair.reset();
  EXPECT_EQ(tracked.ended, 1u);
  EXPECT_EQ(tracked.operation.error().blame, Blame::kCancelled);
  ASSERT_TRUE(pair.settle());
  EXPECT_EQ(pair.a.completion_queue->entries_used(), 0u);
}

TEST(QueuePairTest, WantOfRoomAtTheProviderPassesWhileSomethingIsInFlight) {
  Pair pair;
  Registered from(pair.a.device, 4096), to(pair.b.device, 4096);
  Chain chain(pair.a.queue_pair->chain_options());
  Tracked tracked;
  tracked.begin();
  fill(chain, from, to, 3);
  ASSERT_EQ(pair.a.queue_pair->post(chain, &tracked.operation), PostResult::kPosted);
  fill(chain, from, to, 6);
  pair.fabric->fail_post(4, ENOMEM);
  EXPECT_EQ(pair.a.queue_pair->post(chain, &tracked.operation), PostResult::kAgain);
  EXPECT_EQ(chain.size(), 3u) << "three were taken";
  // The rest is given up: the three taken, none of them signalled, must end all the same.
  chain.clear();
  tracked.operation.seal();
  ASSERT_TRUE(pair.settle());
  EXPECT_EQ(tracked.ended, 1u);
  EXPECT_TRUE(tracked.operation.error().ok());
  EXPECT_EQ(pair.a.queue_pair->room(), 255u);
  EXPECT_TRUE(pair.a.recorder.broken.empty());
}

TEST(QueuePairTest, AnyOtherRefusalIsALocalFaultAndDrains) {
  Pair pair;
  Registered from(pair.a.device, 4096), to(pair.b.device, 4096);
  Chain chain(pair.a.queue_pair->chain_options());
  Tracked tracked;
  tracked.begin();
  fill(chain, from, to, 6);
  pair.fabric->fail_post(4, EINVAL);
  EXPECT_EQ(pair.a.queue_pair->post(chain, &tracked.operation), PostResult::kFailed);
  tracked.operation.seal();
  EXPECT_EQ(tracked.ended, 0u) << "three of them are with the NIC";
  ASSERT_TRUE(pair.settle());
  EXPECT_EQ(tracked.ended, 1u);
  EXPECT_EQ(tracked.operation.error().blame, Blame::kLocal);
  EXPECT_EQ(tracked.operation.error().post_errno, EINVAL);
  EXPECT_EQ(pair.a.recorder.drained, 1u);
  EXPECT_EQ(pair.a.queue_pair->post(chain, &tracked.operation), PostResult::kFailed);
}

TEST(QueuePairTest, ShortFlapsPassAndLongOnesBreak) {
  for (const uint32_t down_for : {3u, 50u}) {
    stub::StubOptions ordered;
    ordered.shuffled = false;
    Pair pair({}, ordered);
    Registered from(pair.a.device, 4096), to(pair.b.device, 4096);
    Chain chain(pair.a.queue_pair->chain_options());
    fill(chain, from, to, 2);
    Tracked tracked;
    tracked.begin();
    pair.fabric->set_link(1, false);
    ASSERT_EQ(pair.a.queue_pair->post(chain, &tracked.operation), PostResult::kPosted);
    tracked.operation.seal();
    for (uint32_t i = 0; i < down_for; i++) pair.fabric->step();
    pair.fabric->set_link(1, true);
    ASSERT_TRUE(pair.settle());
    EXPECT_EQ(tracked.ended, 1u);
    EXPECT_EQ(tracked.operation.error().ok(), down_for == 3);
    if (down_for != 3) {
      EXPECT_EQ(tracked.operation.error().status, IBV_WC_RETRY_EXC_ERR);
    }
    DeviceEvent event{};
    ASSERT_TRUE(pair.b.device->take_event(&event));
    EXPECT_EQ(event.kind, DeviceEventKind::kPortError);
    EXPECT_EQ(event.port, 1);
    ASSERT_TRUE(pair.b.device->take_event(&event));
    EXPECT_EQ(event.kind, DeviceEventKind::kPortActive);
    EXPECT_FALSE(pair.b.device->take_event(&event));
  }
}

TEST(QueuePairTest, RefusesWhatIsOutOfRange) {
  Pair pair;
  struct Case {
    const char* says;
    void (*spoil)(PathParameters&);
  };
  const Case cases[] = {
      {"service level (SL) 16: 0 to 15 allowed", [](PathParameters& p) { p.service_level = 16; }},
      {"timeout 14: 17 to 31 allowed", [](PathParameters& p) { p.timeout = 14; }},
      {"rnr_retry 7: 1 to 6 allowed: 7 would mean for ever", [](PathParameters& p) { p.rnr_retry = 7; }},
      {"retry_count 7: 0 to 6 allowed", [](PathParameters& p) { p.retry_count = 7; }},
      {"path MTU 1500: 256, 512, 1024, 2048 or 4096", [](PathParameters& p) { p.mtu_bytes = 1500; }},
  };
  for (const Case& wrong : cases) {
    PathParameters path = path_to(pair.b);
    wrong.spoil(path);
    const Status status = pair.a.queue_pair->connect(path);
    EXPECT_STREQ(status.code, "INVALID_ARGUMENT");
    EXPECT_NE(status.message.find(wrong.says), std::string::npos) << status.message;
  }
  End c;
  c.open(pair.fabric, "stub0", 512);
  c.make({}, 1);
  PathParameters path = path_to(pair.b);
  path.gid_index = 9;
  const Status status = c.queue_pair->connect(path);
  EXPECT_STREQ(status.code, "RDMA_FAILED");
  EXPECT_NE(status.message.find("to RTR with GID index 9"), std::string::npos) << status.message;
  QueuePairOptions options;
  options.send_entries = 2;
  EXPECT_STREQ(QueuePair::create(*c.completion_queue, options, 1, &c.recorder, &c.queue_pair).code,
               "INVALID_ARGUMENT");
}

TEST(QueuePairTest, PeersWithDifferentPathMtuFailAtOnce) {
  Pair pair;
  End c, d;
  c.open(pair.fabric, "stub0", 512);
  d.open(pair.fabric, "stub1", 512);
  c.make({}, 1);
  d.make({}, 2);
  PathParameters path = path_to(d);
  path.mtu_bytes = 1024;
  ASSERT_TRUE(c.queue_pair->connect(path).ok());
  ASSERT_TRUE(d.queue_pair->connect(path_to(c)).ok());
  Registered from(c.device, 64), to(d.device, 64);
  Chain chain(c.queue_pair->chain_options());
  chain.write({from.address(), to.address(), from.region->local_key(), to.region->remote_key(), 8});
  Tracked tracked;
  tracked.begin();
  ASSERT_EQ(c.queue_pair->post(chain, &tracked.operation), PostResult::kPosted);
  tracked.operation.seal();
  while (tracked.ended == 0) ASSERT_GE(c.completion_queue->poll(16), 0);
  EXPECT_NE(describe(tracked.operation.error()).find("compare path MTU"), std::string::npos);
}

}  // namespace
}  // namespace dualpath::test
