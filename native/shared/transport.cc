#include "shared/transport.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>

#include <algorithm>

namespace dualpath::shared {
namespace {

// A peer in the midst of a copy when this engine closes. If it is stopped it may go on later: into pages that
// are only its own by then, since this process has unmapped them.
constexpr uint64_t kDrain_ns = 100'000'000;
// While a peer's mailbox is full: it takes signals out by itself and does not say so.
constexpr uint64_t kRetry_ns = 1'000'000;

}  // namespace

SharedTransport::SharedTransport(std::shared_ptr<TransferEngine> engine)
    : engine_(engine),
      door_(engine->options().door),
      key_("shared memory of " + engine->options().name),
      steps_(kMaxSteps) {
  free_.reserve(kMaxSteps);
  over_.reserve(kMaxSteps);
  telling_.reserve(kMaxSteps);
  for (SharedStep& step : steps_) free_.push_back(&step);
}

SharedTransport::~SharedTransport() = default;

Status SharedTransport::create(std::shared_ptr<TransferEngine> engine, Reactor& reactor,
                               std::shared_ptr<SharedTransport>* out) {
  auto transport = std::shared_ptr<SharedTransport>(new SharedTransport(engine));
  Status status = Segment::create(&transport->segment_);
  if (!status.ok()) return status;
  int ends[2];
  if (pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0) {
    return Status::error(
        "CAPACITY_EXHAUSTED",
        std::string("shared memory: pipe failed: ") + strerror(errno) + "; raise 'ulimit -n'", errno);
  }
  transport->bell_.reset(ends[0]);
  transport->bell_end_.reset(ends[1]);
  reactor.call([&] {
    status = reactor.add_poller(transport);
    if (status.ok()) engine->attach(std::shared_ptr<PeerTransport>(transport));
  });
  if (status.ok()) *out = std::move(transport);
  return status;
}

Status SharedTransport::invite(Invitation* out) {
  const auto engine = engine_.lock();
  if (engine == nullptr) return Status::error("CLOSED", "the engine of this transport has been closed");
  const std::string& name = engine->options().name;
  out->pid = getpid();
  out->segment_fd = segment_->memfd();
  out->bell_fd = bell_end_.get();
  out->nonce = segment_->nonce();
  out->counter_entries = door_->counter_entries();
  for (uint32_t id = 0; id < GeometryTable::kMax; id++) {
    const auto geometry = engine->geometry(id);
    if (geometry == nullptr || geometry->paged()) continue;
    RemoteGeometry remote{id, geometry->options(), {}};
    remote.layout.arena = nullptr;
    remote.layout.more_arenas.clear();
    bool shared = true;
    geometry->for_each_arena([&](const std::shared_ptr<Arena>& arena) {
      shared &= arena->memfd() >= 0;
      remote.arenas.push_back({arena->memfd(), arena->bytes()});
    });
    if (!shared) continue;  // nobody sends there
    out->geometries.push_back(std::move(remote));
  }
  if (out->geometries.empty()) {
    return Status::error("INVALID_ARGUMENT",
                         "engine '" + name + "' has no memory that it can share; open it with sharedMemory");
  }
  const uint32_t mailbox = mailboxes_.load(std::memory_order_relaxed);
  if (mailbox == Segment::kMailboxes) {
    return Status::error("CAPACITY_EXHAUSTED",
                         "engine '" + name + "' has been connected to " + std::to_string(mailbox) +
                             " times over shared memory, the most there can be; open it anew");
  }
  out->mailbox = mailbox;
  segment_->mailbox(mailbox).open.store(1, std::memory_order_seq_cst);
  mailboxes_.store(mailbox + 1, std::memory_order_release);
  return {};
}

bool SharedTransport::shut_out(uint32_t mailbox) {
  return mailbox >= Segment::kMailboxes || shut(segment_->mailbox(mailbox));
}

Status SharedTransport::add_peer(const std::string& name, const Invitation& invitation, uint32_t* id) {
  const auto engine = engine_.lock();
  if (engine == nullptr) return Status::error("CLOSED", "the engine of this transport has been closed");
  std::unique_ptr<SharedPeer> peer;
  Status status = SharedPeer::create(name, invitation, this, &peer);
  if (!status.ok()) return status;
  SharedPeer* const added = peer.get();
  status = engine->add_peer(std::move(peer), id);
  if (status.ok()) peers_.emplace_back(*id, added);
  return status;
}

void SharedTransport::lose(uint32_t peer) {
  for (const auto& [id, lost] : peers_) {
    if (id == peer) lost->lose();
  }
}

SharedStatistics SharedTransport::statistics() const {
  SharedStatistics statistics;
  for (const auto& [id, peer] : peers_) statistics.sent_bytes.emplace_back(id, peer->sent_bytes());
  statistics.bad_signals = bad_signals_.load(std::memory_order_relaxed);
  statistics.mailboxes = mailboxes_.load(std::memory_order_relaxed);
  return statistics;
}

void SharedTransport::close(uint64_t now) {
  if (closing_until_ns_ != kNever) return;
  closing_until_ns_ = now + kDrain_ns;
  for (uint32_t i = 0; i < mailboxes_.load(std::memory_order_acquire); i++) shut(segment_->mailbox(i));
}

bool SharedTransport::quiet(uint64_t now) {
  if (left_) return true;
  close(now);
  bool quiet = true;
  for (uint32_t i = 0; i < mailboxes_.load(std::memory_order_acquire); i++)
    quiet &= shut(segment_->mailbox(i));
  return in_use_ == 0 && (quiet || now >= closing_until_ns_);
}

void SharedTransport::leave() {
  if (left_) return;
  left_ = true;
  close(now_ns());
  tell_ends();
}

uint64_t SharedTransport::next_due() const {
  if (left_) return kNever;
  const uint64_t closing_ns = closing_until_ns_;
  return in_use_ > 0 ? std::min(closing_ns, now_ns() + kRetry_ns) : closing_ns;
}

SharedStep* SharedTransport::take_step() {
  if (free_.empty()) return nullptr;
  SharedStep* const step = free_.back();
  free_.pop_back();
  in_use_++;
  return step;
}

bool SharedTransport::poll(uint64_t) {
  if (armed_ > 0 && --armed_ == 0) segment_->header().sleeping.store(0, std::memory_order_relaxed);
  if (left_) return false;
  const bool signalled = take_signals();
  if (signalled) door_->notify();
  return tell_ends() || signalled;
}

bool SharedTransport::take_signals() {
  bool any = false;
  const uint32_t mailboxes = mailboxes_.load(std::memory_order_acquire);
  for (uint32_t i = 0; i < mailboxes; i++) {
    Mailbox& mailbox = segment_->mailbox(i);
    const uint32_t tail = mailbox.tail.load(std::memory_order_acquire);
    uint32_t head = mailbox.head.load(std::memory_order_relaxed);
    if (head == tail) continue;
    if (tail - head > Mailbox::kEntries) {  // no sender of ours does so
      if (mailbox.open.exchange(0, std::memory_order_seq_cst) != 0)
        bad_signals_.fetch_add(1, std::memory_order_relaxed);
      continue;
    }
    for (; head != tail; head++) {
      const SharedSignal* const entry = &mailbox.entries[head % Mailbox::kEntries];
      const auto once = [](const auto& field) {
        return *static_cast<const volatile std::remove_reference_t<decltype(field)>*>(&field);
      };
      const uint8_t mode = once(entry->mode) == DP_SIGNAL_ORDERED ? DP_SIGNAL_ORDERED : DP_SIGNAL_ADD;
      if (!door_->signal(mode, once(entry->counter), once(entry->value)))
        bad_signals_.fetch_add(1, std::memory_order_relaxed);
    }
    mailbox.head.store(head, std::memory_order_release);
    any = true;
  }
  return any;
}

bool SharedTransport::tell_ends() {
  if (over_.empty()) return false;
  telling_.swap(over_);
  for (SharedStep* step : telling_) {
    const StepRequest request = step->request;
    const uint64_t bytes = step->bytes;
    const PeerFailure failure = step->failure;
    free_.push_back(step);
    in_use_--;
    request.owner->step_ended(request.context, request.step, bytes, failure);
  }
  telling_.clear();
  return true;
}

// The bell is emptied first: what rings from now on is an edge.
void SharedTransport::arm() {
  char rings[256];
  while (read(bell_.get(), rings, sizeof rings) == sizeof rings) {
  }
  armed_ = 2;  // the last look before sleeping, and then it is awake again
  segment_->header().sleeping.store(1, std::memory_order_seq_cst);
}

}  // namespace dualpath::shared
