// COPY and SEND: layers between geometries.
#include <gtest/gtest.h>

#include "test/transfer/harness.h"
#include "test/transfer/kv.h"

namespace dualpath::test {
namespace {

constexpr uint32_t kLayers = 6;
constexpr uint32_t kTokens = 8;
constexpr uint32_t kWindow = 2;  // layers in staging

class LayersTest : public ::testing::Test {
 protected:
  // Both engines on one reactor, or one each.
  explicit LayersTest(bool two_reactors = false)
      : second_reactor_(two_reactors ? make_reactor() : nullptr),
        here_(*reactor_, "here"),
        there_(two_reactors ? *second_reactor_ : *reactor_, "there") {
    buffer_id_ = here_.add_geometry(buffer_);
    staging_id_ = here_.add_geometry(staging_);
    paged_id_ = here_.add_geometry(paged_);
    remote_id_ = there_.add_geometry(remote_);
    peer_ = here_.connect("there");
  }

  // Whole blocks first_block .. of the lists.
  static dp_descriptor layers(dp_op op, uint32_t src, uint32_t src_list, uint32_t dst, uint32_t dst_list,
                              uint32_t blocks) {
    dp_descriptor d = describe(op);
    d.src_geometry = src;
    d.dst_geometry = dst;
    d.src_list = src_list;
    d.dst_list = dst_list;
    d.list_count = blocks;
    d.token_end = blocks * kTokens;
    d.layer_count = kLayers;
    return d;
  }

  const Shape shape_ = uniform_shape(kLayers, kTokens, {{82, 0}, {20, 24}, {36, 0}});
  const std::shared_ptr<const Geometry> buffer_ = full_blocks(shape_, 8);
  const std::shared_ptr<const Geometry> staging_ = staging(shape_, 8, kWindow);
  const std::shared_ptr<const Geometry> paged_ = interleaved(shape_, 8, 6);
  const std::shared_ptr<const Geometry> remote_ = full_blocks(shape_, 8);
  const std::vector<uint64_t> seeds_ = seeds_of(8 * kTokens);
  std::unique_ptr<Reactor> reactor_ = make_reactor();
  std::unique_ptr<Reactor> second_reactor_;
  Engine here_;
  Engine there_;
  uint32_t buffer_id_, staging_id_, paged_id_, remote_id_, peer_;
};

class TwoReactorsTest : public LayersTest {
 protected:
  TwoReactorsTest() : LayersTest(true) {}
};

TEST_F(LayersTest, CopiesBetweenLayoutsAndSlotsInAnyOrder) {
  const std::vector<uint32_t> from{6, 1, 4};
  const std::vector<uint32_t> to{0, 7, 3};
  write_kv(*buffer_, from, {0, 3 * kTokens}, seeds_);
  dp_descriptor d = layers(DP_OP_COPY, buffer_id_, here_.list(from), paged_id_, here_.list(to), 3);
  d.signal[0] = ordered(0);
  d.signal[1] = add(1, 100);
  const dp_record record = here_.run({d});
  EXPECT_EQ(record.status, DP_ERROR_NONE);
  EXPECT_EQ(record.bytes_moved, 3 * shape_.block_bytes());
  EXPECT_EQ(here_.counter(0), kLayers);
  EXPECT_EQ(here_.counter(1), 100u * kLayers);
  EXPECT_EQ(here_.statistics().copy_bytes.load(), 3 * shape_.block_bytes());
  EXPECT_EQ(here_.statistics().copy_steps.load(), kLayers);
  expect_kv(*paged_, to, {0, 3 * kTokens}, seeds_);
  for (const uint32_t slot : {1, 2, 4, 5, 6}) {
    EXPECT_TRUE(untouched(paged_->slot(slot), paged_->slot_stride_bytes())) << "slot " << slot;
  }
}

TEST_F(LayersTest, MovesOnlyTheTokensAskedFor) {
  const std::vector<uint32_t> slots{2, 5, 0};
  write_kv(*buffer_, slots, {0, 3 * kTokens}, seeds_);
  dp_descriptor d = layers(DP_OP_COPY, buffer_id_, here_.list(slots), paged_id_, here_.list(slots), 3);
  d.token_begin = 3;
  d.token_end = 2 * kTokens + 1;
  const dp_record record = here_.run({d});
  EXPECT_EQ(record.bytes_moved, (d.token_end - d.token_begin) * shape_.block_bytes() / kTokens);
  expect_kv(*paged_, slots, {3, 2 * kTokens + 1}, seeds_);
  for (const TokenRange outside : {TokenRange{0, 3}, TokenRange{2 * kTokens + 1, 3 * kTokens}}) {
    const auto check = check_kv(*paged_, slots, outside, seeds_);
    EXPECT_GT(check.mismatched_bytes, check.checked_bytes * 9 / 10);  // 0xee may be right by chance
  }
}

TEST_F(LayersTest, MovesOnlyTheLayersAskedForAndBlocksLateInTheSequence) {
  const std::vector<uint32_t> slots{3, 1};
  write_kv(*buffer_, {7, 7, 7, 7, 3, 1}, {4 * kTokens, 6 * kTokens}, seeds_);
  dp_descriptor d = layers(DP_OP_COPY, buffer_id_, here_.list(slots), paged_id_, here_.list(slots), 2);
  d.first_block = 4;
  d.token_begin = 4 * kTokens;
  d.token_end = 6 * kTokens;
  d.first_layer = 2;
  d.layer_count = 3;
  d.signal[0] = ordered(0, 50);
  EXPECT_EQ(here_.run({d}).bytes_moved, 2 * 3 * shape_.layer_bytes(0));
  EXPECT_EQ(here_.counter(0), 53u);
  for (uint32_t l = 0; l < kLayers; l++) {
    const auto check = check_layer(*paged_, {7, 7, 7, 7, 3, 1}, l, {4 * kTokens, 6 * kTokens}, seeds_);
    EXPECT_EQ(check.mismatched_bytes == 0, l >= 2 && l < 5) << "layer " << l;
  }
}

TEST_F(LayersTest, WindowedPlanesMoveOnlyWhatTheQuerySees) {
  const std::vector<uint32_t> slots{0, 1, 2, 3, 4, 5, 6, 7};
  write_kv(*buffer_, slots, {0, 64}, seeds_);
  dp_descriptor d = layers(DP_OP_COPY, buffer_id_, here_.list(slots), paged_id_, here_.list(slots), 8);
  d.window_end = 60;
  const dp_record record = here_.run({d});
  EXPECT_EQ(record.bytes_moved, kLayers * uint64_t{64 * (82 + 36) + (64 - 37) * 20});
  expect_kv(*paged_, slots, {0, 64}, seeds_, 60);
  EXPECT_TRUE(untouched(paged_->at(4, 0, paged_->planes(0)[1], 4), 20)) << "token 36 is out of sight";
  EXPECT_FALSE(untouched(paged_->at(4, 0, paged_->planes(0)[1], 5), 20)) << "token 37 is seen";
}

// Full Block buffer -> staging window of 2 layers -> the peer's buffer; F frees a staging place.
void run_staged(Engine& here, Engine& there, dp_descriptor copy, dp_descriptor send, uint32_t peer) {
  constexpr uint32_t kA = 0, kF = 1, kD = 2;
  copy.wait[0] = wait_for(kF, 1 - uint64_t{kWindow}, 1, kWindow);
  copy.signal[0] = ordered(kA);
  send.peer = peer;
  send.wait[0] = wait_for(kA, 1, 1);
  send.signal[0] = ordered(kF);
  send.signal[1] = remote(ordered(kD));
  EXPECT_EQ(here.run({send, copy}).status, DP_ERROR_NONE);
  EXPECT_EQ(here.counter(kA), kLayers);
  EXPECT_EQ(here.counter(kF), kLayers);
  EXPECT_EQ(there.counter(kD), kLayers);
}

TEST_F(LayersTest, ThroughAStagingWindowToAPeer) {
  const std::vector<uint32_t> a{6, 1, 4}, b{5, 0, 2}, c{7, 3, 0};
  write_kv(*buffer_, a, {0, 24}, seeds_);
  run_staged(here_, there_, layers(DP_OP_COPY, buffer_id_, here_.list(a), staging_id_, here_.list(b), 3),
             layers(DP_OP_SEND, staging_id_, here_.list(b), remote_id_, here_.list(c), 3), peer_);
  expect_kv(*remote_, c, {0, 24}, seeds_);
  EXPECT_EQ(here_.statistics().send_bytes.load(), 3 * shape_.block_bytes());
  EXPECT_EQ(here_.statistics().send_steps.load(), kLayers);
}

TEST_F(TwoReactorsTest, ThroughAStagingWindowToAPeerOnAnotherThread) {
  const std::vector<uint32_t> a{6, 1, 4}, b{5, 0, 2};
  write_kv(*buffer_, a, {0, 24}, seeds_);
  const uint32_t list_a = here_.list(a), list_b = here_.list(b);
  for (uint32_t round = 0; round < 5; round++) {
    const std::vector<uint32_t> c{round, round + 2, round + 1};
    dp_descriptor copy = layers(DP_OP_COPY, buffer_id_, list_a, staging_id_, list_b, 3);
    dp_descriptor send = layers(DP_OP_SEND, staging_id_, list_b, remote_id_, here_.list(c), 3);
    const uint32_t base = round * 10;
    copy.wait[0] = wait_for(base + 1, 1 - uint64_t{kWindow}, 1, kWindow);
    copy.signal[0] = ordered(base);
    send.peer = peer_;
    send.wait[0] = wait_for(base, 1, 1);
    send.signal[0] = ordered(base + 1);
    send.signal[1] = remote(ordered(base));
    dp_descriptor at_peer = describe(DP_OP_BUMP);
    at_peer.wait[0] = wait_for(base, kLayers);
    there_.submit({at_peer});
    EXPECT_EQ(here_.run({copy, send}).status, DP_ERROR_NONE);
    EXPECT_EQ(there_.next().status, DP_ERROR_NONE) << "the peer's bump wakes its reactor";
    expect_kv(*remote_, c, {0, 24}, seeds_);
  }
}

// Split read: each side brings some blocks; a layer is there when both counters say so.
TEST_F(TwoReactorsTest, TwoContributorsToOneBuffer) {
  const auto other_source = full_blocks(shape_, 8);
  const uint32_t other_id = there_.add_geometry(other_source);
  const uint32_t back = there_.connect("here");
  const std::vector<uint32_t> mine{0, 1}, theirs{4, 5}, all{3, 6, 2, 0};
  write_kv(*buffer_, mine, {0, 16}, seeds_);
  write_kv(*other_source, {7, 7, 4, 5}, {16, 32}, seeds_);

  dp_descriptor local = layers(DP_OP_COPY, buffer_id_, here_.list(mine), paged_id_, here_.list({3, 6}), 2);
  local.signal[0] = ordered(0);
  dp_descriptor whole = describe(DP_OP_BUMP);
  whole.layer_count = kLayers;
  whole.flags = DP_FLAG_EVENT;
  whole.wait[0] = wait_for(0, 1, 1);
  whole.wait[1] = wait_for(1, 1, 1);
  dp_descriptor incoming =
      layers(DP_OP_SEND, other_id, there_.list(theirs), paged_id_, there_.list({2, 0}), 2);
  incoming.first_block = 2;
  incoming.token_begin = 16;
  incoming.token_end = 32;
  incoming.peer = back;
  incoming.wait[0] = wait_for(9, 1, 1);  // held back, a layer at a time
  incoming.signal[0] = remote(ordered(1));
  const uint32_t outgoing = there_.submit({incoming});
  here_.submit({whole, local});
  for (uint32_t l = 0; l < kLayers; l++) {
    there_.bump(9);
    const dp_record record = here_.next();
    ASSERT_EQ(record.kind, DP_RECORD_STEP);
    EXPECT_EQ(record.step, l);
    const auto check = check_layer(*paged_, all, l, {0, 32}, seeds_);
    EXPECT_EQ(check.checked_bytes, 4 * shape_.layer_bytes(l));
    EXPECT_EQ(check.mismatched_bytes, 0u);
  }
  EXPECT_EQ(here_.next().kind, DP_RECORD_PROGRAM);
  EXPECT_EQ(there_.next().program, outgoing);
}

TEST_F(LayersTest, AnInjectedFlipIsDeliveredInsideTheTokensMoved) {
  const std::vector<uint32_t> slots{0, 1, 2};
  write_kv(*buffer_, slots, {0, 24}, seeds_);
  write_kv(*paged_, slots, {0, 24}, seeds_);
  dp_descriptor d = layers(DP_OP_COPY, buffer_id_, here_.list(slots), paged_id_, here_.list(slots), 3);
  d.token_begin = 13;
  d.token_end = 20;
  reactor_->faults().flip_byte_after = 2;
  EXPECT_EQ(here_.run({d}).status, DP_ERROR_NONE);
  EXPECT_EQ(check_kv(*paged_, slots, {13, 20}, seeds_).mismatched_bytes, 1u);
  EXPECT_EQ(check_kv(*paged_, slots, {0, 24}, seeds_).mismatched_bytes, 1u);
  EXPECT_EQ(check_layer(*paged_, slots, 1, {0, 24}, seeds_).mismatched_bytes, 1u) << "the second chunk";
}

TEST_F(LayersTest, ManyProgramsAtOnceInSmallChunks) {
  EngineOptions options;
  options.chunk_bytes = 1000;  // less than a block
  Engine engine(*reactor_, "chunky", options);
  const auto source = full_blocks(shape_, 8);
  const auto target = full_blocks(shape_, 8);
  const uint32_t source_id = engine.add_geometry(source);
  const uint32_t target_id = engine.add_geometry(target);
  write_kv(*source, {0, 1, 2, 3, 4, 5, 6, 7}, {0, 64}, seeds_);
  for (uint32_t slot = 0; slot < 8; slot++) {
    dp_descriptor d =
        layers(DP_OP_COPY, source_id, engine.list({slot}), target_id, engine.list({7 - slot}), 1);
    d.first_block = slot;
    d.token_begin = slot * kTokens;
    d.token_end = (slot + 1) * kTokens;
    engine.submit({d});
  }
  for (int i = 0; i < 8; i++) EXPECT_EQ(engine.next().bytes_moved, shape_.block_bytes());
  expect_kv(*target, {7, 6, 5, 4, 3, 2, 1, 0}, {0, 64}, seeds_);
}

}  // namespace
}  // namespace dualpath::test
