// Links with a rate: how long things take, and who gets which part.
#include <gtest/gtest.h>

#include <algorithm>

#include "test/transfer/harness.h"
#include "test/transfer/kv.h"

namespace dualpath::test {
namespace {

constexpr uint32_t kTokens = 16;
constexpr uint64_t kMillisecond_ns = 1'000'000;

class LinksTest : public ::testing::Test {
 protected:
  static dp_descriptor layers(dp_op op, uint32_t src, uint32_t dst, uint32_t list, uint32_t blocks,
                              uint16_t layer_count) {
    dp_descriptor d = describe(op);
    d.src_geometry = src;
    d.dst_geometry = dst;
    d.src_list = d.dst_list = list;
    d.list_count = blocks;
    d.token_end = blocks * kTokens;
    d.layer_count = layer_count;
    return d;
  }
  std::unique_ptr<Reactor> reactor_ = make_reactor();
};

TEST_F(LinksTest, ACopyTakesBytesOverRateAndSignalsWhenTheLastByteHasCrossed) {
  const Shape shape = uniform_shape(4, kTokens, {{1024, 0}});
  EngineOptions options;
  options.links.nic_egress = std::make_shared<NicLink>("egress", 10'000'000);
  options.links.nic_ingress = std::make_shared<NicLink>("ingress", 5'000'000);
  Engine engine(*reactor_, "engine", options);
  const uint32_t a = engine.add_geometry(full_blocks(shape, 4));
  const uint32_t b = engine.add_geometry(full_blocks(shape, 4));
  dp_descriptor d = layers(DP_OP_COPY, a, b, engine.list({0, 1, 2, 3}), 4, 4);
  d.signal[0] = ordered(0);
  const uint64_t begin = now_ns();
  engine.submit({d});
  const uint64_t layer_ns = options.links.nic_ingress->duration_ns(4 * shape.layer_bytes(0));
  for (uint32_t l = 1; l <= 4; l++) {
    ASSERT_TRUE(engine.reaches(0, l));
    EXPECT_GE(now_ns() - begin, l * layer_ns) << "layer " << l;
  }
  const dp_record record = engine.next();
  EXPECT_GE(record.finished_ns - record.submitted_ns, 4 * layer_ns);
  EXPECT_EQ(options.links.nic_egress->bytes(), 4 * shape.block_bytes());
  EXPECT_EQ(options.links.nic_ingress->bytes(), 4 * shape.block_bytes());
}

// Senders that share a link get like parts of it, whatever their number: the order in which they are asked
// must not fall into step with the passes between two openings of the link.
TEST_F(LinksTest, SendersOfOneEngineShareItsLinkFairly) {
  const Shape shape = uniform_shape(60, kTokens, {{1024, 0}});
  for (const uint32_t senders : {2u, 3u, 4u, 6u}) {
    EngineOptions options;
    options.links.nic_egress = std::make_shared<NicLink>("egress", 60'000'000);
    options.nic_lookahead_ns = 100'000;
    Engine engine(*reactor_, "sender" + std::to_string(senders), options);
    Engine target(*reactor_, "target" + std::to_string(senders));
    const uint32_t from = engine.add_geometry(full_blocks(shape, 1));
    const uint32_t to = target.add_geometry(full_blocks(shape, 8));
    const uint32_t peer = engine.connect("target" + std::to_string(senders));
    for (uint32_t s = 0; s < senders; s++) {
      dp_descriptor d = layers(DP_OP_SEND, from, to, engine.list({0}), 1, 60);
      d.dst_list = engine.list({s});
      d.peer = peer;
      d.wait[0] = wait_for(100, 1);
      d.signal[0] = add(s);
      engine.submit({d});
    }
    engine.bump(100);  // all at once
    ASSERT_NE(engine.next().kind, 0);
    for (uint32_t s = 0; s < senders; s++) {
      EXPECT_GE(engine.counter(s), 40u) << "sender " << s << " of " << senders;
    }
    for (uint32_t s = 1; s < senders; s++) engine.next();
  }
}

TEST_F(LinksTest, EnginesOfOneReactorShareALinkFairly) {
  const Shape shape = uniform_shape(50, kTokens, {{1024, 0}});
  constexpr int kEngines = 3;
  const auto link = std::make_shared<NicLink>("shared", 60'000'000);
  std::vector<std::unique_ptr<Engine>> engines;
  for (int e = 0; e < kEngines; e++) {
    EngineOptions options;
    options.links.nic_egress = link;
    options.nic_lookahead_ns = 100'000;
    engines.push_back(std::make_unique<Engine>(*reactor_, "engine" + std::to_string(e), options));
    const uint32_t a = engines[e]->add_geometry(full_blocks(shape, 1));
    const uint32_t b = engines[e]->add_geometry(full_blocks(shape, 1));
    dp_descriptor d = layers(DP_OP_COPY, a, b, engines[e]->list({0}), 1, 50);
    d.wait[0] = wait_for(1, 1);
    d.signal[0] = add(0);
    engines[e]->submit({d});
  }
  link->enqueue(DP_CLASS_KV, 6'000'000, now_ns());  // 100 ms: nobody gets a start over the others
  for (auto& engine : engines) engine->bump(1);
  const auto done = [&](int e) { return engines[e]->counter(0); };
  while (std::max({done(0), done(1), done(2)}) < 45) usleep(200);
  for (int e = 0; e < kEngines; e++) EXPECT_GE(done(e), 25u) << "engine " << e;
  for (auto& engine : engines) EXPECT_EQ(engine->next().status, DP_ERROR_NONE);
}

TEST_F(LinksTest, AShortProgramIsNotHeldUpByALongOne) {
  const Shape shape = uniform_shape(100, kTokens, {{1024, 0}});
  EngineOptions options;
  options.links.nic_egress = std::make_shared<NicLink>("egress", 40'000'000);
  options.nic_lookahead_ns = kMillisecond_ns;
  Engine engine(*reactor_, "engine", options);
  const uint32_t a = engine.add_geometry(full_blocks(shape, 4));
  const uint32_t b = engine.add_geometry(full_blocks(shape, 4));
  const uint32_t list = engine.list({0, 1, 2, 3});
  const uint32_t longer = engine.submit({layers(DP_OP_COPY, a, b, list, 4, 100)});  // 164 ms
  const uint32_t shorter = engine.submit({layers(DP_OP_COPY, a, b, list, 1, 2)});   // 0.8 ms
  const dp_record first = engine.next();
  EXPECT_EQ(first.program, shorter);
  const dp_record second = engine.next();
  EXPECT_EQ(second.program, longer);
  EXPECT_GT(second.finished_ns - first.finished_ns, 50 * kMillisecond_ns);
}

// Two programs of different classes, both of which keep the link busy all the time: what each has got when
// inference is through is the arbiter's doing, not the machine's.
double kv_share(Reactor& reactor, const NicLinkOptions& wanted, uint32_t blocks) {
  const Shape shape = uniform_shape(1, kTokens, {{16 << 10, 0}});  // 256 KiB a block
  EngineOptions options;
  EXPECT_TRUE(NicLink::create(wanted, &options.links.nic_egress).ok());
  options.nic_lookahead_ns = 3'600'000 * kMillisecond_ns;
  Engine engine(reactor, wanted.name, options);
  const uint32_t a = engine.add_geometry(staging(shape, 1, 1));
  const uint32_t b = engine.add_geometry(staging(shape, 1, 1));
  NicLink& link = *options.links.nic_egress;
  const uint64_t filler = wanted.bytes_per_s / 10;  // while the engine takes its programs
  const uint64_t begin = now_ns();
  for (const uint32_t c : {DP_CLASS_INFERENCE, DP_CLASS_KV}) link.enqueue(c, filler, begin);
  for (const dp_traffic_class traffic_class : {DP_CLASS_INFERENCE, DP_CLASS_KV}) {
    dp_descriptor d = describe(DP_OP_COPY);
    d.traffic_class = traffic_class;
    d.src_geometry = a;
    d.dst_geometry = b;
    d.list_count = blocks;
    d.src_list = d.dst_list = engine.list(std::vector<uint32_t>(blocks, 0));
    d.token_end = blocks * kTokens;
    engine.submit({d});
  }
  const uint64_t bytes = filler + blocks * shape.block_bytes();
  EXPECT_TRUE(eventually([&] { return link.bytes() == 2 * bytes; }));
  const NicLinkStatistics statistics = link.statistics(link.forecast(DP_CLASS_INFERENCE, bytes));
  EXPECT_EQ(statistics.classes[DP_CLASS_INFERENCE].bytes, bytes);
  const auto kv = static_cast<double>(statistics.classes[DP_CLASS_KV].bytes);
  for (int i = 0; i < 2; i++) EXPECT_EQ(engine.next().status, DP_ERROR_NONE);
  return kv / (kv + static_cast<double>(bytes));
}

TEST_F(LinksTest, EachClassGetsTheShareThatTheTablesGiveIt) {
  // Below what this thread copies, so that no class's queue runs empty.
#ifdef __SANITIZE_THREAD__
  constexpr uint64_t kRate = 40'000'000;
#else
  constexpr uint64_t kRate = 400'000'000;
#endif
  // The floor: one packet of lane 2 in 4 of the low table, one of those in 241 packets.
  const double floor = 1.0 / 241 / 4;
  EXPECT_NEAR(kv_share(*reactor_, {"paper", kRate, default_arbitration(), {1, 2, 3}}, 640), floor,
              floor * 0.1);
  // 16 packets of high, one of low, which only kv uses.
  EXPECT_NEAR(kv_share(*reactor_, {"limit 16", kRate, {{{1, 64}}, {{2, 64}}, 16}, {1, 2, 1}}, 100), 1.0 / 17,
              0.1 / 17);
  // One table, 5 packets to 3.
  EXPECT_NEAR(
      kv_share(*reactor_, {"one table", kRate, {{}, {{1, 192}, {2, 192}, {1, 128}}, 0}, {1, 2, 1}}, 60),
      3.0 / 8, 0.3 / 8);
}

}  // namespace
}  // namespace dualpath::test
