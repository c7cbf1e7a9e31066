#include "transfer/engine.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>

#include <algorithm>

namespace dualpath {
namespace {

// The consumer of records does not ring when it makes room, so who waits for room looks now and then.
constexpr uint64_t kRoomPoll_ns = 1'000'000;

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
    : options_(std::move(options)), faults_(faults) {
  taken_ = door().submission().head;
  posted_ = door().completion().tail;
}

Status TransferEngine::create(EngineOptions options, FaultPlan* faults,
                              std::shared_ptr<TransferEngine>* out) {
  const DoorLayout& header = options.door->header();
  // One entry is left for events: programs that wait for room to post one must not hold all of it.
  if (options.max_programs == 0 || options.max_programs > 65536 ||
      options.max_programs >= header.completion_entries) {
    return Status::error("INVALID_ARGUMENT", "max_programs " + std::to_string(options.max_programs) +
                                                 ": 1 to 65536 and less than the completion ring's " +
                                                 std::to_string(header.completion_entries) + " entries");
  }
  if (options.max_descriptors == 0 || options.max_descriptors > (1u << 20)) {
    return Status::error("INVALID_ARGUMENT", "max_descriptors " + std::to_string(options.max_descriptors) +
                                                 ": 1 to 1048576 allowed");
  }
  auto engine = std::shared_ptr<TransferEngine>(new TransferEngine(std::move(options), faults));
  const EngineOptions& given = engine->options_;
  engine->programs_.resize(given.max_programs);
  engine->pool_.resize(given.max_descriptors);
  engine->free_.reserve(given.max_descriptors);
  for (Active& active : engine->pool_) engine->free_.push_back(&active);
  engine->active_.reserve(given.max_descriptors);
  std::vector<Timer> storage;
  storage.reserve(size_t{given.max_descriptors} * kMaxStepsInFlight + BlockIo::kMaxOps);
  engine->device_copies_.reserve(size_t{kMaxDevices} * DeviceStream::kMaxMarks);
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
  for (auto& [device, stream] : devices_) stream.reset();  // when what it copies has arrived
  for (const auto& [device, base] : host_memory_) device->unregister_host(base);
  endpoint_->close();
  loopback::forget(*endpoint_);
  endpoint_->drop_memory();
}

Status TransferEngine::add_geometry(std::shared_ptr<const Geometry> geometry, uint32_t* id) {
  const Status status = prepare_memory(*geometry);
  if (!status.ok()) return status;
  if (endpoint_->geometries().add(std::move(geometry), id)) return {};
  return Status::error("CAPACITY_EXHAUSTED", "engine '" + options_.name + "' has " +
                                                 std::to_string(GeometryTable::kMax) +
                                                 " geometries already, the most there can be");
}

std::shared_ptr<const Geometry> TransferEngine::geometry(uint32_t id) const {
  const auto* found = endpoint_->geometries().find(id);
  return found == nullptr ? nullptr : *found;
}

Status TransferEngine::room_for_peer() const {
  if (peer_count_.load(std::memory_order_relaxed) < kMaxPeers) return {};
  return Status::error("CAPACITY_EXHAUSTED", "engine '" + options_.name + "' has " +
                                                 std::to_string(kMaxPeers) + " peers, the most there can be");
}

Status TransferEngine::connect(const std::string& name, uint32_t* id) {
  std::unique_ptr<Peer> peer;
  const Status status = loopback::connect(name, &peer);
  return status.ok() ? add_peer(std::move(peer), id) : status;
}

Status TransferEngine::add_peer(std::unique_ptr<Peer> peer, uint32_t* id) {
  const Status status = room_for_peer();
  if (!status.ok()) return status;
  *id = peer_count_.load(std::memory_order_relaxed);
  peers_[*id] = std::move(peer);
  peer_count_.store(*id + 1, std::memory_order_release);
  return {};
}

void TransferEngine::attach(std::shared_ptr<PeerTransport> transport) {
  if (closing_) transport->close(now_ns());
  transports_.push_back(std::move(transport));
}

Status TransferEngine::attach(std::shared_ptr<CopyCarrier> nic) {
  if (copy_nic_ != nullptr && !copy_nic_->ended()) {
    return Status::error("INVALID_ARGUMENT", "engine '" + options_.name + "' copies through " +
                                                 copy_nic_->name() + " already; an engine has one such NIC");
  }
  copy_nic_ = nic;
  attach(std::shared_ptr<PeerTransport>(std::move(nic)));
  return {};
}

bool TransferEngine::busy(uint64_t now) {
  bool quiet = active_.empty() && timers_.empty();
  for (const auto& transport : transports_) quiet &= transport->quiet(now);
  return !quiet;
}

void TransferEngine::request_cancel(uint32_t program) {
  const uint32_t place = program & 0xffff;
  if (place >= programs_.size()) return;  // no program in flight has such an id
  std::lock_guard lock(requests_mutex_);
  const auto found = std::find_if(cancel_requests_.begin(), cancel_requests_.end(),
                                  [&](uint32_t id) { return (id & 0xffff) == place; });
  if (found == cancel_requests_.end()) {
    cancel_requests_.push_back(program);
  } else {
    *found = program;  // the program before it in this place has ended
  }
  requests_.store(true, std::memory_order_release);
}

void TransferEngine::request_close() {
  endpoint_->close();  // at once: when this returns, no peer writes here any more
  loopback::forget(*endpoint_);
  std::lock_guard lock(requests_mutex_);
  close_requested_ = true;
  requests_.store(true, std::memory_order_release);
}

// Requests come after the descriptors they speak of: one that names an unknown program waits until the
// ring is empty, and then means a program that has ended.
void TransferEngine::take_requests() {
  std::lock_guard lock(requests_mutex_);
  // Read after the lock is taken: descriptors may have come since ingest() looked.
  const bool ring_empty = published() == 0;
  std::erase_if(cancel_requests_, [&](uint32_t id) {
    Program& program = programs_[id & 0xffff];
    const bool known = program.id == id;
    if (known) fail(program, nullptr, DP_ERROR_CANCELLED);
    return known || ring_empty;
  });
  if (close_requested_ && !closing_) {
    for (const auto& transport : transports_) transport->close(now_ns());
    closing_ = true;
  }
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

// Whether another program or event may be begun: there must be room for its record.
bool TransferEngine::has_room() {
  const uint32_t head = std::atomic_ref<uint32_t>(door().completion().head).load(std::memory_order_acquire);
  const uint32_t entries = door().header().completion_entries;
  const uint32_t unread = posted_ - head;
  if (unread > entries) {
    statistics_.door_errors.fetch_add(1, std::memory_order_relaxed);
  } else if (entries - unread > records_owed_) {
    return true;
  }
  next_room_ns_ = now_ns() + kRoomPoll_ns;
  return false;
}

// False when there is no room for the record the descriptor's next step would post.
bool TransferEngine::owe_event(const dp_descriptor& d) {
  if ((d.flags & DP_FLAG_EVENT) == 0) return true;
  if (!has_room()) return false;
  records_owed_++;
  return true;
}

void TransferEngine::post_event(const Active& active, uint16_t step) {
  if ((active.d.flags & DP_FLAG_EVENT) == 0) return;
  dp_record record = active.program->record;
  record.kind = DP_RECORD_STEP;
  record.op = active.d.op;
  record.step = step;
  record.tag = active.d.tag;
  record.finished_ns = now_ns();
  records_owed_--;
  post(record);
}

// There is room: programs and events are only begun while there is room for what they owe.
void TransferEngine::post(const dp_record& record) {
  door().record(posted_) = record;
  dp_ring_index& ring = door().completion();
  std::atomic_ref<uint32_t>(ring.tail).store(++posted_, std::memory_order_seq_cst);
  std::atomic_ref<uint32_t> sleeping(ring.sleeping);
  if (sleeping.load(std::memory_order_seq_cst) != 0 && sleeping.exchange(0) != 0) options_.wake_owner();
}

void TransferEngine::arm() {
  std::atomic_ref<uint32_t>(door().submission().sleeping).store(1, std::memory_order_seq_cst);
}

void TransferEngine::disarm() {
  std::atomic_ref<uint32_t>(door().submission().sleeping).store(0, std::memory_order_relaxed);
}

uint64_t TransferEngine::next_due() const {
  uint64_t due = std::min(
      {next_link_ns_, next_room_ns_, next_copy_ns_, timers_.empty() ? kNever : timers_.top().due_ns});
  for (const auto& transport : transports_) due = std::min(due, transport->next_due());
  return due;
}

bool TransferEngine::fire_due(uint64_t now, BlockIo& io) {
  bool any = poll_copies(now);
  if (closing_) {  // who does not let go of memory by itself is made to
    for (const auto& transport : transports_) transport->quiet(now);
  }
  while (!timers_.empty() && timers_.top().due_ns <= now) {
    Timer timer = timers_.top();
    timers_.pop();
    if (timer.op == nullptr && !links_carried(timer, now)) {  // another class had precedence
      timers_.push(timer);
      continue;
    }
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
  // Reads first come, first served: sharing the link among all readers would finish all of them late.
  bool reads_ahead = false;  // an earlier one has blocks still to issue
  Active* writer = nullptr;
  for (Active* active : active_) {
    if (active->program == nullptr) continue;
    if (active->program->record.status != DP_ERROR_NONE) {
      abandon_step(*active);
      if (active->in_flight != 0) continue;
      retire(*active);
      moved = true;
    } else if (active->d.op == DP_OP_READ && !reads_ahead) {
      moved |= turn_blocks(*active, now, io);
      reads_ahead = active->program != nullptr && active->step_open && active->next_step == 0;
    } else if (active->d.op == DP_OP_WRITE) {
      writer = first_to_write(writer, *active, now);
    }
  }
  if (writer != nullptr) moved |= turn_blocks(*writer, now, io);
  // Everything else in turn, a chunk each, beginning after the one that got the last turn.
  const size_t count = active_.size();
  size_t next_turn = turn_;
  for (size_t i = 0; i < count; i++) {
    const size_t at = (turn_ + i) % count;
    Active& active = *active_[at];
    if (active.program == nullptr || active.program->record.status != DP_ERROR_NONE) continue;
    if (active.d.op == DP_OP_READ || active.d.op == DP_OP_WRITE) continue;
    const bool layers = active.d.op == DP_OP_COPY || active.d.op == DP_OP_SEND;
    if (!(layers ? turn_layers(active, now) : turn_bumps(active))) continue;
    moved = true;
    next_turn = at + 1;
  }
  drop_retired(next_turn);
  return moved;
}

// Keeps the order of submission, and the turn with the descriptor that has it.
void TransferEngine::drop_retired(size_t next_turn) {
  turn_ = next_turn;
  size_t kept = 0;
  for (size_t i = 0; i < active_.size(); i++) {
    if (active_[i]->program != nullptr) {
      active_[kept++] = active_[i];
    } else {
      free_.push_back(active_[i]);
      if (i < next_turn) turn_--;
    }
  }
  active_.resize(kept);
}

}  // namespace dualpath
