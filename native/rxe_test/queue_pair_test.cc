// What the strict stub provider is strict about, against a provider that others wrote.
#include "verbs/queue_pair.h"

#include <algorithm>
#include <string>

#include "rxe_pair.h"

namespace dualpath::test {
namespace {

constexpr size_t kBytes = 1 << 20;

void fill(Chain& chain, const Registered& from, const Registered& to, uint32_t requests, uint32_t bytes) {
  for (uint32_t i = 0; i < requests; i++) {
    const size_t place = size_t{2} * bytes * i;
    ASSERT_TRUE(chain.write(
        {from.address(place), to.address(place), from.region->local_key(), to.region->remote_key(), bytes}));
  }
}

TEST(RxeQueuePair, AChainIsOnePostAndOneCompletion) {
  RxePair pair;
  Registered from(pair.a.device, kBytes), to(pair.b.device, kBytes);
  std::fill_n(from.base(), kBytes, std::byte{7});
  Chain chain(pair.a.queue_pair->chain_options());
  for (const uint32_t requests : {1u, 8u, 64u}) {
    ProviderCalls::count(pair.a.device->context());
    fill(chain, from, to, requests, 4096);
    Tracked tracked;
    tracked.begin();
    ASSERT_EQ(pair.a.queue_pair->post(chain, &tracked.operation), PostResult::kPosted);
    tracked.operation.seal();
    ASSERT_TRUE(pair.until([&] { return tracked.ended == 1; }));
    EXPECT_TRUE(tracked.operation.error().ok());
    EXPECT_EQ(ProviderCalls::post_send, 1u) << requests;
    EXPECT_EQ(ProviderCalls::completions, 1u) << requests;
    const size_t last = size_t{2} * 4096 * (requests - 1);
    EXPECT_EQ(to.base()[last + 4095], std::byte{7});
    EXPECT_EQ(to.base()[last + 4096], std::byte{0xee}) << "a byte too far";
  }
}

TEST(RxeQueuePair, ReadsBringThePeersBytes) {
  RxePair pair;
  Registered to(pair.a.device, kBytes), from(pair.b.device, kBytes, RegionAccess::kPeersReadAndWrite);
  std::fill_n(from.base(), kBytes, std::byte{9});
  Chain chain(pair.a.queue_pair->chain_options());
  for (uint32_t i = 0; i < 4; i++) {
    ASSERT_TRUE(chain.read({to.address(8192 * i), from.address(16384 * i), to.region->local_key(),
                            from.region->remote_key(), 4000}));
  }
  Tracked tracked;
  tracked.begin();
  ASSERT_EQ(pair.a.queue_pair->post(chain, &tracked.operation), PostResult::kPosted);
  tracked.operation.seal();
  ASSERT_TRUE(pair.until([&] { return tracked.ended == 1; }));
  EXPECT_TRUE(tracked.operation.error().ok());
  EXPECT_EQ(to.base()[8192 * 3 + 3999], std::byte{9});
  EXPECT_EQ(to.base()[8192 * 3 + 4000], std::byte{0xee});
}

TEST(RxeQueuePair, MessagesGoBothWaysFarBeyondTheFirstCredits) {
  QueuePairOptions options;
  options.receive_entries = 8;
  RxePair pair(options);
  constexpr size_t kMessages = 200;
  size_t sent[2] = {0, 0};
  Chain at_a(pair.a.queue_pair->chain_options()), at_b(pair.b.queue_pair->chain_options());
  const auto send = [&](End& end, Chain& chain, size_t& count) {
    if (count == kMessages) return;
    if (chain.empty()) {
      const std::string text = "message " + std::to_string(count);
      ASSERT_TRUE(end.queue_pair->append_message(chain, bytes_of(text)));
    }
    if (end.queue_pair->post(chain, nullptr) == PostResult::kPosted) count++;
  };
  ASSERT_TRUE(pair.until([&] {
    send(pair.a, at_a, sent[0]);
    send(pair.b, at_b, sent[1]);
    return pair.a.recorder.messages.size() == kMessages && pair.b.recorder.messages.size() == kMessages;
  }));
  for (const End* const end : {&pair.a, &pair.b}) {
    EXPECT_EQ(end->recorder.messages[kMessages - 1], "message 199");
    EXPECT_TRUE(end->recorder.broken.empty());
  }
}

TEST(RxeQueuePair, AnAnnouncementComesAfterItsBytesAndAStaleOneIsDropped) {
  RxePair pair;
  Registered from(pair.a.device, kBytes), to(pair.b.device, kBytes);
  std::fill_n(from.base(), kBytes, std::byte{5});
  MemoryOwner owner([](void*, uint64_t) {}, nullptr, 0);
  uint32_t immediate = 0;
  ASSERT_TRUE(pair.b.queue_pair->landings().open(owner.hold(), 42, &immediate));
  const auto announce = [&] {
    Chain chain(pair.a.queue_pair->chain_options());
    fill(chain, from, to, 16, 4096);
    ASSERT_TRUE(chain.announce(immediate));
    ASSERT_EQ(pair.a.queue_pair->post(chain, nullptr), PostResult::kPosted);
  };
  announce();
  ASSERT_TRUE(pair.until([&] { return !pair.b.recorder.announced.empty(); }));
  EXPECT_EQ(pair.b.recorder.announced[0], 42u);
  for (size_t i = 0; i < 16; i++) EXPECT_EQ(to.base()[8192 * i + 4095], std::byte{5});
  ASSERT_TRUE(pair.b.queue_pair->landings().close(immediate));
  announce();
  ASSERT_TRUE(pair.until([&] { return pair.b.queue_pair->landings().stale() == 1; }));
  EXPECT_EQ(pair.b.recorder.announced.size(), 1u);
}

TEST(RxeQueuePair, AFullQueueMakesTheCallerWait) {
  QueuePairOptions options;
  options.send_entries = 16;
  RxePair pair(options);
  Registered from(pair.a.device, kBytes), to(pair.b.device, kBytes);
  Chain chain(pair.a.queue_pair->chain_options());
  ASSERT_EQ(chain.capacity(), 7u);
  Tracked tracked;
  tracked.begin();
  uint32_t again = 0;
  for (int i = 0; i < 50; i++) {
    fill(chain, from, to, 7, 4096);
    while (pair.a.queue_pair->post(chain, &tracked.operation) == PostResult::kAgain) {
      again++;
      pair.a.completion_queue->wait(0, now_ns() + 1'000'000'000);
    }
  }
  tracked.operation.seal();
  ASSERT_TRUE(pair.until([&] { return tracked.ended == 1; }));
  EXPECT_TRUE(tracked.operation.error().ok());
  EXPECT_GT(again, 0u);
  EXPECT_EQ(pair.a.queue_pair->counters().refused, 0u) << "the accounting kept within the queue";
}

TEST(RxeQueuePair, AWrongKeyBreaksBothEndsAndAllOfItComesOut) {
  RxePair pair;
  Registered from(pair.a.device, kBytes), to(pair.b.device, kBytes);
  Chain chain(pair.a.queue_pair->chain_options());
  Tracked good, bad, after;
  good.begin();
  fill(chain, from, to, 4, 4096);
  ASSERT_EQ(pair.a.queue_pair->post(chain, &good.operation), PostResult::kPosted);
  good.operation.seal();
  bad.begin();
  ASSERT_TRUE(chain.write(
      {from.address(), to.address(), from.region->local_key(), to.region->remote_key() ^ 0x5a00, 4096}));
  ASSERT_EQ(pair.a.queue_pair->post(chain, &bad.operation), PostResult::kPosted);
  bad.operation.seal();
  after.begin();
  fill(chain, from, to, 4, 4096);
  const bool posted = pair.a.queue_pair->post(chain, &after.operation) == PostResult::kPosted;
  after.operation.seal();
  ASSERT_TRUE(pair.until([&] { return pair.a.recorder.drained == 1; }));
  EXPECT_TRUE(good.operation.error().ok());
  EXPECT_EQ(bad.operation.error().status, IBV_WC_REM_ACCESS_ERR);
  ASSERT_EQ(pair.a.recorder.broken.size(), 1u);
  EXPECT_EQ(pair.a.recorder.broken[0].status, IBV_WC_REM_ACCESS_ERR)
      << "the first error, not what was flushed";
  EXPECT_FALSE(after.operation.error().ok());
  EXPECT_EQ(good.ended + bad.ended + after.ended, 3u);
  if (posted) {
    EXPECT_GT(pair.a.queue_pair->counters().flushed, 0u);
  }
}

TEST(RxeQueuePair, DrainingBringsOutTheMarkersOfBothQueues) {
  RxePair pair;
  Registered from(pair.a.device, kBytes), to(pair.b.device, kBytes);
  uint32_t released = 0;
  MemoryOwner owner([](void* context, uint64_t) { ++*static_cast<uint32_t*>(context); }, &released, 0);
  uint32_t immediate = 0;
  ASSERT_TRUE(pair.a.queue_pair->landings().open(owner.hold(), 1, &immediate));
  owner.retire();
  Chain chain(pair.a.queue_pair->chain_options());
  Tracked tracked;
  tracked.begin();
  fill(chain, from, to, 32, 16000);
  ASSERT_EQ(pair.a.queue_pair->post(chain, &tracked.operation), PostResult::kPosted);
  tracked.operation.seal();
  pair.a.queue_pair->drain();
  EXPECT_EQ(released, 0u) << "the peer may still write there";
  ASSERT_TRUE(pair.until([&] { return pair.a.recorder.drained == 1; }));
  EXPECT_EQ(pair.a.queue_pair->state(), QueuePair::State::kDrained);
  EXPECT_EQ(tracked.ended, 1u);
  EXPECT_EQ(released, 1u);
}

TEST(RxeQueuePair, APeerWithoutReceivesEndsTheRetries) {
  QueuePairOptions options;
  options.receive_entries = 4;
  RxePair pair(options, 1000);  // credits that the peer never gave
  Chain chain(pair.a.queue_pair->chain_options());
  const auto send = [&] {
    if (pair.a.queue_pair->state() != QueuePair::State::kReady) return;
    if (chain.empty() && !pair.a.queue_pair->append_message(chain, bytes_of("hello"))) return;
    pair.a.queue_pair->post(chain, nullptr);
  };
  const auto broken = [&] {
    send();
    return pair.a.recorder.drained == 1;
  };
  ASSERT_TRUE(pair.until(broken, false));
  ASSERT_EQ(pair.a.recorder.broken.size(), 1u);
  EXPECT_EQ(pair.a.recorder.broken[0].status, IBV_WC_RNR_RETRY_EXC_ERR);
  EXPECT_EQ(pair.a.recorder.broken[0].blame, Blame::kRemote);
}

TEST(RxeQueuePair, APeerThatIsGoneEndsTheRetries) {
  RxePair pair;
  Registered from(pair.a.device, kBytes), to(pair.b.device, kBytes);
  pair.b.queue_pair.reset();
  Chain chain(pair.a.queue_pair->chain_options());
  fill(chain, from, to, 4, 4096);
  Tracked tracked;
  tracked.begin();
  ASSERT_EQ(pair.a.queue_pair->post(chain, &tracked.operation), PostResult::kPosted);
  tracked.operation.seal();
  ASSERT_TRUE(pair.until([&] { return pair.a.recorder.drained == 1; }, false));
  EXPECT_EQ(pair.a.recorder.broken[0].blame, Blame::kRemote);
  EXPECT_EQ(tracked.ended, 1u);
}

TEST(RxeQueuePair, SleepingOnTheChannelMissesNothing) {
  RxePair pair;
  Registered from(pair.a.device, kBytes), to(pair.b.device, kBytes);
  Chain chain(pair.a.queue_pair->chain_options());
  for (int i = 0; i < 100; i++) {
    Tracked tracked;
    tracked.begin();
    fill(chain, from, to, 2, 64);
    ASSERT_EQ(pair.a.queue_pair->post(chain, &tracked.operation), PostResult::kPosted);
    tracked.operation.seal();
    while (tracked.ended == 0) {
      ASSERT_GT(pair.a.completion_queue->wait(0, now_ns() + kPatienceNs), 0) << "slept through a completion";
    }
  }
}

}  // namespace
}  // namespace dualpath::test
