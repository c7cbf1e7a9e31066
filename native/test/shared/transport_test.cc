// Engines that meet over shared memory. Both are in this process here, each with mappings of its own of the
// other's memory; test/hosts has them in processes of their own.
#include "shared/transport.h"

#include <gtest/gtest.h>
#include <string.h>

#include "test/transfer/harness.h"
#include "test/transfer/kv.h"

namespace dualpath::test {
namespace {

using shared::Invitation;
using shared::Mailbox;
using shared::SharedTransport;

constexpr uint32_t kTokens = 16;
constexpr uint32_t kBlocks = 4;

std::shared_ptr<const Geometry> shared_blocks(const Shape& shape) {
  GeometryOptions options = full_blocks(shape, kBlocks)->options();
  ArenaOptions arena;
  arena.name = "shared";
  arena.bytes = options.arena->bytes();
  arena.shared = true;
  EXPECT_TRUE(Arena::create(arena, &options.arena).ok());
  memset(options.arena->base(), 0xee, arena.bytes);
  std::shared_ptr<const Geometry> geometry;
  EXPECT_TRUE(Geometry::create(std::move(options), &geometry).ok());
  return geometry;
}

class SharedTransportTest : public ::testing::Test {
 protected:
  SharedTransportTest() {
    sender_ = std::make_unique<Engine>(*reactor_, "sender");
    receiver_ = std::make_unique<Engine>(*second_reactor_, "receiver");
    from_ = sender_->add_geometry(source_);
    to_ = receiver_->add_geometry(target_);
    EXPECT_TRUE(SharedTransport::create(sender_->shared_native(), *reactor_, &sending_).ok());
    EXPECT_TRUE(SharedTransport::create(receiver_->shared_native(), *second_reactor_, &receiving_).ok());
    EXPECT_TRUE(receiving_->invite(&invitation_).ok());
    const Status status = sending_->add_peer("receiver", invitation_, &peer_);
    EXPECT_TRUE(status.ok()) << status.message;
  }

  dp_descriptor send(uint16_t layers = 0) {
    dp_descriptor d = describe(DP_OP_SEND);
    d.src_geometry = from_;
    d.dst_geometry = to_;
    d.src_list = d.dst_list = sender_->list({0, 1, 2, 3});
    d.list_count = kBlocks;
    d.token_end = kBlocks * kTokens;
    d.layer_count = layers != 0 ? layers : static_cast<uint16_t>(shape_.layers.size());
    d.peer = peer_;
    d.signal[0] = remote(ordered(receiver_->door().counter_handle(0)));
    d.signal[1] = add(1);
    return d;
  }

  const Shape shape_ = uniform_shape(50, kTokens, {{1024, 0}});
  const std::shared_ptr<const Geometry> source_ = full_blocks(shape_, kBlocks);
  const std::shared_ptr<const Geometry> target_ = shared_blocks(shape_);
  std::unique_ptr<Reactor> reactor_ = make_reactor();
  std::unique_ptr<Reactor> second_reactor_ = make_reactor();
  std::unique_ptr<Engine> sender_, receiver_;
  std::shared_ptr<SharedTransport> sending_, receiving_;
  Invitation invitation_;
  uint32_t from_ = DP_NONE, to_ = DP_NONE, peer_ = DP_NONE;
};

TEST_F(SharedTransportTest, LayersArriveWithTheirSignals) {
  const std::vector<uint32_t> slots{0, 1, 2, 3};
  const auto seeds = seeds_of(kBlocks * kTokens);
  write_kv(*source_, slots, {0, kBlocks * kTokens}, seeds);
  const dp_record record = sender_->run({send()});
  EXPECT_EQ(record.status, DP_ERROR_NONE);
  EXPECT_EQ(record.bytes_moved, kBlocks * shape_.block_bytes());
  EXPECT_TRUE(receiver_->reaches(0, shape_.layers.size()));
  expect_kv(*target_, slots, {0, kBlocks * kTokens}, seeds);
  EXPECT_EQ(sender_->counter(1), shape_.layers.size());
  EXPECT_EQ(sending_->statistics().sent_bytes.at(0).second, record.bytes_moved);
  EXPECT_EQ(receiving_->statistics().bad_signals, 0u);
}

TEST_F(SharedTransportTest, MoreSignalsThanAMailboxHoldsAllArrive) {
  constexpr uint32_t kPrograms = 8;
  constexpr uint32_t kSteps = Mailbox::kEntries;
  for (uint32_t i = 0; i < kPrograms; i++) {
    dp_descriptor bump = describe(DP_OP_BUMP);
    bump.layer_count = kSteps;
    bump.peer = peer_;
    bump.signal[0] = remote(add(receiver_->door().counter_handle(2)));
    EXPECT_EQ(sender_->run({bump}).status, DP_ERROR_NONE);
  }
  EXPECT_TRUE(receiver_->reaches(2, uint64_t{kPrograms} * kSteps));
}

TEST_F(SharedTransportTest, ASignalForAnEarlierUseOfACounterIsDropped) {
  const dp_descriptor late = send(1);
  receiver_->door().zero_counters(0, 1);
  EXPECT_EQ(sender_->run({late}).status, DP_ERROR_NONE);
  EXPECT_TRUE(eventually([&] { return receiver_->door().stale_signals() == 1; }));
  EXPECT_EQ(receiver_->counter(0), 0u);
}

TEST_F(SharedTransportTest, WhoIsShutOutWritesNothing) {
  EXPECT_TRUE(receiving_->shut_out(invitation_.mailbox));
  EXPECT_EQ(sender_->run({send()}).status, DP_ERROR_PEER);
  const auto memory = memory_of(*target_);
  EXPECT_TRUE(untouched(memory.data(), memory.size()));
  EXPECT_EQ(receiver_->counter(0), 0u);
  // Another mailbox, and it may again.
  ASSERT_TRUE(receiving_->invite(&invitation_).ok());
  ASSERT_TRUE(sending_->add_peer("receiver", invitation_, &peer_).ok());
  EXPECT_EQ(sender_->run({send()}).status, DP_ERROR_NONE);
}

TEST_F(SharedTransportTest, WhoIsInTheMidstOfACopyIsNotQuiet) {
  std::unique_ptr<shared::Segment> segment;
  ASSERT_TRUE(shared::Segment::map(invitation_.segment_fd, invitation_.nonce, &segment).ok());
  Mailbox& mailbox = segment->mailbox(invitation_.mailbox);
  {
    const shared::Writing stopped(mailbox);
    EXPECT_TRUE(stopped.allowed());
    EXPECT_FALSE(receiving_->shut_out(invitation_.mailbox));
  }
  EXPECT_TRUE(receiving_->shut_out(invitation_.mailbox));
  EXPECT_FALSE(shared::Writing(mailbox).allowed());
}

TEST_F(SharedTransportTest, NothingIsSentToAPeerThatIsLost) {
  sending_->lose(peer_);
  EXPECT_EQ(sender_->run({send()}).status, DP_ERROR_PEER);
}

TEST_F(SharedTransportTest, AReceiverMayCloseWhileItIsWrittenTo) {
  sender_->submit({send(), send(), send()});
  receiver_.reset();
  receiving_.reset();
  const uint8_t status = sender_->next().status;
  EXPECT_TRUE(status == DP_ERROR_PEER || status == DP_ERROR_NONE);
}

TEST_F(SharedTransportTest, ASenderMayCloseInTheMidst) {
  sender_->submit({send(), send(), send()});
  sender_.reset();
  sending_.reset();
  EXPECT_TRUE(receiving_->shut_out(invitation_.mailbox));
}

TEST_F(SharedTransportTest, ACancelledStepEnds) {
  // The mailbox is full, as of an engine that was stopped.
  std::unique_ptr<shared::Segment> segment;
  ASSERT_TRUE(shared::Segment::map(invitation_.segment_fd, invitation_.nonce, &segment).ok());
  second_reactor_->call([&] {
    Mailbox& mailbox = segment->mailbox(invitation_.mailbox);
    mailbox.tail.store(Mailbox::kEntries);
    const uint32_t id = sender_->submit({send()});
    usleep(2000);
    sender_->cancel(id);
    EXPECT_EQ(sender_->next().status, DP_ERROR_CANCELLED);
    mailbox.tail.store(0);
  });
}

TEST_F(SharedTransportTest, NonsenseInAMailboxShutsIt) {
  std::unique_ptr<shared::Segment> segment;
  ASSERT_TRUE(shared::Segment::map(invitation_.segment_fd, invitation_.nonce, &segment).ok());
  Mailbox& mailbox = segment->mailbox(invitation_.mailbox);
  mailbox.entries[0] = {0xffffffff, 77, 1};
  mailbox.tail.store(1);
  second_reactor_->call([] {});
  EXPECT_TRUE(eventually([&] { return receiving_->statistics().bad_signals == 1; }));
  mailbox.tail.store(Mailbox::kEntries * 2 + 5);
  second_reactor_->call([] {});
  EXPECT_TRUE(eventually([&] { return mailbox.open.load() == 0; }));
}

TEST_F(SharedTransportTest, AnInvitationThatCannotBeIsRefused) {
  uint32_t peer;
  Invitation other = invitation_;
  other.nonce++;
  EXPECT_STREQ(sending_->add_peer("x", other, &peer).code, "INVALID_ARGUMENT");
  other = invitation_;
  other.segment_fd = 1 << 20;
  const Status gone = sending_->add_peer("x", other, &peer);
  EXPECT_STREQ(gone.code, "PEER_LOST");
  EXPECT_NE(gone.message.find("/proc/"), std::string::npos);
  other = invitation_;
  other.geometries[0].layout.slots *= 1000;
  EXPECT_STREQ(sending_->add_peer("x", other, &peer).code, "INVALID_ARGUMENT");
  other = invitation_;
  other.mailbox = shared::Segment::kMailboxes;
  EXPECT_STREQ(sending_->add_peer("x", other, &peer).code, "INVALID_ARGUMENT");
}

TEST_F(SharedTransportTest, MemoryOfOnesOwnIsNotShared) {
  Invitation invitation;
  EXPECT_STREQ(sending_->invite(&invitation).code, "INVALID_ARGUMENT");
}

TEST_F(SharedTransportTest, MailboxesAreNotGivenTwice) {
  Status status;
  uint32_t given = 1;
  for (; given <= shared::Segment::kMailboxes && status.ok(); given++) {
    Invitation next;
    status = receiving_->invite(&next);
    if (status.ok()) {
      EXPECT_EQ(next.mailbox, given);
    }
  }
  EXPECT_STREQ(status.code, "CAPACITY_EXHAUSTED");
}

}  // namespace
}  // namespace dualpath::test
