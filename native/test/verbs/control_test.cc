// Messages, announcements and the credits that bound them.
#include <cstring>

#include "pair.h"

namespace dualpath::test {
namespace {

TEST(ControlTest, MessagesArriveInOrderAndNeverOutrunTheReceives) {
  QueuePairOptions options;
  options.send_entries = 64;
  options.receive_entries = 8;
  for (const uint32_t inline_bytes : {0u, 64u}) {
    options.inline_bytes = inline_bytes;
    Pair pair(options);
    Chain chain(pair.a.queue_pair->chain_options());
    EXPECT_EQ(pair.a.queue_pair->credits(), 7u);
    uint32_t sent = 0, rounds = 0;
    while (sent < 500 && rounds++ < 100'000) {
      if (pair.a.queue_pair->append_message(chain, bytes_of("message " + std::to_string(sent)))) {
        const PostResult result = pair.a.queue_pair->post(chain, nullptr);
        if (result == PostResult::kPosted) sent++;
        ASSERT_NE(result, PostResult::kFailed);
        chain.clear();
      }
      pair.a.completion_queue->poll(4);
      pair.b.completion_queue->poll(4);
    }
    ASSERT_TRUE(pair.settle());
    ASSERT_EQ(pair.b.recorder.messages.size(), 500u);
    for (uint32_t i = 0; i < 500; i++) {
      ASSERT_EQ(pair.b.recorder.messages[i], "message " + std::to_string(i));
    }
    EXPECT_GE(pair.a.queue_pair->credits(), 6u) << "all but those not yet worth telling";
    EXPECT_TRUE(pair.a.recorder.broken.empty());
    if (inline_bytes != 0) {
      EXPECT_EQ(pair.fabric->counters().inlined, 500u);
    }
  }
}

TEST(ControlTest, AnAnnouncementFollowsTheDataAndNamesTheLanding) {
  Pair pair;
  Registered from(pair.a.device, 4096), to(pair.b.device, 4096);
  std::fill_n(from.base(), 4096, std::byte{9});
  bool released = false;
  MemoryOwner target([](void* context, uint64_t) { *static_cast<bool*>(context) = true; }, &released, 0);
  LandingTable& landings = pair.b.queue_pair->landings();
  uint32_t immediate = 0;
  ASSERT_TRUE(landings.open(target.hold(), 4711, &immediate));
  Chain chain(pair.a.queue_pair->chain_options());
  for (uint32_t i = 0; i < 8; i++) {
    chain.write(
        {from.address(64 * i), to.address(64 * i), from.region->local_key(), to.region->remote_key(), 8});
  }
  ASSERT_TRUE(chain.announce(immediate));
  EXPECT_EQ(chain.size(), 8u) << "the last write carries it";
  EXPECT_EQ(chain.receives(), 1u);
  ASSERT_EQ(pair.a.queue_pair->post(chain, nullptr), PostResult::kPosted);
  while (pair.b.recorder.announced.empty()) pair.b.completion_queue->poll(1);
  EXPECT_EQ(pair.b.recorder.announced, std::vector<uint64_t>{4711});
  EXPECT_EQ(to.base()[64 * 7 + 7], std::byte{9}) << "all of the data is there";
  EXPECT_EQ(pair.fabric->counters().writes_with_immediate, 1u);

  target.retire();
  EXPECT_FALSE(released);
  ASSERT_TRUE(landings.close(immediate)) << "the peer says that it is done";
  EXPECT_TRUE(released);
  ASSERT_TRUE(chain.announce(immediate)) << "and yet it announces again";
  ASSERT_EQ(pair.a.queue_pair->post(chain, nullptr), PostResult::kPosted);
  ASSERT_TRUE(pair.settle());
  EXPECT_EQ(pair.b.recorder.announced.size(), 1u);
  EXPECT_EQ(landings.stale(), 1u);
}

TEST(ControlTest, AStaleGenerationIsNeverTakenForItsSuccessor) {
  LandingTable landings(2);
  uint32_t first = 0, second = 0, third = 0;
  uint64_t cookie = 0;
  ASSERT_TRUE(landings.open({}, 1, &first));
  ASSERT_TRUE(landings.open({}, 2, &second));
  EXPECT_FALSE(landings.open({}, 3, &third)) << "full";
  ASSERT_TRUE(landings.close(first));
  ASSERT_TRUE(landings.open({}, 3, &third));
  EXPECT_EQ(third >> 16, first >> 16) << "the same slot";
  EXPECT_FALSE(landings.find(first, &cookie));
  EXPECT_FALSE(landings.close(first));
  EXPECT_FALSE(landings.find(0x7777'0000, &cookie));
  ASSERT_TRUE(landings.find(third, &cookie));
  EXPECT_EQ(cookie, 3u);
  EXPECT_EQ(landings.stale(), 3u);
  EXPECT_EQ(landings.open_count(), 2u);
}

TEST(ControlTest, APeerThatPostsNoReceivesIsAnErrorAndNotAHang) {
  Pair pair;
  Chain chain(pair.a.queue_pair->chain_options());
  PathParameters path = path_to(pair.b);
  End liar;
  liar.open(pair.fabric, "stub0", 512);
  liar.make({}, 3);
  End victim;
  QueuePairOptions few;
  few.receive_entries = 4;
  victim.open(pair.fabric, "stub1", 512);
  victim.make(few, 4);
  path = path_to(victim);
  path.peer.receives = 100;  // not true
  ASSERT_TRUE(liar.queue_pair->connect(path).ok());
  ASSERT_TRUE(victim.queue_pair->connect(path_to(liar)).ok());
  for (int i = 0; i < 10; i++) ASSERT_TRUE(liar.queue_pair->append_message(chain, bytes_of("x")));
  Tracked tracked;
  tracked.begin();
  ASSERT_EQ(liar.queue_pair->post(chain, &tracked.operation), PostResult::kPosted);
  tracked.operation.seal();
  for (int i = 0; i < 10'000 && tracked.ended == 0; i++) liar.completion_queue->poll(16);
  EXPECT_EQ(tracked.ended, 1u);
  EXPECT_EQ(tracked.operation.error().status, IBV_WC_RNR_RETRY_EXC_ERR);
  EXPECT_EQ(tracked.operation.error().blame, Blame::kRemote);
}

}  // namespace
}  // namespace dualpath::test
