// Two engines on two reactors, reached by verbs over the strict stub provider, which works by a thread of its
// own.
#pragma once
#include <algorithm>

#include "rdma/transport.h"
#include "test/transfer/harness.h"
#include "test/transfer/kv.h"
#include "verbs/stub/fabric.h"

namespace dualpath::test {

struct VerbsEnd {
  std::unique_ptr<Reactor> reactor = make_reactor();
  std::unique_ptr<Engine> engine;
  std::shared_ptr<rdma::Transport> transport;
  std::vector<rdma::TransportEvent> events;

  VerbsEnd(const std::string& name, EngineOptions options = {})
      : engine(std::make_unique<Engine>(*reactor, name, std::move(options))) {}
  ~VerbsEnd() { engine.reset(); }

  Status attach(const std::shared_ptr<verbs::Verbs>& verbs, const std::string& device,
                rdma::TransportOptions options = {}) {
    options.engine = &engine->native();
    options.reactor = reactor.get();
    options.verbs = verbs;
    options.device = device;
    if (options.gid_index < 0) options.gid_index = 2;
    return rdma::Transport::create(std::move(options), &transport);
  }
  // Of this kind, among all that have come.
  bool told(rdma::TransportEvent::Kind kind, rdma::TransportEvent* out = nullptr) {
    for (auto& event : transport->take_events()) events.push_back(event);
    const auto found =
        std::find_if(events.begin(), events.end(), [&](const auto& e) { return e.kind == kind; });
    if (found == events.end()) return false;
    if (out != nullptr) *out = *found;
    return true;
  }
  verbs::QueuePairCounters counters(uint32_t connection) {
    for (const auto& one : transport->statistics().connections) {
      if (one.connection == connection) return one.counters;
    }
    ADD_FAILURE() << "no connection " << connection;
    return {};
  }
};

inline verbs::PathParameters path_to(const rdma::ConnectionHalf& half) {
  verbs::PathParameters path;
  path.peer = half.address;
  path.peer_gid = half.gid;
  path.mtu_bytes = 1024;
  return path;
}

class VerbsEngines {
 public:
  explicit VerbsEngines(verbs::stub::StubOptions stub = {}, rdma::TransportOptions options = {},
                        EngineOptions engine = {})
      : fabric(std::make_shared<verbs::stub::StubFabric>(with_thread(stub))),
        a(unique("a"), engine),
        b(unique("b"), engine) {
    expect_ok(a.attach(fabric, "stub0", options));
    expect_ok(b.attach(fabric, "stub1", options));
  }
  // Both on one device.
  VerbsEngines(const std::shared_ptr<verbs::Verbs>& verbs, const std::string& device, int gid_index)
      : a(unique("a"), {}), b(unique("b"), {}) {
    rdma::TransportOptions options;
    options.gid_index = gid_index;
    expect_ok(a.attach(verbs, device, options));
    expect_ok(b.attach(verbs, device, options));
  }
  ~VerbsEngines() {
    if (fabric != nullptr) fabric->pause(false);
    a.engine->close();
    b.engine->close();
    a.transport.reset();
    b.transport.reset();
  }

  static void expect_ok(const Status& status) { ASSERT_TRUE(status.ok()) << status.message; }
  // After the geometries have been added.
  void meet() {
    rdma::RemoteMemory memory_a, memory_b;
    expect_ok(a.transport->memory(&memory_a));
    expect_ok(b.transport->memory(&memory_b));
    change_memory(&memory_b);
    expect_ok(a.transport->add_peer("b", memory_b, &peer_b));
    expect_ok(b.transport->add_peer("a", memory_a, &peer_a));
  }
  void connect(uint8_t traffic_class = DP_CLASS_KV) {
    rdma::ConnectionHalf half_a, half_b;
    expect_ok(a.transport->open(traffic_class, -1, &half_a));
    expect_ok(b.transport->open(traffic_class, -1, &half_b));
    expect_ok(a.transport->connect(half_a.connection, peer_b, path_to(half_b)));
    expect_ok(b.transport->connect(half_b.connection, peer_a, path_to(half_a)));
    at_a = half_a.connection;
    at_b = half_b.connection;
  }

  std::shared_ptr<verbs::stub::StubFabric> fabric;
  VerbsEnd a, b;
  uint32_t peer_a = DP_NONE, peer_b = DP_NONE;  // as the other knows it
  uint32_t at_a = 0, at_b = 0;                  // connections
  std::function<void(rdma::RemoteMemory*)> change_memory = [](rdma::RemoteMemory*) {};

 private:
  static std::string unique(const char* name) {
    static int count = 0;
    return name + std::to_string(count++);
  }
  static verbs::stub::StubOptions with_thread(verbs::stub::StubOptions options) {
    options.own_thread = true;
    return options;
  }
};

// Blocks 0 .. n - 1 of each layer from a to b.
struct Transfer {
  static constexpr uint32_t kTokens = 16;
  VerbsEngines& engines;
  Shape shape;
  uint32_t blocks;
  std::shared_ptr<const Geometry> source, target;
  std::vector<uint32_t> slots;
  std::vector<uint64_t> seeds;
  uint32_t from, to;

  Transfer(VerbsEngines& of, Shape with, uint32_t count)
      : engines(of),
        shape(std::move(with)),
        blocks(count),
        source(full_blocks(shape, count)),
        target(full_blocks(shape, count)),
        slots(count),
        seeds(seeds_of(count * kTokens)) {
    std::iota(slots.begin(), slots.end(), 0);
    write_kv(*source, slots, range(), seeds);
    from = of.a.engine->add_geometry(source);
    to = of.b.engine->add_geometry(target);
  }
  TokenRange range() const { return {0, blocks * kTokens}; }
  dp_descriptor send() {
    dp_descriptor d = describe(DP_OP_SEND);
    d.src_geometry = from;
    d.dst_geometry = to;
    d.src_list = d.dst_list = engines.a.engine->list(slots);
    d.list_count = blocks;
    d.token_end = blocks * kTokens;
    d.layer_count = static_cast<uint16_t>(shape.layers.size());
    d.peer = engines.peer_b;
    return d;
  }
  void expect_arrived() { expect_kv(*target, slots, range(), seeds); }
};

}  // namespace dualpath::test
