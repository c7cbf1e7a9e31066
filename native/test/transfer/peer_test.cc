// Peers that are not there, close, or close in the middle.
#include <gtest/gtest.h>
#include <string.h>

#include <thread>

#include "test/transfer/harness.h"
#include "test/transfer/kv.h"

namespace dualpath::test {
namespace {

constexpr uint32_t kTokens = 16;

class PeerTest : public ::testing::Test {
 protected:
  PeerTest() {
    EngineOptions options;
    options.links.nic_egress = std::make_shared<NicLink>("egress", 10'000'000);
    options.chunk_bytes = 16 << 10;
    sender_ = std::make_unique<Engine>(*reactor_, "sender", options);
    receiver_ = std::make_unique<Engine>(*second_reactor_, "receiver");
    from_ = sender_->add_geometry(full_blocks(shape_, 4));
    to_ = receiver_->add_geometry(target_);
    peer_ = sender_->connect("receiver");
  }

  dp_descriptor send() {
    dp_descriptor d = describe(DP_OP_SEND);
    d.src_geometry = from_;
    d.dst_geometry = to_;
    d.src_list = d.dst_list = sender_->list({0, 1, 2, 3});
    d.list_count = 4;
    d.token_end = 4 * kTokens;
    d.layer_count = static_cast<uint16_t>(shape_.layers.size());
    d.peer = peer_;
    d.signal[0] = remote(ordered(0));
    d.signal[1] = add(1);
    return d;
  }

  const Shape shape_ = uniform_shape(50, kTokens, {{1024, 0}});
  const std::shared_ptr<const Geometry> target_ = full_blocks(shape_, 4);
  std::unique_ptr<Reactor> reactor_ = make_reactor();
  std::unique_ptr<Reactor> second_reactor_ = make_reactor();
  std::unique_ptr<Engine> sender_;
  std::unique_ptr<Engine> receiver_;
  uint32_t from_, to_, peer_;
};

TEST_F(PeerTest, NobodyOfThatName) {
  uint32_t peer;
  const Status status = sender_->native().connect("nobody", &peer);
  EXPECT_STREQ(status.code, "PEER_LOST");
  EXPECT_NE(status.message.find("'nobody'"), std::string::npos);
}

TEST_F(PeerTest, ANameIsTakenUntilItsEngineCloses) {
  FaultPlan faults;
  EngineOptions options;
  ASSERT_TRUE(Door::create(small_door(), &options.door).ok());
  options.name = "receiver";
  options.max_programs = 4;
  std::shared_ptr<TransferEngine> engine;
  EXPECT_STREQ(TransferEngine::create(options, &faults, &engine).code, "INVALID_ARGUMENT");
  receiver_->request_close();
  EXPECT_TRUE(TransferEngine::create(options, &faults, &engine).ok());
  receiver_.reset();  // the late end of the first takes nothing from its successor
  uint32_t peer;
  EXPECT_TRUE(sender_->native().connect("receiver", &peer).ok());
}

TEST_F(PeerTest, ASendToAClosedPeerFails) {
  receiver_->request_close();
  dp_descriptor dependant = describe(DP_OP_BUMP);
  dependant.wait[0] = wait_for(1, 1);
  dependant.signal[0] = add(2);
  const dp_record record = sender_->run({dependant, send()});
  EXPECT_EQ(record.status, DP_ERROR_PEER);
  EXPECT_EQ(record.error_index, 1u);
  EXPECT_EQ(record.error_block, 0u);
  EXPECT_EQ(record.bytes_moved, 0u);
  EXPECT_EQ(sender_->counter(2), 0u);
}

TEST_F(PeerTest, ABumpAtAClosedPeerFailsAndRaisesNothingAfterIt) {
  receiver_->request_close();
  dp_descriptor bump = describe(DP_OP_BUMP);
  bump.peer = peer_;
  bump.signal[0] = remote(add(0));
  bump.signal[1] = add(1);
  EXPECT_EQ(sender_->run({bump}).status, DP_ERROR_PEER);
  EXPECT_EQ(sender_->counter(1), 0u);
}

TEST_F(PeerTest, NothingIsWrittenOnceRequestCloseHasReturned) {
  const uint32_t id = sender_->submit({send()});
  ASSERT_TRUE(receiver_->reaches(0, 5));  // in the middle: all of it takes 328 ms
  receiver_->request_close();
  const auto memory = memory_of(*target_);
  const std::vector<std::byte> then(memory.begin(), memory.end());
  const uint64_t counter = receiver_->counter(0);
  const dp_record record = sender_->next();
  EXPECT_EQ(record.program, id);
  EXPECT_EQ(record.status, DP_ERROR_PEER);
  EXPECT_GT(record.bytes_moved, 4 * shape_.layer_bytes(0));
  EXPECT_LT(record.bytes_moved, 4 * shape_.block_bytes());
  EXPECT_EQ(memcmp(memory.data(), then.data(), then.size()), 0);
  EXPECT_EQ(receiver_->counter(0), counter);
  EXPECT_LT(sender_->counter(1), 50u);
}

TEST_F(PeerTest, AReceiverMayGoAwayWholeWhileItIsWrittenTo) {
  for (int round = 0; round < 20; round++) {
    const std::string name = "brief" + std::to_string(round);
    auto brief = std::make_unique<Engine>(*second_reactor_, name);
    dp_descriptor d = send();
    d.dst_geometry = brief->add_geometry(full_blocks(shape_, 4));
    d.peer = sender_->connect(name);
    sender_->submit({d});
    if (round % 2 == 0) brief->reaches(0, 1);
    brief.reset();
    EXPECT_EQ(sender_->next().status, DP_ERROR_PEER);
  }
}

TEST_F(PeerTest, ASenderMayCloseWhileItSends) {
  sender_->submit({send()});
  ASSERT_TRUE(receiver_->reaches(0, 3));
  sender_->request_close();
  const dp_record record = sender_->next();
  EXPECT_EQ(record.status, DP_ERROR_CLOSED);
  sender_.reset();
  EXPECT_LT(receiver_->counter(0), 50u);
}

// Writers hold the endpoint's lock all the time; close() must get its turn at once.
TEST_F(PeerTest, CloseIsNotHeldOffByAStreamOfWriters) {
  const Geometry& source = *target_;
  const auto endpoint = std::make_shared<LoopbackEndpoint>("stream", receiver_->shared_door(), nullptr);
  ASSERT_TRUE(loopback::listen(endpoint).ok());
  uint32_t id;
  ASSERT_TRUE(endpoint->geometries().add(full_blocks(shape_, 4), &id));
  const uint32_t slots[] = {0, 1, 2, 3};
  std::vector<std::thread> writers;
  std::atomic<int> writing{0};
  for (uint32_t w = 0; w < 3; w++) {
    writers.emplace_back([&, w] {
      std::unique_ptr<Peer> peer;
      if (!loopback::connect("stream", &peer).ok()) return;
      const SendPart part{&source, 0, id, slots + w, slots + w, 1, w, 0, {0, kTokens}, 0};
      uint64_t bytes;
      bool first = true;
      while (peer->write(part, &bytes) == PeerResult::kOk) {
        if (std::exchange(first, false)) writing++;
      }
    });
  }
  while (writing.load() < 3) usleep(100);
  const uint64_t begin = now_ns();
  endpoint->close();
  EXPECT_LT(now_ns() - begin, 5'000'000'000u);
  for (std::thread& writer : writers) writer.join();
  loopback::forget(*endpoint);
}

}  // namespace
}  // namespace dualpath::test
