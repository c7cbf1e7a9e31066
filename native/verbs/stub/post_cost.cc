#include "verbs/stub/post_cost.h"

#include <algorithm>
#include <memory>
#include <vector>

#include "core/clock.h"
#include "verbs/expand.h"
#include "verbs/queue_pair.h"
#include "verbs/stub/fabric.h"

namespace dualpath::verbs::stub {
namespace {

struct NoEvents final : QueuePairEvents {
  void on_message(QueuePair&, std::span<const std::byte>) override {}
  void on_announced(QueuePair&, uint64_t) override {}
  void on_broken(QueuePair&, const WorkError&) override {}
  void on_drained(QueuePair&) override {}
};

struct Endpoint {
  std::shared_ptr<Device> device;
  std::unique_ptr<CompletionQueue> completion_queue;
  NoEvents events;
  std::unique_ptr<QueuePair> queue_pair;
  std::shared_ptr<Arena> arena;
  std::unique_ptr<MemoryRegion> region;
  std::unique_ptr<KeyedGeometry> geometry;

  Status open(const std::shared_ptr<StubFabric>& fabric, const std::string& name, uint32_t send_entries) {
    QueuePairOptions options;
    options.send_entries = send_entries;
    Status status = Device::open(fabric, name, &device);
    if (status.ok()) status = CompletionQueue::create(device, send_entries + 64, &completion_queue);
    if (status.ok()) status = QueuePair::create(*completion_queue, options, 1, &events, &queue_pair);
    return status;
  }

  Status lay_out(const PostCostOptions& options, uint32_t slots, bool remote) {
    GeometryOptions geometry_options;
    geometry_options.slots = slots;
    geometry_options.block_tokens = options.block_tokens;
    const uint32_t bytes = options.block_tokens * options.bytes_per_token;
    geometry_options.slot_stride_bytes = bytes;
    geometry_options.layers = {{0, {{0, options.bytes_per_token, options.bytes_per_token, 0}}}};
    ArenaOptions arena_options;
    arena_options.name = "bench post";
    arena_options.bytes = size_t{slots} * bytes;
    Status status = Arena::create(arena_options, &arena);
    if (status.ok()) {
      status = MemoryRegion::register_arena(device, arena, RegionAccess::kPeersWrite, &region);
    }
    if (!status.ok()) return status;
    geometry_options.arena = arena;
    const uint32_t key = remote ? region->remote_key() : region->local_key();
    return KeyedGeometry::create(std::move(geometry_options), {key}, &geometry);
  }
};

PathParameters path_to(const Endpoint& peer) {
  PathParameters path;
  path.peer = peer.queue_pair->address();
  path.gid_index = 2;
  return path;
}

// One sender, one receiver, and the blocks of one layer between them.
class Run {
 public:
  explicit Run(const PostCostOptions& options)
      : options_(options),
        send_entries_(std::max(64u, 2 * options.chain + 2)),
        // A clock read costs about as much as a request: short chains are timed several at a time.
        at_once_(std::max(1u, std::min(32u, (send_entries_ - 1) / options.chain))),
        fabric_(std::make_shared<StubFabric>(StubOptions{.shuffled = false})) {}

  Status prepare() {
    Status status = a_.open(fabric_, "stub0", send_entries_);
    if (status.ok()) status = b_.open(fabric_, "stub1", send_entries_);
    if (status.ok()) status = a_.lay_out(options_, 2 * options_.chain, false);
    if (status.ok()) status = b_.lay_out(options_, 2 * options_.chain, true);
    if (status.ok()) status = a_.queue_pair->connect(path_to(b_));
    if (status.ok()) status = b_.queue_pair->connect(path_to(a_));
    // Every other slot, so that no two blocks merge: one work request a block.
    for (uint32_t i = 0; i < options_.chain; i++) slots_.push_back(2 * i);
    for (uint32_t i = 0; status.ok() && i < at_once_; i++) {
      chains_.push_back(std::make_unique<Chain>(a_.queue_pair->chain_options()));
    }
    return status;
  }

  Status measure(PostCost* out) {
    const uint32_t warm_up = options_.chains / 10;
    for (uint32_t done = 0; done < warm_up; done += at_once_) {
      const Status status = round();
      if (!status.ok()) return status;
    }
    for (auto* samples : {&expand_ns_, &post_ns_, &complete_ns_}) samples->clear();
    const StubCounters before = fabric_->counters();
    for (; out->chains < options_.chains; out->chains += at_once_) {
      const Status status = round();
      if (!status.ok()) return status;
    }
    const StubCounters after = fabric_->counters();
    out->requests = after.requests - before.requests;
    out->post_calls = after.post_calls - before.post_calls;
    out->completions = after.completions - before.completions;
    out->bytes = out->requests * options_.block_tokens * options_.bytes_per_token;
    const double requests = options_.chain * at_once_;
    out->expand_ns_per_request = median(&expand_ns_) / requests;
    out->post_ns_per_request = median(&post_ns_) / requests;
    out->complete_ns_per_request = median(&complete_ns_) / requests;
    return {};
  }

 private:
  static double median(std::vector<uint64_t>* samples) {
    const auto middle = samples->begin() + static_cast<ptrdiff_t>(samples->size() / 2);
    std::nth_element(samples->begin(), middle, samples->end());
    return static_cast<double>(*middle);
  }

  Status round() {
    const Part part{a_.geometry.get(),
                    b_.geometry.get(),
                    slots_.data(),
                    slots_.data(),
                    options_.chain,
                    0,
                    0,
                    {0, options_.chain * options_.block_tokens},
                    0};
    const uint64_t begun = now_ns();
    for (auto& chain : chains_) {
      expander_.begin(part);
      expander_.expand(*chain);
    }
    const uint64_t expanded = now_ns();
    for (auto& chain : chains_) {
      if (a_.queue_pair->post(*chain, nullptr) == PostResult::kPosted) continue;
      return Status::error("INTERNAL", "the stub refused a chain: " + describe(a_.queue_pair->first_error()));
    }
    const uint64_t posted = now_ns();
    fabric_->step();  // the bytes move and the completions come, as a NIC does it beside the CPU
    const uint64_t moved = now_ns();
    while (a_.queue_pair->room() != send_entries_ - 1) a_.completion_queue->poll(64);
    complete_ns_.push_back(now_ns() - moved);
    expand_ns_.push_back(expanded - begun);
    post_ns_.push_back(posted - expanded);
    return {};
  }

  const PostCostOptions options_;
  const uint32_t send_entries_;
  const uint32_t at_once_;
  std::shared_ptr<StubFabric> fabric_;
  Endpoint a_, b_;
  std::vector<uint32_t> slots_;
  std::vector<std::unique_ptr<Chain>> chains_;
  PartExpander expander_;
  std::vector<uint64_t> expand_ns_, post_ns_, complete_ns_;  // of each round
};

}  // namespace

Status measure_post_cost(const PostCostOptions& options, PostCost* out) {
  if (options.chain == 0 || options.chain > 1024) {
    return Status::error("INVALID_ARGUMENT",
                         "chains of " + std::to_string(options.chain) + " work requests: 1 to 1024 allowed");
  }
  Run run(options);
  const Status status = run.prepare();
  return status.ok() ? run.measure(out) : status;
}

}  // namespace dualpath::verbs::stub
