// Load between two ends, for benchmarks: the product's own expansion, chains, queue pairs and completions,
// driven as fast as they go. One end initiates; the other lends its memory, and answers in ping-pongs.
#pragma once
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/status.h"
#include "verbs/expand.h"
#include "verbs/queue_pair.h"

namespace dualpath::verbs {

struct LoadEndOptions {
  std::string device;
  uint8_t port = 1;
  int gid_index = -1;        // -1: not global (InfiniBand)
  uint32_t queue_pairs = 1;  // 1 to 64
  uint32_t depth = 128;      // requests outstanding on each, 4 to 16384
  uint32_t bytes = 0;        // of the largest message, 1 to 1 GiB over all queue pairs
};

// What one end tells the other.
struct LoadEndAddress {
  std::vector<QueuePairAddress> queue_pairs;
  uint64_t memory = 0;  // two slots of `bytes` for each queue pair: written to, and answered in
  uint32_t key = 0;
  uint32_t bytes = 0;
  uint16_t lid = 0;
  ibv_gid gid{};
  uint32_t mtu_bytes = 0;
};

struct LoadPath {
  uint32_t mtu_bytes = 1024;
  uint8_t service_level = 0;
  uint8_t traffic_class = 0;
};

enum class LoadKind {
  kWrite,         // bandwidth
  kRead,          // bandwidth; one read outstanding on each queue pair, as they are connected
  kReadLatency,   // one after the other; from posting to the completion
  kWriteLatency,  // ping-pong of writes, both ends polling memory; half a round trip
  kWriteAnswer,   // the other end of it
};

struct LoadRun {
  LoadKind kind = LoadKind::kWrite;
  uint32_t bytes = 0;     // of each request
  uint32_t chain = 1;     // requests in a chain: one post, one completion
  uint64_t requests = 0;  // a multiple of the chain; 0: until stop()
  uint64_t spin_ns = 0;   // polling before sleeping
  uint64_t limit_ns = 0;  // after which it is an error
};

struct LoadResult {
  uint64_t requests = 0, bytes = 0;
  uint64_t elapsed_ns = 0;  // first post to last completion
  uint64_t chains = 0, post_calls = 0, completions = 0;
  std::vector<uint32_t> latency_ns;  // of each request, where that is what is measured
};

class LoadEnd {
 public:
  static Status open(std::shared_ptr<Verbs> verbs, const LoadEndOptions& options,
                     std::unique_ptr<LoadEnd>* out);

  LoadEndAddress address() const;
  Status connect(const LoadEndAddress& peer, const LoadPath& path);
  // One at a time. RDMA_FAILED with the queue pair's first error, DEADLINE.
  Status run(const LoadRun& run, LoadResult* out);
  // Of any thread: what runs ends when what is in flight has completed.
  void stop() { stopping_.store(true, std::memory_order_relaxed); }

 private:
  struct Events final : QueuePairEvents {
    void on_message(QueuePair&, std::span<const std::byte>) override {}
    void on_announced(QueuePair&, uint64_t) override {}
    void on_broken(QueuePair&, const WorkError& error) override { broken = error; }
    void on_drained(QueuePair&) override {}
    WorkError broken;
  };

  explicit LoadEnd(const LoadEndOptions& options) : options_(options) {}
  Status check(const LoadRun& run) const;
  Status run_alone(const LoadRun& run, LoadResult* out);
  Status stream(const LoadRun& run, LoadResult* out);
  Status one_by_one(const LoadRun& run, LoadResult* out);
  Status ping_pong(const LoadRun& run, LoadResult* out);
  // One chain; false when there is no room for it now.
  bool post(const LoadRun& run, uint32_t queue_pair, Operation* operation);
  bool fill(const LoadRun& run, uint32_t queue_pair);
  Status wait_for(const LoadRun& run, uint64_t deadline_ns, const bool& over);
  Status failure() const;

  const LoadEndOptions options_;
  std::shared_ptr<Device> device_;
  std::unique_ptr<CompletionQueue> completion_queue_;
  Events events_;
  std::shared_ptr<Arena> arena_;
  std::unique_ptr<MemoryRegion> region_;
  std::vector<std::unique_ptr<QueuePair>> queue_pairs_;
  std::unique_ptr<KeyedGeometry> here_, there_;
  LoadEndAddress peer_;
  std::unique_ptr<Chain> chain_;
  PartExpander expander_;
  std::vector<uint32_t> from_slots_, to_slots_;
  std::atomic<bool> stopping_{false};
  std::atomic<bool> running_{false};
};

}  // namespace dualpath::verbs
