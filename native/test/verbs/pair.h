// Two connected queue pairs on the strict stub provider, each with its own device and completion queue.
#pragma once
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "../memory/shapes.h"
#include "verbs/expand.h"
#include "verbs/queue_pair.h"
#include "verbs/stub/fabric.h"

namespace dualpath::test {

using namespace dualpath::verbs;

// Everything a queue pair told its owner.
struct Recorder final : QueuePairEvents {
  std::vector<std::string> messages;
  std::vector<uint64_t> announced;
  std::vector<WorkError> broken;
  uint32_t drained = 0;

  void on_message(QueuePair&, std::span<const std::byte> message) override {
    messages.emplace_back(reinterpret_cast<const char*>(message.data()), message.size());
  }
  void on_announced(QueuePair&, uint64_t cookie) override { announced.push_back(cookie); }
  void on_broken(QueuePair&, const WorkError& error) override { broken.push_back(error); }
  void on_drained(QueuePair&) override { drained++; }
};

// Counts how often it ended.
struct Tracked {
  Operation operation;
  uint32_t ended = 0;

  void begin(MemoryOwner::Hold hold = {}) {
    operation.begin(
        std::move(hold), [](Operation&, void* context) { static_cast<Tracked*>(context)->ended++; }, this);
  }
};

inline std::span<const std::byte> bytes_of(const std::string& text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

struct End {
  std::shared_ptr<Device> device;
  std::unique_ptr<CompletionQueue> completion_queue;
  Recorder recorder;
  std::unique_ptr<QueuePair> queue_pair;

  void open(const std::shared_ptr<stub::StubFabric>& fabric, const std::string& name, uint32_t cq_entries) {
    ASSERT_TRUE(Device::open(fabric, name, &device).ok());
    ASSERT_TRUE(CompletionQueue::create(device, cq_entries, &completion_queue).ok());
  }
  void make(const QueuePairOptions& options, uint32_t psn) {
    const Status status = QueuePair::create(*completion_queue, options, psn, &recorder, &queue_pair);
    ASSERT_TRUE(status.ok()) << status.message;
  }
};

// Memory registered with an end's device.
struct Registered {
  std::shared_ptr<Arena> arena;
  std::unique_ptr<MemoryRegion> region;

  Registered(const std::shared_ptr<Device>& device, size_t bytes,
             RegionAccess access = RegionAccess::kPeersWrite)
      : arena(exact_arena(bytes)) {
    const Status status = MemoryRegion::register_arena(device, arena, access, &region);
    EXPECT_TRUE(status.ok()) << status.message;
  }
  uint64_t address(size_t offset = 0) const { return reinterpret_cast<uint64_t>(arena->base()) + offset; }
  std::byte* base() const { return arena->base(); }
};

inline PathParameters path_to(const End& peer) {
  PathParameters path;
  path.peer = peer.queue_pair->address();
  EXPECT_TRUE(peer.device->gid(1, 2, &path.peer_gid).ok());
  path.gid_index = 2;
  path.mtu_bytes = 4096;
  path.rnr_retry = 6;
  return path;
}

class Pair {
 public:
  explicit Pair(const QueuePairOptions& options = {}, const stub::StubOptions& stub = {})
      : fabric(std::make_shared<stub::StubFabric>(stub)) {
    const uint32_t entries = 4 * (options.send_entries + options.receive_entries);
    a.open(fabric, "stub0", entries);
    b.open(fabric, "stub1", entries);
    a.make(options, 0xfffff0);
    b.make(options, 77);
    connect();
  }
  void connect() {
    EXPECT_TRUE(a.queue_pair->connect(path_to(b)).ok());
    EXPECT_TRUE(b.queue_pair->connect(path_to(a)).ok());
  }
  // Until neither end has anything to do any more; false when that takes for ever.
  bool settle(uint32_t rounds = 20000) {
    for (uint32_t idle = 0; rounds != 0 && idle < 200; rounds--) {
      idle = a.completion_queue->poll(64) + b.completion_queue->poll(64) == 0 ? idle + 1 : 0;
    }
    return rounds != 0;
  }

  std::shared_ptr<stub::StubFabric> fabric;
  End a, b;
};

// A part from a to b, in as many chains as it takes; the bytes posted.
inline uint64_t carry_out(Pair& pair, const Part& part) {
  Chain chain(pair.a.queue_pair->chain_options());
  PartExpander expander;
  expander.begin(part);
  Tracked tracked;
  tracked.begin();
  uint64_t posted_bytes = 0;
  for (bool done = false; !done;) {
    const auto result = expander.expand(chain);
    EXPECT_NE(result, PartExpander::Result::kOutOfBounds);
    done = result != PartExpander::Result::kChainFull;
    posted_bytes += chain.bytes();
    while (pair.a.queue_pair->post(chain, &tracked.operation) == PostResult::kAgain) {
      pair.a.completion_queue->poll(8);
    }
  }
  tracked.operation.seal();
  EXPECT_TRUE(pair.settle());
  EXPECT_EQ(tracked.ended, 1u);
  EXPECT_TRUE(tracked.operation.error().ok()) << describe(tracked.operation.error());
  return posted_bytes;
}

}  // namespace dualpath::test
