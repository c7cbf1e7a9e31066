#include "rdma/copy_nic.h"

#include <algorithm>

#include "core/clock.h"

namespace dualpath::rdma {
namespace {

constexpr uint64_t kDrain_ns = 1'000'000'000;
constexpr uint64_t kBackOff_ns = 100'000'000;
constexpr uint64_t kLongestBackOff_ns = 10'000'000'000;

}  // namespace

CopyNic::CopyNic(CopyNicOptions options) : options_(std::move(options)), back_off_ns_(kBackOff_ns) {}

CopyNic::~CopyNic() = default;

Status CopyNic::create(CopyNicOptions options, std::shared_ptr<CopyNic>* out) {
  auto nic = std::shared_ptr<CopyNic>(new CopyNic(std::move(options)));
  const CopyNicOptions& given = nic->options_;
  Status status = Progress::of(*given.reactor, given.verbs, given.device, &nic->progress_);
  if (!status.ok()) return status;
  nic->memory_ = std::make_unique<CopyMemory>(nic->progress_->shared_device(), *given.engine);
  given.reactor->call([&] {
    status = nic->open_pair();
    if (status.ok()) status = given.engine->attach(std::shared_ptr<CopyCarrier>(nic));
    if (status.ok()) {
      nic->progress_->add(nic.get());
    } else {
      nic->retire_pair();
      nic->left_ = true;
    }
  });
  if (status.ok()) *out = std::move(nic);
  return status;
}

Status CopyNic::open_pair() {
  ConnectionOptions wanted;
  wanted.gid_index = options_.gid_index;
  wanted.queue_pair = options_.queue_pair;
  wanted.queue_pair.port = options_.port;
  wanted.chain_bytes = options_.chain_bytes;
  wanted.in_flight_bytes = options_.in_flight_bytes;
  Status status = Connection::open(*this, progress_->completion_queue(), wanted, &source_);
  if (status.ok()) status = Connection::open(*this, progress_->completion_queue(), wanted, &target_);
  if (status.ok()) status = join(*target_, *source_);
  if (status.ok()) status = join(*source_, *target_);
  return status;
}

Status CopyNic::join(Connection& from, const Connection& to) {
  verbs::Device& device = progress_->device();
  verbs::PortFacts port;
  Status status = device.port(options_.port, &port);
  if (!status.ok()) return status;
  if (port.ethernet && options_.gid_index < 0) {
    return Status::error("INVALID_ARGUMENT", "RDMA device '" + options_.device +
                                                 "' is RoCE, which needs a GID: give a GID index; 'dualpath "
                                                 "devices' says which to use");
  }
  verbs::PathParameters path;
  path.peer = to.address();
  path.peer_lid = port.lid;
  path.gid_index = options_.gid_index;
  path.service_level = options_.service_level;
  path.traffic_class = options_.traffic_class;
  path.mtu_bytes = port.mtu_bytes;
  if (options_.gid_index >= 0) status = device.gid(options_.port, options_.gid_index, &path.peer_gid);
  return status.ok() ? from.connect(path) : status;
}

// The queue pairs go at once, the objects when their last step has been told of its end.
void CopyNic::retire_pair() {
  for (auto* connection : {&source_, &target_}) {
    if (*connection == nullptr) continue;
    (*connection)->destroy();
    const verbs::QueuePairCounters last = (*connection)->counters();
    if (connection == &source_) {
      past_.post_calls += last.post_calls;
      past_.requests += last.requests;
      past_.chains += last.chains;
      past_.bytes += last.bytes;
      past_.completions += last.completions;
      past_.errors += last.errors;
      past_.flushed += last.flushed;
    }
    if ((*connection)->steps() != 0) retired_.push_back(std::move(*connection));
    connection->reset();
  }
}

void CopyNic::connection_broke(Connection&, const verbs::WorkError& error) {
  if (broken_ || closing_) return;
  broken_ = true;
  first_error_ = verbs::describe(error);
  rebuild_at_ns_ = now_ns() + back_off_ns_;
}

void CopyNic::rebuild(uint64_t now) {
  retire_pair();
  if (open_pair().ok()) {
    broken_ = false;
    rebuild_at_ns_ = kNever;
    rebuilt_++;
    return;
  }
  retire_pair();
  back_off_ns_ = std::min(2 * back_off_ns_, kLongestBackOff_ns);
  rebuild_at_ns_ = now + back_off_ns_;
}

PeerResult CopyNic::check(const Geometry&, uint32_t local_geometry, uint32_t remote_geometry) {
  return refusal(local_geometry, remote_geometry) == NicRefusal::kNone ? PeerResult::kOk
                                                                       : PeerResult::kOutOfBounds;
}

NicRefusal CopyNic::refusal(uint32_t from_geometry, uint32_t to_geometry) {
  if (closing_ || progress_->failed()) return NicRefusal::kNotOpen;
  if (broken_) return NicRefusal::kBroken;
  const bool usable = memory_->use(from_geometry) != nullptr && memory_->use(to_geometry) != nullptr;
  return usable ? NicRefusal::kNone : NicRefusal::kNotRegistered;
}

PeerResult CopyNic::begin(const StepRequest& request, PeerStep** step, PeerFailure* failure) {
  if (left_) {
    failure->result = PeerResult::kLost;
    return PeerResult::kLost;
  }
  const CopyMemory::Ends* const from = memory_->use(request.part.from_geometry);
  const CopyMemory::Ends* const to = memory_->use(request.part.to_geometry);
  if (source_ == nullptr || from == nullptr || to == nullptr) {
    failure->result = PeerResult::kLost;
    return PeerResult::kLost;
  }
  const bool into_pages = to->to->geometry().paged();
  Step* begun = nullptr;
  const PeerResult result = source_->begin(request, into_pages ? from->from_ranges.get() : from->from.get(),
                                           to->to.get(), &begun, failure);
  *step = begun;
  return result;
}

PeerResult CopyNic::post(PeerStep* step, bool* moved, uint32_t* block, PeerFailure* failure) {
  Step& posted = *static_cast<Step*>(step);
  return posted.connection->post(posted, moved, block, failure);
}

void CopyNic::abandon(PeerStep* step) {
  Step& abandoned = *static_cast<Step*>(step);
  abandoned.connection->abandon(abandoned);
}

// What was written into a GPU's memory is seen by its kernels before anybody is told.
void CopyNic::finish(Step& step) {
  const verbs::WorkError& error = step.operation.error();
  PeerFailure failure = error.ok() ? PeerFailure{} : step.connection->failure_of(error);
  if (error.ok() && step.request.part.count != 0) {
    const CopyMemory::Ends* const to = memory_->use(step.request.part.to_geometry);
    if (to != nullptr && to->flush != nullptr && !to->flush->flush_remote_writes().ok())
      failure.result = PeerResult::kLost;
  }
  if (failure.result == PeerResult::kOk) back_off_ns_ = kBackOff_ns;
  step.request.owner->step_ended(step.request.context, step.request.step, error.ok() ? step.bytes : 0,
                                 failure);
  step.connection->release(step);
}

bool CopyNic::deliver() {
  const bool moved = !over_.empty();
  while (!over_.empty()) {
    delivering_.swap(over_);
    for (Step* step : delivering_) finish(*step);
    delivering_.clear();
  }
  std::erase_if(retired_, [](const auto& connection) { return connection->steps() == 0; });
  if (broken_ && !closing_ && rebuild_at_ns_ != kNever) {
    const uint64_t now = now_ns();
    const bool drained = source_ == nullptr || (source_->quiet() && source_->steps() == 0);
    if (now >= rebuild_at_ns_ && (drained || now >= rebuild_at_ns_ + kDrain_ns)) rebuild(now);
  }
  return moved;
}

void CopyNic::device_failed(const std::string& cause) {
  first_error_ = cause;
  broken_ = true;
  rebuild_at_ns_ = kNever;
  for (auto* connection : {&source_, &target_}) {
    if (*connection != nullptr) (*connection)->destroy();
  }
}

uint64_t CopyNic::next_due() const { return closing_ ? closing_until_ns_ : rebuild_at_ns_; }

void CopyNic::close(uint64_t now) {
  closing_ = true;
  closing_until_ns_ = now + kDrain_ns;
  for (auto* connection : {&source_, &target_}) {
    if (*connection != nullptr) (*connection)->drain();
  }
}

bool CopyNic::quiet(uint64_t now) {
  if (left_) return true;
  if (!closing_) close(now);
  bool quiet = retired_.empty();
  for (const auto* connection : {&source_, &target_}) {
    if (*connection == nullptr) continue;
    if (now >= closing_until_ns_) (*connection)->destroy();
    quiet &= (*connection)->quiet() && (*connection)->steps() == 0;
  }
  if (now >= closing_until_ns_) closing_until_ns_ = kNever;
  return quiet;
}

void CopyNic::leave() {
  if (left_) return;
  left_ = closing_ = true;
  closing_until_ns_ = kNever;
  for (auto* connection : {&source_, &target_}) {
    if (*connection != nullptr) (*connection)->destroy();
  }
  deliver();
  retire_pair();
  memory_->drop();
  progress_->remove(this);
}

bool CopyNic::end() {
  bool over = false;
  options_.reactor->call([&] {
    over = quiet(now_ns());
    if (over) leave();
  });
  return over;
}

CopyNicStatistics CopyNic::statistics() {
  CopyNicStatistics out;
  options_.reactor->call([&] {
    out.counters = past_;
    if (source_ != nullptr) {
      const verbs::QueuePairCounters now = source_->counters();
      out.counters.post_calls += now.post_calls;
      out.counters.requests += now.requests;
      out.counters.chains += now.chains;
      out.counters.bytes += now.bytes;
      out.counters.completions += now.completions;
      out.counters.errors += now.errors;
      out.counters.flushed += now.flushed;
    }
    out.rebuilt = rebuilt_;
    out.first_error = first_error_;
  });
  out.refused = memory_->refused();
  out.registered_bytes = memory_->bytes();
  return out;
}

}  // namespace dualpath::rdma
