// COPY with an end in memory of a GPU: by its driver, here the stand-in, since the CPU does not reach it.
#include "test/cuda/standin.h"
#include "test/memory/paged_shapes.h"
#include "test/transfer/harness.h"
#include "test/transfer/kv.h"

namespace dualpath::test {
namespace {

constexpr uint32_t kTokens = 16;
constexpr size_t kCuda = static_cast<size_t>(CopyWay::kCuda);
constexpr size_t kMemcpy = static_cast<size_t>(CopyWay::kMemcpy);

class CudaCopyTest : public ::testing::Test {
 protected:
  // Layer Blocks of every layer in HBM, and the same places as the CPU finds them.
  struct Hbm {
    std::shared_ptr<const Geometry> there, seen;
  };
  Hbm hbm(const Shape& shape, uint32_t slots) {
    GeometryOptions options;
    options.slots = slots;
    options.block_tokens = shape.block_tokens;
    options.slot_stride_bytes = shape.layer_bytes(0);
    for (size_t l = 0; l < shape.layers.size(); l++) {
      options.layers.push_back(
          {l * slots * shape.layer_bytes(0), stacked_planes(shape.layers[l], shape.block_tokens)});
    }
    const uint64_t bytes = shape.layers.size() * slots * shape.layer_bytes(0);
    EXPECT_TRUE(Arena::of_device("hbm", device_, bytes, &options.arena).ok());
    Hbm hbm;
    EXPECT_TRUE(Geometry::create(options, &hbm.there).ok());
    options.arena = Arena::adopt("seen", cuda_.see(options.arena->base(), bytes), bytes, ArenaKind::kHost);
    EXPECT_TRUE(Geometry::create(options, &hbm.seen).ok());
    return hbm;
  }
  static dp_descriptor copy(uint32_t from, uint32_t to, uint32_t list, uint32_t blocks, uint16_t layers) {
    dp_descriptor d = describe(DP_OP_COPY);
    d.src_geometry = from;
    d.dst_geometry = to;
    d.src_list = d.dst_list = list;
    d.list_count = blocks;
    d.token_end = blocks * kTokens;
    d.layer_count = layers;
    return d;
  }
  Standin cuda_;
  std::shared_ptr<cuda::Device> device_ = cuda_.device();
  std::unique_ptr<Reactor> reactor_ = make_reactor();
};

TEST_F(CudaCopyTest, ThereAndBackAndTheWayIsCounted) {
  const Shape shape = uniform_shape(5, kTokens, {{256, 0}, {64, 0}});
  const auto buffer = full_blocks(shape, 4);
  const auto back = full_blocks(shape, 4);
  const Hbm hbm = this->hbm(shape, 4);
  cuda_.set_delay_us(500);
  {
    Engine engine(*reactor_, "engine");
    const uint32_t a = engine.add_geometry(buffer);
    const uint32_t b = engine.add_geometry(hbm.there);
    const uint32_t c = engine.add_geometry(back);
    const std::vector<uint32_t> slots{3, 0, 2, 1};
    const auto seeds = seeds_of(4 * kTokens);
    write_kv(*buffer, slots, {0, 4 * kTokens}, seeds);
    const uint32_t list = engine.list(slots);
    dp_descriptor in = copy(a, b, list, 4, 5);
    in.signal[0] = ordered(0);
    dp_descriptor out = copy(b, c, list, 4, 5);
    out.wait[0] = wait_for(0, 1, 1);
    const dp_record record = engine.run({in, out});
    EXPECT_EQ(record.status, DP_ERROR_NONE);
    EXPECT_EQ(record.bytes_moved, 2 * 4 * shape.block_bytes());
    expect_kv(*hbm.seen, slots, {0, 4 * kTokens}, seeds);
    expect_kv(*back, slots, {0, 4 * kTokens}, seeds);
    EXPECT_EQ(engine.statistics().copy_bytes_by_way[kCuda], 2 * 4 * shape.block_bytes());
    EXPECT_EQ(engine.run({copy(a, c, list, 4, 5)}).status, DP_ERROR_NONE);
    EXPECT_EQ(engine.statistics().copy_bytes_by_way[kMemcpy], 4 * shape.block_bytes());
    EXPECT_EQ(engine.statistics().copy_bytes, 3 * 4 * shape.block_bytes());
    EXPECT_EQ(cuda_.pageable_copies(), 0u) << "buffers are registered";
    EXPECT_EQ(cuda_.calls("cuMemHostRegister_v2"), 2u);
  }
  EXPECT_EQ(cuda_.calls("cuMemHostUnregister"), 2u);
  EXPECT_EQ(cuda_.calls("cuStreamCreate"), cuda_.calls("cuStreamDestroy_v2"));
}

// K and V as HND pages of an engine: parts of a token's bytes, pages in any order, tokens from the middle on.
TEST_F(CudaCopyTest, PagesOfAnEngine) {
  const Shape shape = uniform_shape(2, kTokens, {{128, 0}});
  constexpr uint32_t kPages = 8;
  constexpr uint64_t kPageBytes = 2 * kTokens * 64;
  std::shared_ptr<Arena> memory;
  ASSERT_TRUE(Arena::of_device("engine's", device_, 2 * kPages * kPageBytes, &memory).ok());
  const auto pages_over = [](const std::shared_ptr<Region>& region) {
    return hnd_pages(region, 2, kTokens, kPages, kTokens);
  };
  std::shared_ptr<Region> region, seen;
  ASSERT_TRUE(
      Region::of_device("kv", device_, reinterpret_cast<uint64_t>(memory->base()), memory->bytes(), &region)
          .ok());
  ASSERT_TRUE(Region::of_buffer("seen", cuda_.see(memory->base(), memory->bytes()), memory->bytes(),
                                ArenaKind::kHost, &seen)
                  .ok());
  const auto buffer = full_blocks(shape, 4);
  Engine engine(*reactor_, "engine");
  const uint32_t a = engine.add_geometry(buffer);
  const uint32_t b = engine.add_geometry(pages_over(region));
  const auto seeds = seeds_of(4 * kTokens);
  write_kv(*buffer, {0, 1, 2, 3}, {0, 4 * kTokens}, seeds);
  dp_descriptor d = copy(a, b, engine.list({0, 1, 2, 3}), 4, 2);
  d.dst_list = engine.list({7, 2, 5, 0});
  d.token_begin = 5;
  d.token_end = 4 * kTokens - 3;
  EXPECT_EQ(engine.run({d}).status, DP_ERROR_NONE);
  expect_kv(*pages_over(seen), {7, 2, 5, 0}, {5, 4 * kTokens - 3}, seeds);
  d.dst_list = engine.list({7, 2, kPages, 0});
  const dp_record record = engine.run({d});
  EXPECT_EQ(record.status, DP_ERROR_INVALID);
  EXPECT_EQ(record.error_block, 2u);
}

TEST_F(CudaCopyTest, WhatIsInFlightIsCappedAndAllOfItComes) {
  const Shape shape = uniform_shape(6, kTokens, {{1024, 0}});
  EngineOptions options;
  options.chunk_bytes = 32 << 10;
  options.copy_in_flight_bytes = 64 << 10;
  Engine engine(*reactor_, "engine", options);
  const auto buffer = full_blocks(shape, 16);
  const Hbm hbm = this->hbm(shape, 16);
  const uint32_t a = engine.add_geometry(buffer);
  const uint32_t b = engine.add_geometry(hbm.there);
  std::vector<uint32_t> slots(16);
  std::iota(slots.begin(), slots.end(), 0);
  const auto seeds = seeds_of(16 * kTokens);
  write_kv(*buffer, slots, {0, 16 * kTokens}, seeds);
  cuda_.set_delay_us(300);
  EXPECT_EQ(engine.run({copy(a, b, engine.list(slots), 16, 6)}).status, DP_ERROR_NONE);
  expect_kv(*hbm.seen, slots, {0, 16 * kTokens}, seeds);
  EXPECT_GT(engine.statistics().waits_queue, 0u);
}

TEST_F(CudaCopyTest, ACancelledProgramEndsWhenNothingOfItIsInFlight) {
  const Shape shape = uniform_shape(40, kTokens, {{1024, 0}});
  EngineOptions options;
  options.chunk_bytes = 16 << 10;
  Engine engine(*reactor_, "engine", options);
  const auto buffer = full_blocks(shape, 4);
  const Hbm hbm = this->hbm(shape, 4);
  const uint32_t a = engine.add_geometry(buffer);
  const uint32_t b = engine.add_geometry(hbm.there);
  const uint32_t list = engine.list({0, 1, 2, 3});
  cuda_.set_delay_us(3000);
  dp_descriptor d = copy(a, b, list, 4, 40);
  d.signal[0] = ordered(0);
  const uint32_t id = engine.submit({d});
  ASSERT_TRUE(engine.reaches(0, 1));
  engine.cancel(id);
  const dp_record record = engine.next();
  EXPECT_EQ(record.status, DP_ERROR_CANCELLED);
  // What its slots hold from now on is somebody else's: no copy of the old program may still come.
  const auto memory = memory_of(*hbm.seen);
  std::fill(memory.begin(), memory.end(), std::byte{0x11});
  usleep(20'000);
  EXPECT_EQ(std::count(memory.begin(), memory.end(), std::byte{0x11}), static_cast<ptrdiff_t>(memory.size()));
  EXPECT_LT(record.bytes_moved, 4 * shape.block_bytes());
}

TEST_F(CudaCopyTest, AFailingDriverFailsTheProgramAndNotTheNext) {
  const Shape shape = uniform_shape(4, kTokens, {{1024, 0}});
  EngineOptions options;
  options.chunk_bytes = 16 << 10;
  Engine engine(*reactor_, "engine", options);
  const uint32_t a = engine.add_geometry(full_blocks(shape, 4));
  const uint32_t b = engine.add_geometry(hbm(shape, 4).there);
  const uint32_t list = engine.list({0, 1, 2, 3});
  for (const char* call : {"cuMemcpyAsync", "cuEventRecord", "cuEventQuery", "cuLaunchHostFunc"}) {
    cuda_.fail(call, 3, 700);
    const dp_record record = engine.run({copy(a, b, list, 4, 4)});
    EXPECT_EQ(record.status, DP_ERROR_DEVICE) << call;
    EXPECT_EQ(record.op, DP_OP_COPY);
    EXPECT_EQ(engine.run({copy(a, b, list, 4, 4)}).status, DP_ERROR_NONE) << call;
  }
}

TEST_F(CudaCopyTest, TheCpuIsNeverSentThere) {
  const Shape shape = uniform_shape(2, kTokens, {{1024, 0}});
  Engine engine(*reactor_, "engine");
  Engine target(*reactor_, "target");
  const uint32_t host = engine.add_geometry(full_blocks(shape, 1));
  const uint32_t there = engine.add_geometry(hbm(shape, 1).there);
  const uint32_t of_target = target.add_geometry(full_blocks(shape, 1));
  const uint32_t device_of_target = target.add_geometry(hbm(shape, 1).there);
  dp_descriptor d = copy(there, of_target, engine.list({0}), 1, 2);
  d.op = DP_OP_SEND;
  d.peer = engine.connect("target");
  EXPECT_EQ(engine.run({d}).status, DP_ERROR_INVALID) << "from it, by loopback";
  d.src_geometry = host;
  d.dst_geometry = device_of_target;
  EXPECT_EQ(engine.run({d}).status, DP_ERROR_INVALID) << "into it, by loopback";
}

TEST_F(CudaCopyTest, AHostBufferThatCannotBeRegisteredIsRefused) {
  const Shape shape = uniform_shape(2, kTokens, {{1024, 0}});
  Engine engine(*reactor_, "engine");
  engine.add_geometry(full_blocks(shape, 1));
  cuda_.fail("cuMemHostRegister_v2", 1, cuda::kOutOfMemory);
  uint32_t id;
  EXPECT_STREQ(engine.native().add_geometry(hbm(shape, 1).there, &id).code, "MEMORY_LIMIT");
  ASSERT_TRUE(engine.native().add_geometry(hbm(shape, 1).there, &id).ok());
  cuda_.fail("cuMemHostRegister_v2", 1, cuda::kOutOfMemory);
  EXPECT_STREQ(engine.native().add_geometry(full_blocks(shape, 1), &id).code, "MEMORY_LIMIT");
}

TEST(CopyWayTest, IsTheNicsWhereItCanAndTheReasonIsSaidWhereNot) {
  for (const bool device : {false, true}) {
    const CopyWay plain = device ? CopyWay::kCuda : CopyWay::kMemcpy;
    EXPECT_EQ(choose_copy_way({CopyWish::kAuto, device, NicRefusal::kNone}).way, CopyWay::kNic);
    EXPECT_EQ(choose_copy_way({CopyWish::kPlain, device, NicRefusal::kNone}).way, plain);
    for (const NicRefusal why : {NicRefusal::kNotOpen, NicRefusal::kNotRegistered, NicRefusal::kBroken}) {
      const CopyChoice fallback = choose_copy_way({CopyWish::kAuto, device, why});
      EXPECT_EQ(fallback.way, plain);
      EXPECT_EQ(fallback.refusal, why);
      EXPECT_TRUE(fallback.allowed);
      EXPECT_FALSE(choose_copy_way({CopyWish::kNic, device, why}).allowed);
    }
  }
}

}  // namespace
}  // namespace dualpath::test
