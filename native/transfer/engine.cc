#include "transfer/engine.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>

#include <algorithm>

namespace dualpath {
namespace {

// Whether the store's file system takes O_DIRECT: tried, not guessed, with a file of its own.
bool probe_direct_io(store::BlockStore& store) {
  char path[store::kBlockPathBytes];
  store.temp_path(path);
  const int fd = openat(store.root_fd(), path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_DIRECT, 0644);
  if (fd >= 0) close(fd);
  unlinkat(store.root_fd(), path, 0);
  return fd >= 0;
}

}  // namespace

TransferEngine::TransferEngine(EngineOptions options, FaultPlan* faults)
    : options_(std::move(options)), faults_(faults) {}

Status TransferEngine::create(EngineOptions options, FaultPlan* faults,
                              std::shared_ptr<TransferEngine>* out) {
  const dp_door_header& header = options.door->header();
  if (options.max_programs == 0 || options.max_programs > 65536 ||
      options.max_programs > header.completion_entries) {
    return Status::error("INVALID_ARGUMENT", "max_programs " + std::to_string(options.max_programs) +
                                                 ": 1 to 65536 and at most the completion ring's " +
                                                 std::to_string(header.completion_entries) + " entries");
  }
  auto engine = std::shared_ptr<TransferEngine>(new TransferEngine(std::move(options), faults));
  const EngineOptions& given = engine->options_;
  engine->programs_.resize(given.max_programs);
  engine->pool_.resize(given.max_descriptors);
  engine->free_.reserve(given.max_descriptors);
  for (Active& active : engine->pool_) engine->free_.push_back(&active);
  engine->active_.reserve(given.max_descriptors);
  std::vector<Timer> storage;
  storage.reserve(given.max_descriptors + BlockIo::kMaxOps);
  engine->timers_ = decltype(engine->timers_)(std::greater<Timer>(), std::move(storage));
  if (given.store != nullptr) engine->direct_io_ = probe_direct_io(*given.store);
  engine->endpoint_ = std::make_shared<LoopbackEndpoint>(given.name, given.door, given.links.nic_ingress);
  const Status status = loopback::listen(engine->endpoint_);
  if (!status.ok()) {
    engine->endpoint_ = nullptr;
    return status;
  }
  *out = std::move(engine);
  return {};
}

TransferEngine::~TransferEngine() {
  if (endpoint_ == nullptr) return;
  endpoint_->close();
  loopback::forget(*endpoint_);
}

Status TransferEngine::add_geometry(std::shared_ptr<const Geometry> geometry, uint32_t* id) {
  if (endpoint_->geometries().add(std::move(geometry), id)) return {};
  return Status::error("CAPACITY_EXHAUSTED", "engine '" + options_.name + "' has " +
                                                 std::to_string(GeometryTable::kMax) +
                                                 " geometries already, the most there can be");
}

std::shared_ptr<const Geometry> TransferEngine::geometry(uint32_t id) const {
  const auto* found = endpoint_->geometries().find(id);
  return found == nullptr ? nullptr : *found;
}

Status TransferEngine::connect(const std::string& name, uint32_t* peer) {
  const uint32_t count = peer_count_.load(std::memory_order_relaxed);
  if (count == kMaxPeers) {
    return Status::error(
        "CAPACITY_EXHAUSTED",
        "engine '" + options_.name + "' has " + std::to_string(kMaxPeers) + " peers, the most there can be");
  }
  const Status status = loopback::connect(name, &peers_[count]);
  if (!status.ok()) return status;
  peer_count_.store(count + 1, std::memory_order_release);
  *peer = count;
  return {};
}

void TransferEngine::request_cancel(uint32_t program) {
  std::lock_guard lock(requests_mutex_);
  cancel_requests_.push_back(program);
  requests_.store(true, std::memory_order_release);
}

void TransferEngine::request_close() {
  endpoint_->close();  // at once: when this returns, no peer writes here any more
  std::lock_guard lock(requests_mutex_);
  close_requested_ = true;
  requests_.store(true, std::memory_order_release);
}

// Requests come after the descriptors they speak of: one that names an unknown program waits until the
// ring is empty, and then means a program that has ended.
void TransferEngine::take_requests(bool ring_empty) {
  std::lock_guard lock(requests_mutex_);
  std::erase_if(cancel_requests_, [&](uint32_t id) {
    Program& program = programs_[(id & 0xffff) % programs_.size()];
    const bool known = program.id == id && !program.open;
    if (known) fail(program, nullptr, DP_ERROR_CANCELLED);
    return known || ring_empty;
  });
  if (close_requested_) closing_ = true;
  requests_.store(!cancel_requests_.empty(), std::memory_order_relaxed);
  if (!closing_) return;
  for (Program& program : programs_) {
    if (program.id != 0) fail(program, nullptr, DP_ERROR_CLOSED);
  }
}

// Only the first cause counts; of several bad blocks the first in the list.
void TransferEngine::fail(Program& program, const Active* active, dp_error error, uint32_t block,
                          int sys_errno) {
  dp_record& record = program.record;
  if (record.status != DP_ERROR_NONE) {
    if (active != nullptr && active->index == record.error_index && block < record.error_block) {
      record.error_block = block;
    }
    return;
  }
  record.status = error;
  record.error_index = active == nullptr ? DP_NONE : active->index;
  record.op = active == nullptr ? 0 : active->d.op;
  record.error_block = block;
  record.error_errno = sys_errno;
}

void TransferEngine::retire(Active& active) {
  Program& program = *active.program;
  active.program = nullptr;
  program.active--;
  end_if_over(program);
}

void TransferEngine::end_if_over(Program& program) {
  if (program.open || program.active != 0) return;
  program.record.finished_ns = now_ns();
  if (program.record.status != DP_ERROR_NONE)
    statistics_.failed_programs.fetch_add(1, std::memory_order_relaxed);
  records_owed_--;
  const dp_record record = program.record;
  program.id = 0;
  post(record);
}

uint32_t TransferEngine::completion_room() {
  dp_ring_index& ring = door().header().completion;
  const uint32_t head = std::atomic_ref<uint32_t>(ring.head).load(std::memory_order_acquire);
  return door().header().completion_entries - (ring.tail - head);
}

// There is room: programs and events are only begun while there is room for what they owe.
void TransferEngine::post(const dp_record& record) {
  dp_door_header& header = door().header();
  const uint32_t tail = header.completion.tail;
  door().records()[tail & (header.completion_entries - 1)] = record;
  std::atomic_ref<uint32_t>(header.completion.tail).store(tail + 1, std::memory_order_seq_cst);
  std::atomic_ref<uint32_t> sleeping(header.completion.sleeping);
  if (sleeping.load(std::memory_order_seq_cst) != 0 && sleeping.exchange(0) != 0) options_.wake_owner();
}

void TransferEngine::arm() {
  std::atomic_ref<uint32_t>(door().header().submission.sleeping).store(1, std::memory_order_seq_cst);
}

void TransferEngine::disarm() {
  std::atomic_ref<uint32_t>(door().header().submission.sleeping).store(0, std::memory_order_relaxed);
}

uint64_t TransferEngine::next_due() const {
  return std::min(next_link_ns_, timers_.empty() ? kNever : timers_.top().due_ns);
}

bool TransferEngine::fire_due(uint64_t now, BlockIo& io) {
  bool any = false;
  while (!timers_.empty() && timers_.top().due_ns <= now) {
    const Timer timer = timers_.top();
    timers_.pop();
    any = true;
    if (timer.op != nullptr) {
      finish_block(timer.op, io);
    } else {
      finish_step(*timer.active, timer.step);
    }
  }
  return any;
}

bool TransferEngine::advance(uint64_t now, BlockIo& io) {
  next_link_ns_ = kNever;
  bool moved = false;
  // Storage first come, first served: sharing the link among all readers would finish all of them late.
  for (Active* active : active_) {
    if (active->program == nullptr) continue;
    if (active->program->record.status != DP_ERROR_NONE) {
      abandon_step(*active);
      if (active->in_flight == 0) retire(*active);
    } else if (active->d.op == DP_OP_READ || active->d.op == DP_OP_WRITE) {
      moved |= turn_blocks(*active, now, io);
    }
  }
  // Everything else in turn, a chunk each, from another one every time.
  const size_t count = active_.size();
  for (size_t i = 0; i < count; i++) {
    Active& active = *active_[(rotation_ + i) % count];
    if (active.program == nullptr || active.program->record.status != DP_ERROR_NONE) continue;
    if (active.d.op == DP_OP_COPY || active.d.op == DP_OP_SEND) {
      moved |= turn_layers(active, now);
    } else if (active.d.op == DP_OP_NOP || active.d.op == DP_OP_BUMP) {
      moved |= turn_bumps(active);
    }
  }
  rotation_++;
  const auto retired = std::stable_partition(active_.begin(), active_.end(),
                                             [](const Active* active) { return active->program != nullptr; });
  free_.insert(free_.end(), retired, active_.end());
  active_.erase(retired, active_.end());
  return moved;
}

}  // namespace dualpath
