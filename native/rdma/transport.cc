#include "rdma/transport.h"

#include <errno.h>
#include <sys/random.h>

#include <algorithm>

#include "core/clock.h"

namespace dualpath::rdma {
namespace {

// Flushing takes microseconds; a provider that has not done it by then is not waited for.
constexpr uint64_t kDrain_ns = 1'000'000'000;
// Between looks for credits, where a step waits for them.
constexpr uint64_t kCreditsPoll_ns = 20'000;
constexpr uint64_t kLongestCreditsPoll_ns = 1'000'000;

void add(verbs::QueuePairCounters* sum, const verbs::QueuePairCounters& more) {
  sum->post_calls += more.post_calls;
  sum->requests += more.requests;
  sum->chains += more.chains;
  sum->bytes += more.bytes;
  sum->completions += more.completions;
  sum->errors += more.errors;
  sum->flushed += more.flushed;
  sum->refused += more.refused;
  sum->messages += more.messages;
  sum->announcements += more.announcements;
}

}  // namespace

TransportEvent::TransportEvent(Kind of, const Connection* connection_of) : kind(of) {
  if (connection_of == nullptr) return;
  connection = connection_of->id();
  peer = connection_of->peer;
}

Transport::Transport(TransportOptions options)
    : options_(std::move(options)), door_(options_.engine->options().door) {}

Status Transport::create(TransportOptions options, std::shared_ptr<Transport>* out) {
  auto transport = std::shared_ptr<Transport>(new Transport(std::move(options)));
  const TransportOptions& given = transport->options_;
  Status status = Progress::of(*given.reactor, given.verbs, given.device, &transport->progress_);
  if (!status.ok()) return status;
  TransportFacts facts;
  status = transport->facts(&facts);  // checks port and GID index
  if (!status.ok()) return status;
  if (given.exclusive) status = PortClaim::take(given.device, given.port, &transport->claim_);
  if (!status.ok()) return status;
  transport->memory_ =
      std::make_shared<RegisteredMemory>(transport->progress_->shared_device(), *given.engine);
  given.reactor->call([&] {
    transport->progress_->add(transport.get());
    given.engine->attach(transport);
  });
  *out = std::move(transport);
  return {};
}

Transport::~Transport() = default;

Status Transport::run(const std::function<Status()>& work) {
  Status status = Status::error(
      "CLOSED", "the verbs transport of engine '" + options_.engine->options().name + "' has been closed");
  options_.reactor->call([&] {
    if (!left_ && !closing_) status = work();
  });
  return status;
}

Status Transport::facts(TransportFacts* out) {
  verbs::Device& device = progress_->device();
  *out = {options_.verbs->provider(),
          options_.emulated,
          options_.device,
          options_.port,
          options_.gid_index,
          {},
          {}};
  const Status status = device.port(options_.port, &out->port_facts);
  if (!status.ok()) return status;
  if (options_.gid_index >= 0) return device.gid(options_.port, options_.gid_index, &out->gid);
  if (!out->port_facts.ethernet) return {};
  return Status::error("INVALID_ARGUMENT", "RDMA device '" + options_.device +
                                               "' is RoCE, which needs a GID: give a GID index; 'dualpath "
                                               "devices' says which to use");
}

Status Transport::add_peer(const std::string& name, RemoteMemory memory, uint32_t* id) {
  std::unique_ptr<VerbsPeer> peer;
  Status status = VerbsPeer::create(name, std::move(memory), memory_, &peer);
  if (!status.ok()) return status;
  VerbsPeer* const raw = peer.get();
  return run([&] {
    const Status added = options_.engine->add_peer(std::move(peer), id);
    if (added.ok()) peers_.emplace_back(*id, raw);
    return added;
  });
}

Status Transport::find(uint32_t id, Connection** out) {
  const auto found = std::find_if(connections_.begin(), connections_.end(),
                                  [&](const auto& one) { return one->id() == id; });
  if (found == connections_.end()) {
    return Status::error("INVALID_ARGUMENT", "connection " + std::to_string(id) + " is not open");
  }
  *out = found->get();
  return {};
}

Status Transport::open(uint8_t traffic_class, int gid_index, ConnectionHalf* out) {
  uint32_t psn = 0;
  if (getrandom(&psn, sizeof psn, 0) != sizeof psn) psn = static_cast<uint32_t>(now_ns());
  if (gid_index < 0) gid_index = options_.gid_index;
  if (gid_index >= 0) {
    const Status status = progress_->device().gid(options_.port, gid_index, &out->gid);
    if (!status.ok()) return status;
  }
  verbs::PortFacts port;
  const Status status = progress_->device().port(options_.port, &port);
  if (!status.ok()) return status;
  out->lid = port.lid;
  return run([&] { return open_now(traffic_class, gid_index, psn, out); });
}

Status Transport::open_now(uint8_t traffic_class, int gid_index, uint32_t psn, ConnectionHalf* out) {
  if (progress_->failed()) {
    return Status::error("RDMA_FAILED", "RDMA device '" + options_.device +
                                            "' has failed; close its engines and open them anew");
  }
  if (connections_.size() >= options_.max_connections) {
    return Status::error("CAPACITY_EXHAUSTED", "engine '" + options_.engine->options().name + "' has " +
                                                   std::to_string(options_.max_connections) +
                                                   " connections on RDMA device '" + options_.device +
                                                   "', the most there can be; close idle ones");
  }
  ConnectionOptions wanted;
  wanted.id = ++last_id_;
  wanted.traffic_class = traffic_class;
  wanted.gid_index = gid_index;
  wanted.psn = psn;
  wanted.queue_pair = options_.queue_pair;
  wanted.queue_pair.port = options_.port;
  wanted.chain_bytes = options_.chain_bytes;
  wanted.in_flight_bytes = options_.in_flight_bytes;
  std::unique_ptr<Connection> connection;
  const Status status = Connection::open(*this, progress_->completion_queue(), wanted, &connection);
  if (!status.ok()) return status;
  out->connection = wanted.id;
  out->address = connection->address();
  connections_.push_back(std::move(connection));
  return {};
}

Status Transport::connect(uint32_t connection, uint32_t peer, const verbs::PathParameters& path) {
  return run([&] { return connect_now(connection, peer, path); });
}

Status Transport::connect_now(uint32_t id, uint32_t peer, const verbs::PathParameters& path) {
  Connection* connection = nullptr;
  Status status = find(id, &connection);
  if (!status.ok()) return status;
  const auto known =
      std::find_if(peers_.begin(), peers_.end(), [&](const auto& one) { return one.first == peer; });
  if (known == peers_.end()) {
    return Status::error("INVALID_ARGUMENT",
                         "peer " + std::to_string(peer) + " is not one of this verbs transport");
  }
  if (connection->destroyed() || connection->queue_pair()->state() != verbs::QueuePair::State::kInitialised) {
    return Status::error("INVALID_ARGUMENT",
                         "connection " + std::to_string(id) + " has been connected before; open a new one");
  }
  verbs::PathParameters mine = path;
  mine.gid_index = connection->options().gid_index;
  status = connection->connect(mine);
  if (!status.ok()) return status;
  connection->peer = peer;
  Connection*& place = known->second->connection(connection->options().traffic_class);
  Connection* const before = std::exchange(place, connection);
  if (before == nullptr) return {};
  const auto old = std::find_if(connections_.begin(), connections_.end(),
                                [&](const auto& one) { return one.get() == before; });
  auto closing = std::move(*old);
  connections_.erase(old);
  retire(std::move(closing));
  return {};
}

Status Transport::drain(uint32_t id) {
  return run([&] {
    Connection* connection = nullptr;
    const Status status = find(id, &connection);
    if (status.ok()) {
      await_drain();
      connection->drain();
    }
    return status;
  });
}

Status Transport::close_connection(uint32_t id) {
  return run([&] {
    Connection* connection = nullptr;
    const Status status = find(id, &connection);
    if (!status.ok()) return status;
    for (auto& [peer, object] : peers_) {
      Connection*& place = object->connection(connection->options().traffic_class);
      if (place == connection) place = nullptr;
    }
    const auto found = std::find_if(connections_.begin(), connections_.end(),
                                    [&](const auto& one) { return one.get() == connection; });
    auto closing = std::move(*found);
    connections_.erase(found);
    retire(std::move(closing));
    return Status{};
  });
}

// The queue pair goes at once; the object when its last step has been told of its end.
void Transport::retire(std::unique_ptr<Connection> connection) {
  connection->destroy();
  add(&closed_, connection->counters());
  if (connection->steps() != 0) retired_.push_back(std::move(connection));
}

uint64_t Transport::next_due() const {
  const uint64_t credits_ns = credits_awaited_ ? now_ns() + credits_poll_ns_ : kNever;
  return std::min({credits_ns, draining_until_ns_, closing_ ? closing_until_ns_ : kNever});
}

bool Transport::deliver() {
  credits_poll_ns_ =
      credits_awaited_ ? std::min(2 * credits_poll_ns_, kLongestCreditsPoll_ns) : kCreditsPoll_ns;
  credits_awaited_ = false;
  if (!flush_failure_.empty()) device_failed(std::exchange(flush_failure_, {}));
  if (draining_until_ns_ != kNever) end_drains();
  if (signalled_) door_->notify();
  const bool moved = std::exchange(signalled_, false) || !over_.empty();
  while (!over_.empty()) {
    delivering_.swap(over_);
    for (Step* step : delivering_) {
      const verbs::WorkError& error = step->operation.error();
      const PeerFailure failure = error.ok() ? PeerFailure{} : step->connection->failure_of(error);
      step->request.owner->step_ended(step->request.context, step->request.step, error.ok() ? step->bytes : 0,
                                      failure);
      step->connection->release(*step);
    }
    delivering_.clear();
  }
  std::erase_if(retired_, [](const auto& connection) { return connection->steps() == 0; });
  return moved;
}

void Transport::signal_came(uint8_t mode, uint32_t counter, uint64_t value) {
  // What came before it may lie in memory of a GPU, whose kernels must see it first.
  if (!flush_failure_.empty()) return;
  if (const Status status = memory_->flush(); !status.ok()) {
    // deliver() fails the device: here its queue pair is still being polled.
    flush_failure_ = status.message;
    return;
  }
  if (!door_->signal(mode, counter, value)) bad_signals_++;
  signalled_ = true;
}

void Transport::connection_broke(Connection& connection, const verbs::WorkError& error) {
  await_drain();
  TransportEvent event(TransportEvent::Kind::kBroke, &connection);
  event.error = error;
  tell(std::move(event));
}

void Transport::await_drain() {
  if (draining_until_ns_ == kNever) draining_until_ns_ = now_ns() + kDrain_ns;
}

// A provider that does not flush what it has must not keep memory, nor the peer from being reached again.
void Transport::end_drains() {
  if (now_ns() < draining_until_ns_) return;
  draining_until_ns_ = kNever;
  for (const auto& connection : connections_) {
    if (!connection->draining()) continue;
    connection->destroy();
    connection_drained(*connection);
  }
}

void Transport::connection_drained(Connection& connection) {
  tell(TransportEvent(TransportEvent::Kind::kDrained, &connection));
}

void Transport::port_event(uint8_t port, bool up) {
  if (port != options_.port) return;
  TransportEvent event(TransportEvent::Kind::kPort);
  event.port = port;
  event.up = up;
  tell(std::move(event));
}

void Transport::device_failed(const std::string& cause) {
  for (const auto& connection : connections_) connection->destroy();
  TransportEvent event(TransportEvent::Kind::kDeviceFailed);
  event.cause = cause;
  tell(std::move(event));
}

void Transport::tell(TransportEvent event) {
  {
    std::lock_guard lock(events_mutex_);
    // Of a flapping port the last counts; the others are as many as connections were opened.
    if (event.kind == TransportEvent::Kind::kPort) {
      std::erase_if(events_, [](const auto& told) { return told.kind == TransportEvent::Kind::kPort; });
    }
    events_.push_back(std::move(event));
  }
  if (options_.wake_owner) options_.wake_owner();
}

std::vector<TransportEvent> Transport::take_events() {
  std::lock_guard lock(events_mutex_);
  return std::exchange(events_, {});
}

TransportStatistics Transport::statistics() {
  TransportStatistics out;
  options_.reactor->call([&] {
    for (const auto& connection : connections_) {
      const verbs::QueuePair* const qp = connection->queue_pair();
      out.connections.push_back({connection->id(), connection->peer, connection->qp_num(),
                                 qp == nullptr ? 0 : qp->credits(), connection->options().traffic_class,
                                 qp == nullptr ? verbs::QueuePair::State::kDrained : qp->state(),
                                 qp == nullptr ? 0 : qp->bytes_in_flight(), connection->counters()});
    }
    out.closed = closed_;
    out.connections_opened = last_id_;
    out.bad_signals = bad_signals_;
    out.completion_entries = progress_->completion_queue().entries();
    out.completion_entries_used = progress_->completion_queue().entries_used();
  });
  return out;
}

void Transport::shut_down() {
  options_.reactor->call([&] {
    if (!closing_) close(now_ns());
  });
}

void Transport::close(uint64_t now) {
  closing_ = true;
  closing_until_ns_ = now + kDrain_ns;
  for (const auto& connection : connections_) connection->drain();
}

bool Transport::quiet(uint64_t now) {
  if (left_) return true;
  if (!closing_) close(now);
  const bool quiet = std::all_of(connections_.begin(), connections_.end(), [](const auto& connection) {
    return connection->quiet() && connection->steps() == 0;
  });
  if (!quiet && now >= closing_until_ns_) destroy_all();
  return quiet && retired_.empty();
}

void Transport::destroy_all() {
  for (const auto& connection : connections_) connection->destroy();
  closing_until_ns_ = kNever;
}

void Transport::leave() {
  if (left_) return;
  left_ = closing_ = true;
  destroy_all();
  deliver();
  for (auto& [id, peer] : peers_) {
    for (uint8_t c = 0; c < VerbsPeer::kClasses; c++) peer->connection(c) = nullptr;
  }
  for (auto& connection : connections_) retire(std::move(connection));
  connections_.clear();
  memory_->drop();
  claim_.reset();
  progress_->remove(this);
}

}  // namespace dualpath::rdma
