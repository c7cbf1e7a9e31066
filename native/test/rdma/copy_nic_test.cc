// COPY through a NIC, here the strict stub provider's: what carried the bytes, and what does when it cannot.
#include "rdma/copy_nic.h"

#include "test/cuda/standin.h"
#include "test/memory/paged_shapes.h"
#include "test/rdma/engines.h"

namespace dualpath::test {
namespace {

constexpr uint32_t kTokens = 16;
constexpr size_t kNicWay = static_cast<size_t>(CopyWay::kNic);
constexpr size_t kMemcpyWay = static_cast<size_t>(CopyWay::kMemcpy);
constexpr size_t kCudaWay = static_cast<size_t>(CopyWay::kCuda);

class CopyNicTest : public ::testing::Test {
 protected:
  ~CopyNicTest() override {
    if (engine != nullptr) engine->close();
    nic.reset();
  }
  void open(CopyWish wish = CopyWish::kAuto, verbs::stub::StubOptions stub = {},
            rdma::CopyNicOptions with = {}) {
    stub.own_thread = true;
    fabric = std::make_shared<verbs::stub::StubFabric>(stub);
    EngineOptions options;
    options.copy_way = wish;
    static int count = 0;
    engine = std::make_unique<Engine>(*reactor, "copier" + std::to_string(count++), options);
    open_nic(with);
  }
  void open_nic(rdma::CopyNicOptions with = {}) {
    with.engine = &engine->native();
    with.reactor = reactor.get();
    with.verbs = fabric;
    with.emulated = true;
    with.device = "stub0";
    with.gid_index = 2;
    const Status status = rdma::CopyNic::create(with, &nic);
    ASSERT_TRUE(status.ok()) << status.message;
  }
  dp_descriptor copy(uint32_t from, uint32_t to, uint32_t list, uint32_t blocks, uint16_t layers) {
    dp_descriptor d = describe(DP_OP_COPY);
    d.src_geometry = from;
    d.dst_geometry = to;
    d.src_list = d.dst_list = list;
    d.list_count = blocks;
    d.token_end = blocks * kTokens;
    d.layer_count = layers;
    return d;
  }
  uint64_t by(size_t way) { return engine->statistics().copy_bytes_by_way[way]; }
  uint64_t refused(NicRefusal why) { return engine->statistics().copy_refusals[static_cast<size_t>(why)]; }

  std::unique_ptr<Reactor> reactor = make_reactor();
  std::shared_ptr<verbs::stub::StubFabric> fabric;
  std::unique_ptr<Engine> engine;
  std::shared_ptr<rdma::CopyNic> nic;
};

TEST_F(CopyNicTest, OneDoorbellAndOneCompletionAChain) {
  open();
  const Shape shape = uniform_shape(5, kTokens, {{256, 0}, {64, 0}});
  const auto buffer = full_blocks(shape, 40);
  const auto hbm = staging(shape, 40, 5);
  const uint32_t a = engine->add_geometry(buffer);
  const uint32_t b = engine->add_geometry(hbm);
  std::vector<uint32_t> slots(40);
  std::iota(slots.begin(), slots.end(), 0);
  std::reverse(slots.begin(), slots.end());
  const auto seeds = seeds_of(40 * kTokens);
  write_kv(*buffer, slots, {0, 40 * kTokens}, seeds);
  dp_descriptor d = copy(a, b, engine->list(slots), 40, 5);
  d.signal[0] = ordered(0);
  const dp_record record = engine->run({d});
  EXPECT_EQ(record.status, DP_ERROR_NONE);
  EXPECT_EQ(record.bytes_moved, 40 * shape.block_bytes());
  EXPECT_EQ(engine->counter(0), 5u);
  expect_kv(*hbm, slots, {0, 40 * kTokens}, seeds);
  EXPECT_EQ(by(kNicWay), 40 * shape.block_bytes());
  EXPECT_EQ(by(kMemcpyWay), 0u);
  const auto statistics = nic->statistics();
  EXPECT_EQ(statistics.counters.post_calls, statistics.counters.chains);
  EXPECT_EQ(statistics.counters.completions, statistics.counters.chains);
  EXPECT_GE(statistics.counters.chains, 5u);
  EXPECT_EQ(statistics.counters.bytes, 40 * shape.block_bytes());
  EXPECT_GT(statistics.registered_bytes[static_cast<size_t>(verbs::RegionWay::kHost)], 0u);
}

// Pages as target, as source, and as both; tokens from the middle on; small chains, so that blocks are cut.
TEST_F(CopyNicTest, PagesOnEitherSide) {
  rdma::CopyNicOptions options;
  options.queue_pair.send_entries = 16;
  options.queue_pair.sges = 2;
  open(CopyWish::kNic, {}, options);
  const Shape shape = uniform_shape(2, kTokens, {{128, 0}});
  const auto pages = [&](uint32_t page_tokens) {
    constexpr uint32_t kPages = 16;
    const auto region = Region::of(exact_arena(uint64_t{2} * kPages * page_tokens * 128));
    return hnd_pages(region, 2, kTokens, kPages, page_tokens);
  };
  const auto buffer = full_blocks(shape, 4);
  const auto back = full_blocks(shape, 4);
  const auto one = pages(kTokens), other = pages(kTokens / 4);
  const uint32_t a = engine->add_geometry(buffer);
  const uint32_t b = engine->add_geometry(one);
  const uint32_t c = engine->add_geometry(other);
  const uint32_t e = engine->add_geometry(back);
  const auto seeds = seeds_of(4 * kTokens);
  const TokenRange range{5, 4 * kTokens - 3};
  write_kv(*buffer, {0, 1, 2, 3}, {0, 4 * kTokens}, seeds);
  const std::vector<uint32_t> in_one{7, 2, 5, 0};
  const std::vector<uint32_t> in_other{9, 1, 4, 14, 0, 2, 3, 5, 6, 7, 8, 10, 11, 12, 13, 15};
  const uint32_t of_one = engine->list(in_one), of_other = engine->list(in_other);
  const uint32_t slots = engine->list({0, 1, 2, 3});
  const auto step = [&](uint32_t from, uint32_t from_list, uint32_t to, uint32_t to_list) {
    dp_descriptor d = copy(from, to, from_list, 4, 2);
    d.dst_list = to_list;
    d.token_begin = range.begin;
    d.token_end = range.end;
    EXPECT_EQ(engine->run({d}).status, DP_ERROR_NONE);
  };
  step(a, slots, b, of_one);
  expect_kv(*one, in_one, range, seeds);
  step(b, of_one, c, of_other);
  expect_kv(*other, in_other, range, seeds);
  step(c, of_other, e, slots);
  expect_kv(*back, {0, 1, 2, 3}, range, seeds);
  EXPECT_EQ(by(kNicWay), engine->statistics().copy_bytes);
  const uint32_t wrong = engine->list({7, 2, 16, 0});
  dp_descriptor d = copy(a, b, slots, 4, 2);
  d.dst_list = wrong;
  const dp_record record = engine->run({d});
  EXPECT_EQ(record.status, DP_ERROR_INVALID);
  EXPECT_EQ(record.error_block, 2u);
}

TEST_F(CopyNicTest, EndsWhileItCopiesAndAnotherTakesItsPlace) {
  open();
  const Shape shape = uniform_shape(6, kTokens, {{1024, 0}});
  const auto buffer = full_blocks(shape, 8);
  const uint32_t a = engine->add_geometry(buffer);
  std::vector<uint32_t> slots(8);
  std::iota(slots.begin(), slots.end(), 0);
  const auto seeds = seeds_of(8 * kTokens);
  write_kv(*buffer, slots, {0, 8 * kTokens}, seeds);
  const uint32_t list = engine->list(slots);
  for (const bool first : {true, false}) {
    const auto hbm = staging(shape, 8, 6);
    const uint32_t b = engine->add_geometry(hbm);
    engine->submit({copy(a, b, list, 8, 6)});
    if (first) {
      EXPECT_TRUE(eventually([&] { return nic->end(); }));
    }
    const dp_record record = engine->next();
    EXPECT_EQ(record.status, DP_ERROR_NONE);
    EXPECT_EQ(record.bytes_moved, 8 * shape.block_bytes());
    expect_kv(*hbm, slots, {0, 8 * kTokens}, seeds);
    if (first) open_nic();
  }
  EXPECT_EQ(nic->statistics().counters.bytes, 8 * shape.block_bytes()) << "of the second";
}

TEST_F(CopyNicTest, WhatItDoesNotFinishMemcpyDoesAndThePairIsBuiltAnew) {
  open();
  const Shape shape = uniform_shape(6, kTokens, {{1024, 0}});
  const auto buffer = full_blocks(shape, 8);
  const auto hbm = staging(shape, 8, 6);
  const uint32_t a = engine->add_geometry(buffer);
  const uint32_t b = engine->add_geometry(hbm);
  std::vector<uint32_t> slots(8);
  std::iota(slots.begin(), slots.end(), 0);
  const auto seeds = seeds_of(8 * kTokens);
  write_kv(*buffer, slots, {0, 8 * kTokens}, seeds);
  const uint32_t list = engine->list(slots);
  fabric->fail_request(0, 11, IBV_WC_REM_OP_ERR);
  const dp_record record = engine->run({copy(a, b, list, 8, 6)});
  EXPECT_EQ(record.status, DP_ERROR_NONE);
  EXPECT_EQ(record.bytes_moved, 8 * shape.block_bytes());
  expect_kv(*hbm, slots, {0, 8 * kTokens}, seeds);
  EXPECT_GT(by(kMemcpyWay), 0u);
  EXPECT_GT(refused(NicRefusal::kBroken), 0u);
  ASSERT_TRUE(eventually([&] { return nic->statistics().rebuilt == 1; }));
  EXPECT_NE(nic->statistics().first_error, "");
  const uint64_t before = by(kNicWay);
  EXPECT_EQ(engine->run({copy(a, b, list, 8, 6)}).status, DP_ERROR_NONE);
  EXPECT_EQ(by(kNicWay), before + 8 * shape.block_bytes());
}

TEST_F(CopyNicTest, WantedAloneItFailsRatherThanGoAnotherWay) {
  open(CopyWish::kNic);
  const Shape shape = uniform_shape(6, kTokens, {{1024, 0}});
  const uint32_t a = engine->add_geometry(full_blocks(shape, 8));
  const uint32_t b = engine->add_geometry(staging(shape, 8, 6));
  const uint32_t list = engine->list({0, 1, 2, 3, 4, 5, 6, 7});
  fabric->fail_request(0, 11, IBV_WC_REM_OP_ERR);
  const dp_record record = engine->run({copy(a, b, list, 8, 6)});
  EXPECT_EQ(record.status, DP_ERROR_PEER);
  EXPECT_EQ(record.error_call, static_cast<uint32_t>(DP_CALL_RDMA));
  EXPECT_EQ(by(kMemcpyWay), 0u);
  EXPECT_EQ(engine->run({copy(a, b, list, 8, 6)}).status, DP_ERROR_DEVICE) << "while it is broken";
  EXPECT_TRUE(eventually([&] { return nic->statistics().rebuilt == 1; }));
  EXPECT_EQ(engine->run({copy(a, b, list, 8, 6)}).status, DP_ERROR_NONE);
}

TEST_F(CopyNicTest, ConfiguredAwayOrUnableItLeavesCopiesToTheCpuAndThatIsCounted) {
  open(CopyWish::kPlain);
  const Shape shape = uniform_shape(2, kTokens, {{1024, 0}});
  uint32_t a = engine->add_geometry(full_blocks(shape, 1));
  uint32_t b = engine->add_geometry(full_blocks(shape, 1));
  EXPECT_EQ(engine->run({copy(a, b, engine->list({0}), 1, 2)}).status, DP_ERROR_NONE);
  EXPECT_EQ(by(kNicWay), 0u);
  EXPECT_EQ(refused(NicRefusal::kNotWanted), 2u);
  engine->close();
  nic.reset();
  verbs::stub::StubOptions stub;
  stub.memlock_bytes = 64 << 10;  // for the queue pairs and no memory
  rdma::CopyNicOptions options;
  options.queue_pair.send_entries = 16;
  open(CopyWish::kAuto, stub, options);
  a = engine->add_geometry(full_blocks(shape, 8));
  b = engine->add_geometry(full_blocks(shape, 8));
  EXPECT_EQ(engine->run({copy(a, b, engine->list({0}), 1, 2)}).status, DP_ERROR_NONE);
  EXPECT_EQ(by(kMemcpyWay), 2 * shape.layer_bytes(0));
  EXPECT_EQ(refused(NicRefusal::kNotRegistered), 2u);
  EXPECT_NE(nic->statistics().refused.find("RLIMIT_MEMLOCK"), std::string::npos);
}

TEST_F(CopyNicTest, ACancelledCopyEndsWhenTheNicHasLetGo) {
  open();
  const Shape shape = uniform_shape(200, kTokens, {{1024, 0}});
  const auto hbm = staging(shape, 8, 4);
  const uint32_t a = engine->add_geometry(full_blocks(shape, 8));
  const uint32_t b = engine->add_geometry(hbm);
  dp_descriptor d = copy(a, b, engine->list({0, 1, 2, 3, 4, 5, 6, 7}), 8, 200);
  d.signal[0] = ordered(0);
  const uint32_t id = engine->submit({d});
  ASSERT_TRUE(engine->reaches(0, 3));
  engine->cancel(id);
  const dp_record record = engine->next();
  EXPECT_TRUE(record.status == DP_ERROR_CANCELLED || record.status == DP_ERROR_NONE);
  const auto memory = memory_of(*hbm);
  std::fill(memory.begin(), memory.end(), std::byte{0x11});
  usleep(5000);
  EXPECT_EQ(std::count(memory.begin(), memory.end(), std::byte{0x11}), static_cast<ptrdiff_t>(memory.size()));
}

TEST_F(CopyNicTest, MemoryOfAGpuIsWrittenByTheNicAndFlushedBeforeAnybodyIsTold) {
  Standin cuda;
  open();
  const auto device = cuda.device();
  const Shape shape = uniform_shape(4, kTokens, {{512, 0}});
  GeometryOptions options;
  options.slots = 4;
  options.block_tokens = kTokens;
  options.slot_stride_bytes = shape.block_bytes();
  for (size_t l = 0; l < 4; l++)
    options.layers.push_back({l * shape.layer_bytes(0), stacked_planes(shape.layers[l], kTokens)});
  ASSERT_TRUE(Arena::of_device("hbm", device, 4 * shape.block_bytes(), &options.arena).ok());
  std::shared_ptr<const Geometry> hbm;
  ASSERT_TRUE(Geometry::create(options, &hbm).ok());
  const auto buffer = full_blocks(shape, 4);
  const auto back = full_blocks(shape, 4);
  const uint32_t a = engine->add_geometry(buffer);
  const uint32_t b = engine->add_geometry(hbm);
  const uint32_t c = engine->add_geometry(back);
  const auto seeds = seeds_of(4 * kTokens);
  write_kv(*buffer, {0, 1, 2, 3}, {0, 4 * kTokens}, seeds);
  const uint32_t list = engine->list({0, 1, 2, 3});
  EXPECT_EQ(engine->run({copy(a, b, list, 4, 4)}).status, DP_ERROR_NONE);
  EXPECT_EQ(cuda.calls("cuFlushGPUDirectRDMAWrites"), 4u) << "one a step";
  EXPECT_EQ(engine->run({copy(b, c, list, 4, 4)}).status, DP_ERROR_NONE);
  EXPECT_EQ(cuda.calls("cuFlushGPUDirectRDMAWrites"), 4u) << "none to memory of the host";
  expect_kv(*back, {0, 1, 2, 3}, {0, 4 * kTokens}, seeds);
  EXPECT_EQ(by(kNicWay), 8 * shape.block_bytes());
  EXPECT_EQ(by(kCudaWay), 0u);
  EXPECT_GT(nic->statistics().registered_bytes[static_cast<size_t>(verbs::RegionWay::kDmaBuf)], 0u);
  // A flush that fails is a copy that failed: the driver does it.
  cuda.fail("cuFlushGPUDirectRDMAWrites", 2, 999);
  EXPECT_EQ(engine->run({copy(a, b, list, 4, 4)}).status, DP_ERROR_NONE);
  EXPECT_GT(by(kCudaWay), 0u);
  engine->close();
  nic.reset();
  engine.reset();  // before the stand-in's device goes
}

// On the receiver of a peer's writes: before its counter rises.
TEST(VerbsFlushTest, APeersWritesIntoAGpuAreFlushedBeforeItsSignalsRise) {
  Standin cuda;
  VerbsEngines engines;
  const Shape shape = uniform_shape(4, kTokens, {{512, 0}});
  GeometryOptions options;
  options.slots = 4;
  options.block_tokens = kTokens;
  options.slot_stride_bytes = shape.block_bytes();
  for (size_t l = 0; l < 4; l++)
    options.layers.push_back({l * shape.layer_bytes(0), stacked_planes(shape.layers[l], kTokens)});
  ASSERT_TRUE(Arena::of_device("hbm", cuda.device(), 4 * shape.block_bytes(), &options.arena).ok());
  std::shared_ptr<const Geometry> hbm;
  ASSERT_TRUE(Geometry::create(options, &hbm).ok());
  const auto source = full_blocks(shape, 4);
  dp_descriptor d = describe(DP_OP_SEND);
  d.src_geometry = engines.a.engine->add_geometry(source);
  d.dst_geometry = engines.b.engine->add_geometry(hbm);
  d.src_list = d.dst_list = engines.a.engine->list({0, 1, 2, 3});
  d.list_count = 4;
  d.token_end = 4 * kTokens;
  d.layer_count = 4;
  engines.meet();
  engines.connect();
  d.peer = engines.peer_b;
  d.signal[0] = remote(add(3));
  const auto seeds = seeds_of(4 * kTokens);
  write_kv(*source, {0, 1, 2, 3}, {0, 4 * kTokens}, seeds);
  EXPECT_EQ(engines.a.engine->run({d}).status, DP_ERROR_NONE);
  ASSERT_TRUE(engines.b.engine->reaches(3, 4));
  EXPECT_EQ(cuda.calls("cuFlushGPUDirectRDMAWrites"), 4u);
  cuda.fail("cuFlushGPUDirectRDMAWrites", 1, 999);
  engines.a.engine->submit({d});
  rdma::TransportEvent event(rdma::TransportEvent::Kind::kPort);
  ASSERT_TRUE(eventually([&] { return engines.b.told(rdma::TransportEvent::Kind::kDeviceFailed, &event); }));
  EXPECT_NE(event.cause.find("flushing what a NIC has written"), std::string::npos);
  EXPECT_LT(engines.b.engine->counter(3), 8u);
  engines.a.engine->next();
  engines.a.engine->close();
  engines.b.engine->close();
}

}  // namespace
}  // namespace dualpath::test
