#include "verbs/completion_queue.h"

#include <poll.h>

#include <atomic>
#include <thread>

#include "core/clock.h"
#include "pair.h"

namespace dualpath::test {
namespace {

TEST(CompletionQueueTest, HoldsEverythingItsQueuePairsMayHaveOutstanding) {
  const auto fabric = std::make_shared<stub::StubFabric>();
  End end;
  end.open(fabric, "stub0", 700);
  end.make({}, 1);
  EXPECT_EQ(end.completion_queue->entries_used(), 320u);
  std::unique_ptr<QueuePair> second, third;
  ASSERT_TRUE(QueuePair::create(*end.completion_queue, {}, 2, &end.recorder, &second).ok());
  const Status status = QueuePair::create(*end.completion_queue, {}, 3, &end.recorder, &third);
  EXPECT_STREQ(status.code, "CAPACITY_EXHAUSTED");
  EXPECT_NE(status.message.find("60 of the completion queue's 700 entries"), std::string::npos)
      << status.message;
  second.reset();
  EXPECT_TRUE(QueuePair::create(*end.completion_queue, {}, 4, &end.recorder, &third).ok());
  std::unique_ptr<CompletionQueue> large;
  EXPECT_STREQ(CompletionQueue::create(end.device, 40'000, &large).code, "INVALID_ARGUMENT");
}

TEST(CompletionQueueTest, SleepsOnItsDescriptorAndLosesNoWakeUp) {
  Pair pair;
  Registered from(pair.a.device, 64), to(pair.b.device, 64);
  std::atomic<bool> stop{false};
  std::thread nic([&] {
    while (!stop) pair.fabric->step();
  });
  Chain chain(pair.a.queue_pair->chain_options());
  Tracked tracked;
  for (uint32_t i = 1; i <= 300; i++) {
    chain.write({from.address(), to.address(), from.region->local_key(), to.region->remote_key(), 8});
    tracked.begin();
    ASSERT_EQ(pair.a.queue_pair->post(chain, &tracked.operation), PostResult::kPosted);
    tracked.operation.seal();
    while (tracked.ended < i) {
      ASSERT_GT(pair.a.completion_queue->wait(0, now_ns() + 20'000'000'000u), 0) << "slept through " << i;
    }
  }
  stop = true;
  nic.join();
  EXPECT_EQ(pair.a.completion_queue->wait(1000, now_ns()), 0) << "nothing more, and the deadline has passed";
}

TEST(CompletionQueueTest, AnOverflowIsFatalAndReported) {
  stub::StubFabric fabric;
  int count = 0;
  ibv_device** list = fabric.get_device_list(&count);
  ibv_context* context = fabric.open_device(list[0]);
  fabric.free_device_list(list);
  ibv_pd* pd = fabric.alloc_pd(context);
  ibv_cq* cq = fabric.create_cq(context, 2, nullptr, nullptr);
  ibv_qp_init_attr init{};
  init.send_cq = init.recv_cq = cq;
  init.qp_type = IBV_QPT_RC;
  init.cap = {4, 4, 1, 1, 0};
  ibv_qp* qp = fabric.create_qp(pd, &init);
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_INIT;
  attr.port_num = 1;
  ASSERT_EQ(fabric.modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS),
            0);
  for (int i = 0; i < 3; i++) {
    ibv_recv_wr receive{};
    ibv_recv_wr* bad = nullptr;
    ASSERT_EQ(ibv_post_recv(qp, &receive, &bad), 0);
  }
  attr.qp_state = IBV_QPS_ERR;
  ASSERT_EQ(fabric.modify_qp(qp, &attr, IBV_QP_STATE), 0);
  for (int i = 0; i < 100; i++) fabric.step();
  ibv_wc wc[4];
  EXPECT_EQ(ibv_poll_cq(cq, 4, wc), -1);
  ibv_async_event event{};
  ASSERT_EQ(fabric.get_async_event(context, &event), 0);
  EXPECT_EQ(event.event_type, IBV_EVENT_CQ_ERR);
  EXPECT_EQ(fabric.destroy_cq(cq), EBUSY) << "queue pairs first";
  fabric.destroy_qp(qp);
  EXPECT_EQ(fabric.destroy_cq(cq), 0);
  EXPECT_EQ(fabric.dealloc_pd(pd), 0);
  EXPECT_EQ(fabric.close_device(context), 0);
  EXPECT_EQ(fabric.objects(), 0u);
}

// Each end on its own thread, as two engines have it.
TEST(CompletionQueueTest, TwoThreadsTalk) {
  QueuePairOptions options;
  options.receive_entries = 8;
  Pair pair(options);
  constexpr uint32_t kEach = 400;
  const auto run = [](End& end) {
    Chain chain(end.queue_pair->chain_options());
    uint32_t sent = 0;
    while (sent < kEach || end.recorder.messages.size() < kEach) {
      if (sent < kEach && end.queue_pair->append_message(chain, bytes_of(std::to_string(sent)))) {
        if (end.queue_pair->post(chain, nullptr) == PostResult::kPosted) sent++;
        chain.clear();
      }
      ASSERT_GE(end.completion_queue->poll(16), 0);
    }
  };
  std::thread other([&] { run(pair.b); });
  run(pair.a);
  other.join();
  for (uint32_t i = 0; i < kEach; i++) {
    ASSERT_EQ(pair.a.recorder.messages[i], std::to_string(i));
    ASSERT_EQ(pair.b.recorder.messages[i], std::to_string(i));
  }
}

}  // namespace
}  // namespace dualpath::test
