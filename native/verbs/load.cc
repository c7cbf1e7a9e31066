#include "verbs/load.h"

#include <algorithm>

#include "core/clock.h"

namespace dualpath::verbs {
namespace {

constexpr uint32_t kMostQueuePairs = 64, kLeastDepth = 4, kMostDepth = 16384;
constexpr uint64_t kStopCheckNs = 50'000'000;
constexpr uint32_t kReceiveEntries = 4;

Status refused(const std::string& what, uint64_t value, uint64_t least, uint64_t most) {
  return Status::error("INVALID_ARGUMENT", what + " " + std::to_string(value) + ": " + std::to_string(least) +
                                               " to " + std::to_string(most) + " allowed");
}

// Two slots for each queue pair, the second where peers' answers land; a block is a slot, a token is a block.
Status geometry(std::shared_ptr<Arena> arena, uint32_t slots, uint32_t stride, uint32_t bytes, uint32_t key,
                std::unique_ptr<KeyedGeometry>* out) {
  GeometryOptions options;
  options.arena = std::move(arena);
  options.slots = slots;
  options.slot_stride_bytes = stride;
  options.block_tokens = 1;
  options.layers = {{0, {{0, bytes, bytes, 0}}}};
  return KeyedGeometry::create(std::move(options), {key}, out);
}

void set_over(Operation&, void* context) { *static_cast<bool*>(context) = true; }

}  // namespace

Status LoadEnd::open(std::shared_ptr<Verbs> verbs, const LoadEndOptions& options,
                     std::unique_ptr<LoadEnd>* out) {
  if (options.queue_pairs == 0 || options.queue_pairs > kMostQueuePairs) {
    return refused("queue pairs", options.queue_pairs, 1, kMostQueuePairs);
  }
  if (options.depth < kLeastDepth || options.depth > kMostDepth) {
    return refused("depth", options.depth, kLeastDepth, kMostDepth);
  }
  const uint64_t most = Arena::kMaxBytes / 2 / options.queue_pairs;
  if (options.bytes == 0 || options.bytes > most) return refused("message bytes", options.bytes, 1, most);
  auto end = std::unique_ptr<LoadEnd>(new LoadEnd(options));
  Status status = Device::open(std::move(verbs), options.device, &end->device_);
  const uint32_t entries = options.depth + 1;  // one is kept for the marker that drains the queue
  if (status.ok()) {
    status = CompletionQueue::create(end->device_, options.queue_pairs * (entries + kReceiveEntries),
                                     &end->completion_queue_);
  }
  ArenaOptions arena;
  arena.name = "RDMA load";
  arena.bytes = size_t{options.bytes} * options.queue_pairs * 2;
  if (status.ok()) status = Arena::create(arena, &end->arena_);
  if (status.ok()) {
    status = MemoryRegion::register_arena(end->device_, end->arena_, RegionAccess::kPeersReadAndWrite,
                                          &end->region_);
  }
  QueuePairOptions queue_pair;
  queue_pair.send_entries = entries;
  queue_pair.receive_entries = kReceiveEntries;
  queue_pair.port = options.port;
  for (uint32_t i = 0; status.ok() && i < options.queue_pairs; i++) {
    status = QueuePair::create(*end->completion_queue_, queue_pair, 1000 * (i + 1), &end->events_,
                               &end->queue_pairs_.emplace_back());
  }
  if (!status.ok()) return status;
  end->chain_ = std::make_unique<Chain>(end->queue_pairs_[0]->chain_options());
  *out = std::move(end);
  return {};
}

LoadEndAddress LoadEnd::address() const {
  LoadEndAddress address;
  for (const auto& queue_pair : queue_pairs_) address.queue_pairs.push_back(queue_pair->address());
  address.memory = reinterpret_cast<uint64_t>(arena_->base());
  address.key = region_->remote_key();
  address.bytes = options_.bytes;
  PortFacts port;
  if (device_->port(options_.port, &port).ok()) {
    address.lid = port.lid;
    address.mtu_bytes = port.mtu_bytes;
  }
  if (options_.gid_index >= 0) device_->gid(options_.port, options_.gid_index, &address.gid);
  return address;
}

Status LoadEnd::connect(const LoadEndAddress& peer, const LoadPath& path) {
  if (peer.queue_pairs.size() != queue_pairs_.size() || peer.bytes != options_.bytes) {
    return Status::error("INVALID_ARGUMENT", "the peer has " + std::to_string(peer.queue_pairs.size()) +
                                                 " queue pairs of " + std::to_string(peer.bytes) +
                                                 " bytes; give both ends the same");
  }
  PathParameters parameters;
  parameters.peer_lid = peer.lid;
  parameters.peer_gid = peer.gid;
  parameters.gid_index = options_.gid_index;
  parameters.service_level = path.service_level;
  parameters.traffic_class = path.traffic_class;
  parameters.mtu_bytes = path.mtu_bytes;
  for (size_t i = 0; i < queue_pairs_.size(); i++) {
    parameters.peer = peer.queue_pairs[i];
    const Status status = queue_pairs_[i]->connect(parameters);
    if (!status.ok()) return status;
  }
  peer_ = peer;
  return {};
}

Status LoadEnd::check(const LoadRun& run) const {
  if (queue_pairs_.empty()) return Status::error("CLOSED", "this end has failed before; open another");
  const uint32_t most_chain = queue_pairs_[0]->chain_options().requests;
  if (run.bytes == 0 || run.bytes > options_.bytes) return refused("bytes", run.bytes, 1, options_.bytes);
  if (run.chain == 0 || run.chain > most_chain) {
    return refused("chains of requests (half of the depth at most),", run.chain, 1, most_chain);
  }
  if (peer_.bytes == 0) return Status::error("INVALID_ARGUMENT", "this end is not connected");
  return {};
}

Status LoadEnd::run(const LoadRun& run, LoadResult* out) {
  if (running_.exchange(true)) return Status::error("CAPACITY_EXHAUSTED", "one run at a time; wait for it");
  const Status status = run_alone(run, out);
  running_ = false;
  return status;
}

Status LoadEnd::run_alone(const LoadRun& run, LoadResult* out) {
  Status status = check(run);
  if (!status.ok()) return status;
  const uint32_t count = static_cast<uint32_t>(queue_pairs_.size());
  status = geometry(arena_, 2 * count, options_.bytes, run.bytes, region_->local_key(), &here_);
  auto peers = Arena::adopt("peer", reinterpret_cast<std::byte*>(peer_.memory),
                            size_t{options_.bytes} * count * 2, ArenaKind::kHost);
  if (status.ok()) status = geometry(peers, 2 * count, options_.bytes, run.bytes, peer_.key, &there_);
  if (!status.ok()) return status;
  stopping_.store(false, std::memory_order_relaxed);
  std::vector<QueuePairCounters> before;
  for (const auto& queue_pair : queue_pairs_) before.push_back(queue_pair->counters());
  const bool streams = run.kind == LoadKind::kWrite || run.kind == LoadKind::kRead;
  status = streams                              ? stream(run, out)
           : run.kind == LoadKind::kReadLatency ? one_by_one(run, out)
                                                : ping_pong(run, out);
  for (size_t i = 0; i < queue_pairs_.size(); i++) {
    const QueuePairCounters& after = queue_pairs_[i]->counters();
    out->requests += after.requests - before[i].requests;
    out->bytes += after.bytes - before[i].bytes;
    out->chains += after.chains - before[i].chains;
    out->post_calls += after.post_calls - before[i].post_calls;
    out->completions += after.completions - before[i].completions;
  }
  return status;
}

// The same slot again and again: no two requests continue each other, so that each stays one.
bool LoadEnd::fill(const LoadRun& run, uint32_t queue_pair) {
  if (run.kind == LoadKind::kRead || run.kind == LoadKind::kReadLatency) {
    const uint64_t offset = uint64_t{queue_pair} * options_.bytes;
    const Piece piece{reinterpret_cast<uint64_t>(arena_->base()) + offset, peer_.memory + offset,
                      region_->local_key(), peer_.key, run.bytes};
    for (uint32_t i = 0; i < run.chain; i++) {
      if (!chain_->read(piece)) return false;
    }
    return true;
  }
  from_slots_.assign(run.chain, queue_pair);
  to_slots_.assign(run.chain, queue_pair + (run.kind == LoadKind::kWrite ? 0 : options_.queue_pairs));
  expander_.begin(
      {here_.get(), there_.get(), from_slots_.data(), to_slots_.data(), run.chain, 0, 0, {0, run.chain}, 0});
  return expander_.expand(*chain_) == PartExpander::Result::kDone;
}

bool LoadEnd::post(const LoadRun& run, uint32_t index, Operation* operation) {
  QueuePair& queue_pair = *queue_pairs_[index];
  if (queue_pair.room() < run.chain) return false;
  chain_->clear();
  return fill(run, index) && queue_pair.post(*chain_, operation) == PostResult::kPosted;
}

Status LoadEnd::failure() const {
  if (completion_queue_->failed()) return Status::error("RDMA_FAILED", "the completion queue failed");
  return Status::error("RDMA_FAILED", "the load ended early: " + describe(events_.broken));
}

Status LoadEnd::wait_for(const LoadRun& run, uint64_t deadline_ns, const bool& over) {
  const uint64_t now = now_ns();
  if (over) return {};
  if (!events_.broken.ok() ||
      completion_queue_->wait(run.spin_ns, std::min(deadline_ns, now + kStopCheckNs)) < 0) {
    return failure();
  }
  if (now < deadline_ns) return {};
  for (const auto& queue_pair : queue_pairs_) queue_pair->drain();
  return Status::error("DEADLINE", "the load took longer than " + std::to_string(run.limit_ns / 1'000'000) +
                                       " ms; use fewer requests");
}

Status LoadEnd::stream(const LoadRun& run, LoadResult* out) {
  bool over = false;
  Operation operation;
  operation.begin({}, set_over, &over);
  const uint64_t begun = now_ns(), deadline = begun + run.limit_ns;
  uint64_t left = run.requests == 0 ? UINT64_MAX : run.requests;
  bool sealed = false;
  Status status;
  while (!over && status.ok()) {
    for (uint32_t i = 0; i < queue_pairs_.size(); i++) {
      while (left >= run.chain && post(run, i, &operation)) left -= run.chain;
    }
    if (run.requests == 0 && stopping_.load(std::memory_order_relaxed)) left = 0;
    if (left < run.chain && !sealed) {
      sealed = true;
      operation.seal();
    }
    status = wait_for(run, deadline, over);
  }
  out->elapsed_ns = now_ns() - begun;
  // A failed run's chains come out when their queue pairs are destroyed, which takes this operation's end.
  if (!over) {
    if (!sealed) operation.seal();
    for (auto& queue_pair : queue_pairs_) queue_pair->drain();
    const uint64_t patience = now_ns() + 10'000'000'000;
    while (!over && now_ns() < patience) completion_queue_->wait(0, patience);
    if (!over) queue_pairs_.clear();  // the other way to be sure
  }
  return status.ok() && !operation.error().ok() ? failure() : status;
}

Status LoadEnd::one_by_one(const LoadRun& run, LoadResult* out) {
  out->latency_ns.reserve(run.requests);
  const uint64_t first = now_ns();
  LoadRun single = run;
  single.chain = 1;
  single.requests = 1;
  for (uint64_t i = 0; i < run.requests; i++) {
    LoadResult one;
    const Status status = stream(single, &one);
    if (!status.ok()) return status;
    out->latency_ns.push_back(static_cast<uint32_t>(std::min<uint64_t>(one.elapsed_ns, UINT32_MAX)));
  }
  out->elapsed_ns = now_ns() - first;
  return {};
}

// The last byte of a message says which one it is; the peer writes the same back.
Status LoadEnd::ping_pong(const LoadRun& run, LoadResult* out) {
  const bool answers = run.kind == LoadKind::kWriteAnswer;
  const size_t answers_at = size_t{options_.bytes} * options_.queue_pairs;
  std::byte& outgoing = arena_->base()[run.bytes - 1];
  const std::atomic_ref<std::byte> incoming(arena_->base()[answers_at + run.bytes - 1]);
  bool never = false;
  LoadRun single = run;
  single.chain = 1;
  const uint64_t begun = now_ns(), deadline = begun + run.limit_ns;
  if (!answers) out->latency_ns.reserve(run.requests);
  for (uint64_t i = 0; i < run.requests; i++) {
    const auto turn = static_cast<std::byte>(1 + i % 250);
    const auto arrived = [&] { return incoming.load(std::memory_order_acquire) == turn; };
    const auto wait = [&]() -> Status {
      while (!arrived()) {
        completion_queue_->poll(64);
        if (now_ns() > deadline || !events_.broken.ok()) return wait_for(run, deadline, never);
      }
      return {};
    };
    Status status = answers ? wait() : Status{};
    outgoing = turn;
    const uint64_t posted = now_ns();
    while (status.ok() && !post(single, 0, nullptr)) status = wait_for(run, deadline, never);
    if (!answers && status.ok()) status = wait();
    if (!status.ok()) return status;
    if (answers) continue;
    out->latency_ns.push_back(static_cast<uint32_t>(std::min<uint64_t>((now_ns() - posted) / 2, UINT32_MAX)));
  }
  out->elapsed_ns = now_ns() - begun;
  while (queue_pairs_[0]->room() != options_.depth) {
    const Status status = wait_for(run, deadline, never);
    if (!status.ok()) return status;
  }
  return {};
}

}  // namespace dualpath::verbs
