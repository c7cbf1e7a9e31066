// The PE read path as data-path.md draws it: store -> PE buffer -> staging of W layers <-> emulated GPU ->
// DE buffer -> DE HBM and store, on two reactors, with links. Every byte is looked at.
#include <gtest/gtest.h>

#include "emulation/stream.h"
#include "test/transfer/harness.h"
#include "test/transfer/kv.h"
#include "test/transfer/store_dir.h"

namespace dualpath::test {
namespace {

constexpr uint32_t kTokens = 16;
constexpr uint32_t kLayers = 8;
constexpr uint32_t kWindowLayers = 2;
constexpr uint32_t kHit = 5;                      // blocks
constexpr uint32_t kMiss = 3;                     // blocks, the last one not full
constexpr uint32_t kAll = kHit + kMiss;           // blocks
constexpr uint32_t kLength = kAll * kTokens - 5;  // tokens
constexpr uint32_t kHitTokens = kHit * kTokens;

// Counters, the same numbers at both engines.
enum : uint32_t { kR = 0, kA, kC, kF, kD, kReady, kPersisted };

class FlowTest : public ::testing::Test {
 protected:
  FlowTest() {
    const auto network = [](const char* name) { return std::make_shared<NicLink>(name, 400'000'000); };
    EngineOptions options;
    options.store = dir_.store();
    options.links = {std::make_shared<RateLink>("snic", 100'000'000), nullptr, network("pe out"),
                     network("pe in")};
    options.chunk_bytes = 2048;  // a few blocks of a layer at a time
    prefill_ = std::make_unique<Engine>(*reactor_, "pe", options);
    options.links = {nullptr, nullptr, network("de out"), network("de in")};
    decode_ = std::make_unique<Engine>(*second_reactor_, "de", options);
    peer_ = prefill_->connect("de");
    const auto waker = std::make_shared<Waker>();
    EXPECT_TRUE(prefill_->door().add_waker(waker));
    gpu_ = std::make_unique<emulation::EmulatedGpu>(prefill_->shared_door(), waker, 1);
  }
  ~FlowTest() override { gpu_->stop(); }

  void store_hits(const std::vector<store::BlockKey>& keys) {
    const auto source = full_blocks(shape_, kHit);
    write_kv(*source, {0, 1, 2, 3, 4}, {0, kHitTokens}, *seeds_);
    dp_descriptor write = describe(DP_OP_WRITE);
    write.src_geometry = decode_->add_geometry(source);
    write.src_list = decode_->list({0, 1, 2, 3, 4});
    write.dst_list = decode_->keys({keys.begin(), keys.begin() + kHit});
    write.list_count = kHit;
    ASSERT_EQ(decode_->run({write}).status, DP_ERROR_NONE);
  }

  static dp_descriptor layers(dp_op op, uint32_t src, uint32_t src_list, uint32_t dst, uint32_t dst_list,
                              uint32_t blocks, uint32_t tokens) {
    dp_descriptor d = describe(op);
    d.src_geometry = src;
    d.src_list = src_list;
    d.dst_geometry = dst;
    d.dst_list = dst_list;
    d.list_count = blocks;
    d.token_end = tokens;
    d.layer_count = kLayers;
    return d;
  }

  void launch_layers(uint32_t base, const std::shared_ptr<const Geometry>& staging,
                     const std::vector<uint32_t>& slots) {
    emulation::Launch compute;
    compute.steps = kLayers;
    compute.step_duration_ns = 300'000;
    compute.wait[0] = wait_for(base + kA, 1, 1);
    compute.signal[0] = ordered(base + kC);
    compute.bodies = {{staging, slots, 0, seeds_, {0, kHitTokens}, {kHitTokens, kLength}, kLength}};
    ASSERT_TRUE(gpu_->launch(compute));
  }

  const Shape shape_ = uniform_shape(kLayers, kTokens, {{82, 0}, {20, 60}, {36, 0}});
  // The first `count` miss blocks of the DE buffer into the store, once every layer has come.
  dp_descriptor persist_misses(uint32_t geometry, const std::vector<uint32_t>& received,
                               const std::vector<store::BlockKey>& keys, uint32_t count) {
    dp_descriptor persist = describe(DP_OP_WRITE);
    persist.src_geometry = geometry;
    persist.src_list = decode_->list({received.begin() + kHit, received.begin() + kHit + count});
    persist.dst_list = decode_->keys({keys.begin() + kHit, keys.begin() + kHit + count});
    persist.list_count = count;
    persist.wait[0] = wait_for(kD, kLayers);
    persist.signal[0] = add(kPersisted);
    return persist;
  }

  void expect_layers_in_order() {
    for (uint16_t l = 0; l < kLayers; l++) {
      const dp_record record = prefill_->next();
      ASSERT_EQ(record.kind, DP_RECORD_STEP);
      EXPECT_EQ(record.step, l) << "layers in order";
      EXPECT_GE(prefill_->counter(kC), l + 1u);
      EXPECT_GE(decode_->counter(kD), l + 1u);
    }
  }

  // The blocks of these keys, read into fresh memory, hold the KV of their tokens.
  void expect_stored(const std::vector<store::BlockKey>& keys) {
    const uint32_t count = static_cast<uint32_t>(keys.size());
    const auto again = full_blocks(shape_, kAll);
    std::vector<uint32_t> slots(count);
    for (uint32_t i = 0; i < count; i++) slots[i] = i;
    dp_descriptor read = describe(DP_OP_READ);
    read.dst_geometry = prefill_->add_geometry(again);
    read.src_list = prefill_->keys(keys);
    read.dst_list = prefill_->list(slots);
    read.list_count = count;
    EXPECT_EQ(prefill_->run({read}).status, DP_ERROR_NONE);
    expect_kv(*again, slots, {0, count * kTokens}, *seeds_);
  }

  const std::shared_ptr<const std::vector<uint64_t>> seeds_ =
      std::make_shared<const std::vector<uint64_t>>(seeds_of(kAll * kTokens));
  StoreDir dir_{shape_};
  std::unique_ptr<Reactor> reactor_ = make_reactor();
  std::unique_ptr<Reactor> second_reactor_ = make_reactor();
  std::unique_ptr<Engine> prefill_, decode_;
  std::unique_ptr<emulation::EmulatedGpu> gpu_;
  uint32_t peer_;
};

TEST_F(FlowTest, PrefillReadPath) {
  const auto keys = dir_.keys(kAll);
  store_hits(keys);
  const auto pe_buffer = full_blocks(shape_, 8);
  const auto pe_staging = staging(shape_, 12, kWindowLayers);
  const auto de_buffer = full_blocks(shape_, 10);
  const auto de_hbm = interleaved(shape_, 10, 4);
  const uint32_t buffer_id = prefill_->add_geometry(pe_buffer);
  const uint32_t staging_id = prefill_->add_geometry(pe_staging);
  const uint32_t remote_id = decode_->add_geometry(de_buffer);
  const uint32_t hbm_id = decode_->add_geometry(de_hbm);

  const std::vector<uint32_t> read_slots{7, 2, 5, 0, 3}, staged{11, 4, 0, 9, 2, 7, 5, 1},
      received{9, 1, 8, 0, 6, 3, 5, 2}, hbm{0, 9, 1, 8, 2, 7, 3, 6};

  // Decode engine first, as its program waits for what the prefill engine will do.
  dp_descriptor load =
      layers(DP_OP_COPY, remote_id, decode_->list(received), hbm_id, decode_->list(hbm), kAll, kLength);
  load.wait[0] = wait_for(kD, kLayers);
  load.signal[0] = ordered(kReady);
  const uint32_t full_miss = kMiss - 1;
  const uint32_t decode_program =
      decode_->submit({load, persist_misses(remote_id, received, keys, full_miss)});

  dp_descriptor read = describe(DP_OP_READ);
  read.dst_geometry = buffer_id;
  read.src_list = prefill_->keys({keys.begin(), keys.begin() + kHit});
  read.dst_list = prefill_->list(read_slots);
  read.list_count = kHit;
  read.signal[0] = add(kR);
  const uint32_t staged_list = prefill_->list(staged);
  dp_descriptor stage =
      layers(DP_OP_COPY, buffer_id, read.dst_list, staging_id, staged_list, kHit, kHitTokens);
  stage.wait[0] = wait_for(kR, kHit);
  stage.wait[1] = wait_for(kF, 1 - uint64_t{kWindowLayers}, 1, kWindowLayers);  // F >= l - W + 1
  stage.window_end = kLength;
  stage.signal[0] = ordered(kA);
  dp_descriptor send =
      layers(DP_OP_SEND, staging_id, staged_list, remote_id, prefill_->list(received), kAll, kLength);
  send.peer = peer_;
  send.wait[0] = wait_for(kC, 1, 1);
  send.signal[0] = ordered(kF);
  send.signal[1] = remote(ordered(kD));
  send.flags = DP_FLAG_EVENT;
  launch_layers(0, pe_staging, staged);
  const uint32_t prefill_program = prefill_->submit({read, stage, send});

  ASSERT_NO_FATAL_FAILURE(expect_layers_in_order());
  const dp_record prefilled = prefill_->next();
  EXPECT_EQ(prefilled.program, prefill_program);
  EXPECT_EQ(prefilled.status, DP_ERROR_NONE);
  const dp_record decoded = decode_->next();
  EXPECT_EQ(decoded.program, decode_program);
  EXPECT_EQ(decoded.status, DP_ERROR_NONE);
  EXPECT_EQ(decode_->counter(kReady), kLayers);
  EXPECT_EQ(decode_->counter(kPersisted), full_miss);

  const emulation::StreamStatistics computed = gpu_->statistics();
  EXPECT_EQ(computed.mismatched_bytes, 0u) << "each layer was there when it was computed";
  const uint32_t seen = kHitTokens - (kLength - 60 + 1);  // hit tokens of the windowed plane
  EXPECT_EQ(computed.checked_bytes, uint64_t{kLayers} * (kHitTokens * (82 + 36) + seen * 20));
  // The windowed plane: staging got only what the query sees, so nothing older is right at the DE.
  expect_kv(*de_buffer, received, {0, kLength}, *seeds_, kLength);
  expect_kv(*de_hbm, hbm, {0, kLength}, *seeds_, kLength);
  expect_kv(*de_buffer, received, {kHitTokens, kLength}, *seeds_);

  EXPECT_EQ(dir_.store()->longest_prefix(keys.data(), kAll), kHit + full_miss);
  expect_stored({keys.begin(), keys.begin() + kHit + full_miss});
}

// Many requests, one after the other in the same staging places, two in flight at a time: a layer copied
// before its place is free, or sent before it is computed, would be seen at the GPU or at the DE.
TEST_F(FlowTest, StagingIsReusedSafelyAcrossLayersAndRequests) {
  constexpr uint32_t kRequests = 12;
  const auto keys = dir_.keys(kAll);
  store_hits(keys);
  const auto pe_buffer = full_blocks(shape_, 2 * kHit);
  const auto pe_staging = staging(shape_, 2 * kAll, kWindowLayers);
  const auto de_buffer = full_blocks(shape_, kRequests * kAll);
  const uint32_t buffer_id = prefill_->add_geometry(pe_buffer);
  const uint32_t staging_id = prefill_->add_geometry(pe_staging);
  const uint32_t remote_id = decode_->add_geometry(de_buffer);
  const uint32_t key_list = prefill_->keys({keys.begin(), keys.begin() + kHit});
  std::vector<std::vector<uint32_t>> received;

  for (uint32_t request = 0; request < kRequests; request++) {
    if (request >= 2) {
      ASSERT_EQ(prefill_->next().status, DP_ERROR_NONE);
    }
    const uint32_t half = request % 2;
    const uint32_t base = request * 10;
    std::vector<uint32_t> read_slots, staged, remote_slots;
    for (uint32_t b = 0; b < kHit; b++) read_slots.push_back(half * kHit + (b * 3) % kHit);
    for (uint32_t b = 0; b < kAll; b++) staged.push_back(half * kAll + (b * 3 + request) % kAll);
    for (uint32_t b = 0; b < kAll; b++) remote_slots.push_back(request * kAll + (b * 5) % kAll);
    dp_descriptor read = describe(DP_OP_READ);
    read.dst_geometry = buffer_id;
    read.src_list = key_list;
    read.dst_list = prefill_->list(read_slots);
    read.list_count = kHit;
    read.signal[0] = add(base + kR);
    const uint32_t staged_list = prefill_->list(staged);
    dp_descriptor stage =
        layers(DP_OP_COPY, buffer_id, read.dst_list, staging_id, staged_list, kHit, kHitTokens);
    stage.wait[0] = wait_for(base + kR, kHit);
    stage.wait[1] = wait_for(base + kF, 1 - uint64_t{kWindowLayers}, 1, kWindowLayers);
    stage.signal[0] = ordered(base + kA);
    dp_descriptor send =
        layers(DP_OP_SEND, staging_id, staged_list, remote_id, prefill_->list(remote_slots), kAll, kLength);
    send.peer = peer_;
    send.wait[0] = wait_for(base + kC, 1, 1);
    send.signal[0] = ordered(base + kF);
    send.signal[1] = remote(ordered(base + kD));
    launch_layers(base, pe_staging, staged);
    prefill_->submit({send, stage, read});
    received.push_back(remote_slots);
  }
  for (int i = 0; i < 2; i++) ASSERT_EQ(prefill_->next().status, DP_ERROR_NONE);
  for (uint32_t request = 0; request < kRequests; request++) {
    EXPECT_EQ(decode_->counter(request * 10 + kD), kLayers);
    expect_kv(*de_buffer, received[request], {0, kLength}, *seeds_);
  }
  EXPECT_EQ(gpu_->statistics().mismatched_bytes, 0u);
  EXPECT_EQ(gpu_->statistics().kernels, kRequests * kLayers);
}

}  // namespace
}  // namespace dualpath::test
