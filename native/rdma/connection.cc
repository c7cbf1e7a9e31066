#include "rdma/connection.h"

#include <string.h>

namespace dualpath::rdma {
namespace {

constexpr uint32_t kSteps = 256;  // begun and not released, of a connection

// The signals of a step that do not fit an immediate. Both ends have the same byte order: little.
struct SignalMessage {
  uint8_t count;
  uint8_t mode[2];
  uint8_t reserved;
  uint32_t counter[2];
  uint32_t reserved_too;
  uint64_t value[2];
};
static_assert(sizeof(SignalMessage) == verbs::QueuePair::kMessageBytes);

}  // namespace

Connection::Connection(ConnectionOwner& owner, const ConnectionOptions& options)
    : owner_(owner), options_(options), steps_(new Step[kSteps]) {
  free_.reserve(kSteps);
  for (uint32_t i = kSteps; i != 0; i--) {
    steps_[i - 1].connection = this;
    free_.push_back(&steps_[i - 1]);
  }
}

Status Connection::open(ConnectionOwner& owner, verbs::CompletionQueue& completion_queue,
                        const ConnectionOptions& options, std::unique_ptr<Connection>* out) {
  auto connection = std::unique_ptr<Connection>(new Connection(owner, options));
  verbs::QueuePairOptions wanted = options.queue_pair;
  wanted.landings = 0;  // memory is given back by the engine, on its peer's word or when all has drained
  const Status status = verbs::QueuePair::create(completion_queue, wanted, options.psn, connection.get(),
                                                 &connection->queue_pair_);
  if (!status.ok()) return status;
  connection->qp_num_ = connection->queue_pair_->qp_num();
  verbs::ChainOptions chain = connection->queue_pair_->chain_options();
  chain.chain_bytes = options.chain_bytes;
  connection->chain_ = std::make_unique<verbs::Chain>(chain);
  *out = std::move(connection);
  return {};
}

Connection::~Connection() { destroy(); }

void Connection::drain() {
  if (queue_pair_ == nullptr) return;
  if (queue_pair_->state() == verbs::QueuePair::State::kInitialised) {
    destroy();  // nobody knows it
    owner_.connection_drained(*this);
  } else {
    queue_pair_->drain();
  }
}

void Connection::destroy() {
  if (queue_pair_ == nullptr) return;
  last_counters_ = queue_pair_->counters();
  queue_pair_.reset();
}

bool Connection::quiet() const {
  return queue_pair_ == nullptr || queue_pair_->state() == verbs::QueuePair::State::kDrained;
}

verbs::QueuePairCounters Connection::counters() const {
  return queue_pair_ == nullptr ? last_counters_ : queue_pair_->counters();
}

PeerFailure Connection::failure_of(const verbs::WorkError& error) const {
  return {PeerResult::kLost, error.post_errno, static_cast<uint32_t>(error.status), qp_num_};
}

PeerResult Connection::begin(const StepRequest& request, const verbs::KeyedGeometry* from,
                             const verbs::KeyedGeometry* to, Step** out, PeerFailure* failure) {
  if (queue_pair_ == nullptr || queue_pair_->state() != verbs::QueuePair::State::kReady) {
    *failure = failure_of(first_error_);
    return PeerResult::kLost;
  }
  if (free_.empty()) return PeerResult::kAgain;
  Step& step = *free_.back();
  free_.pop_back();
  steps_in_use_++;
  step.request = request;
  step.bytes = 0;
  step.expanded = request.part.count == 0;
  step.signalled = request.signal_count == 0;
  if (!step.expanded) {
    const SendPart& part = request.part;
    step.expander.begin({from, to, part.from_slots, part.to_slots, part.count, part.layer, part.first_block,
                         part.tokens, part.window_end});
  }
  step.operation.begin(
      {},
      [](verbs::Operation&, void* context) {
        Step& over = *static_cast<Step*>(context);
        over.connection->owner_.step_over(over);
      },
      &step);
  *out = &step;
  return PeerResult::kOk;
}

PeerResult Connection::post(Step& step, bool* moved, uint32_t* block, PeerFailure* failure) {
  *moved = false;
  if (queue_pair_ == nullptr || queue_pair_->state() != verbs::QueuePair::State::kReady) {
    *failure = failure_of(first_error_);
    return PeerResult::kLost;
  }
  if (building_ != nullptr && building_ != &step) return PeerResult::kAgain;  // its chain goes first
  if (queue_pair_->bytes_in_flight() >= options_.in_flight_bytes) return PeerResult::kAgain;
  building_ = &step;
  if (!step.expanded) {
    const auto result = step.expander.expand(*chain_);
    if (result == verbs::PartExpander::Result::kOutOfBounds) {
      *block = step.expander.block();
      *failure = {PeerResult::kOutOfBounds, 0, 0, qp_num_};
      return PeerResult::kOutOfBounds;
    }
    step.expanded = result == verbs::PartExpander::Result::kDone;
  }
  const bool whole = step.expanded && append_signals(step);
  const PeerResult result = post_chain(step, moved, failure);
  if (result != PeerResult::kOk) return result;
  building_ = nullptr;
  if (!whole) return PeerResult::kAgain;
  step.operation.seal();
  return PeerResult::kOk;
}

PeerResult Connection::post_chain(Step& step, bool* moved, PeerFailure* failure) {
  if (chain_->empty()) return PeerResult::kOk;
  const uint64_t bytes = chain_->bytes();
  switch (queue_pair_->post(*chain_, &step.operation)) {
    case verbs::PostResult::kPosted:
      step.bytes += bytes;
      *moved = true;
      return PeerResult::kOk;
    case verbs::PostResult::kAgain:
      return PeerResult::kAgain;
    case verbs::PostResult::kFailed:
      break;
  }
  *failure = failure_of(step.operation.error());
  return PeerResult::kLost;
}

// Behind all of the step's data. False: there is no room, or the peer has no receive for it; later then.
bool Connection::append_signals(Step& step) {
  if (step.signalled) return true;
  const StepRequest& request = step.request;
  if (queue_pair_->room() < chain_->size() + 1) return false;
  if (queue_pair_->credits() == 0) {
    owner_.credits_awaited();
    return false;
  }
  const PeerSignal& first = request.signals[0];
  if (request.signal_count == 1 && first.mode == DP_SIGNAL_ADD && first.value == 1) {
    step.signalled = chain_->announce(first.counter);
    return step.signalled;
  }
  SignalMessage message{};
  message.count = static_cast<uint8_t>(request.signal_count);
  for (uint32_t i = 0; i < request.signal_count; i++) {
    message.mode[i] = request.signals[i].mode;
    message.counter[i] = request.signals[i].counter;
    message.value[i] = request.signals[i].value;
  }
  step.signalled =
      queue_pair_->append_message(*chain_, {reinterpret_cast<const std::byte*>(&message), sizeof message});
  return step.signalled;
}

void Connection::abandon(Step& step) {
  if (building_ == &step) {
    chain_->clear();
    building_ = nullptr;
  }
  step.operation.seal();
}

void Connection::release(Step& step) {
  steps_in_use_--;
  free_.push_back(&step);
}

void Connection::on_message(verbs::QueuePair&, std::span<const std::byte> bytes) {
  SignalMessage message{};
  if (bytes.size() == sizeof message) memcpy(&message, bytes.data(), sizeof message);
  if (message.count == 0 || message.count > 2) owner_.bad_signal_came();
  for (uint32_t i = 0; i < message.count && i < 2; i++) {
    if (message.mode[i] > DP_SIGNAL_ORDERED) {
      owner_.bad_signal_came();
    } else {
      owner_.signal_came(message.mode[i], message.counter[i], message.value[i]);
    }
  }
}

void Connection::on_announced(verbs::QueuePair&, uint64_t immediate) {
  owner_.signal_came(DP_SIGNAL_ADD, static_cast<uint32_t>(immediate), 1);
}

void Connection::on_broken(verbs::QueuePair&, const verbs::WorkError& error) {
  first_error_ = error;
  owner_.connection_broke(*this, error);
}

void Connection::on_drained(verbs::QueuePair&) { owner_.connection_drained(*this); }

}  // namespace dualpath::rdma
