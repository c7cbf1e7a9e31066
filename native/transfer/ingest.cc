// Descriptors in: from the submission ring into programs.
#include <algorithm>

#include "transfer/engine.h"

namespace dualpath {
namespace {

constexpr uint32_t kBatch = 512;  // descriptors taken before other work gets its turn

bool within(uint64_t first, uint64_t count, uint64_t limit) {
  return first <= limit && count <= limit - first;
}

}  // namespace

bool TransferEngine::ingest(uint64_t now) {
  const std::atomic_ref<uint32_t> shared_head(door().submission().head);
  const uint32_t first = taken_;
  next_room_ns_ = kNever;
  for (uint32_t left = std::min(published(), kBatch); left > 0; left--) {
    if (free_.empty()) break;  // back-pressure: the ring fills, the owner waits
    const dp_descriptor d = read_once(door().descriptor(taken_));            // what is checked is what runs
    if (ingesting_ != nullptr && ingesting_->record.program != d.program) {  // its END is missing
      fail(*ingesting_, nullptr, DP_ERROR_INVALID);
      end_of_descriptors(*ingesting_);
    }
    if (ingesting_ == nullptr && !has_room()) break;
    // Given back and counted before any record of it is posted: who reads that record may rely on both.
    shared_head.store(++taken_, std::memory_order_release);
    statistics_.descriptors.fetch_add(1, std::memory_order_relaxed);
    Program& program = program_of(d, now);
    accept(d, program);
    if ((d.flags & DP_FLAG_END) != 0) end_of_descriptors(program);
  }
  if (requests_.load(std::memory_order_acquire)) take_requests();
  return taken_ != first;
}

// Descriptors published and not taken yet. A tail further ahead than the ring is long publishes nothing.
uint32_t TransferEngine::published() {
  const uint32_t tail = std::atomic_ref<uint32_t>(door().submission().tail).load(std::memory_order_acquire);
  const uint32_t count = tail - taken_;
  if (count <= door().header().submission_entries) return count;
  statistics_.door_errors.fetch_add(1, std::memory_order_relaxed);
  return 0;
}

// Descriptors of one program lie side by side; the first opens it.
TransferEngine::Program& TransferEngine::program_of(const dp_descriptor& d, uint64_t now) {
  if (ingesting_ != nullptr) return *ingesting_;
  Program* program = &programs_[(d.program & 0xffff) % programs_.size()];
  const bool possible = d.program != 0 && (d.program & 0xffff) < programs_.size() && program->id == 0;
  if (!possible) program = &rejected_;
  *program = Program{};
  program->id = d.program == 0 ? DP_NONE : d.program;
  program->open = true;
  program->record.kind = DP_RECORD_PROGRAM;
  program->record.program = d.program;
  program->record.tag = d.tag;
  program->record.error_index = DP_NONE;
  program->record.error_block = DP_NONE;
  program->record.submitted_ns = now;
  if (!possible) fail(*program, nullptr, DP_ERROR_INVALID);
  if (closing_) fail(*program, nullptr, DP_ERROR_CLOSED);
  records_owed_++;
  statistics_.programs.fetch_add(1, std::memory_order_relaxed);
  ingesting_ = program;
  return *program;
}

void TransferEngine::end_of_descriptors(Program& program) {
  ingesting_ = nullptr;
  program.open = false;
  end_if_over(program);
}

void TransferEngine::accept(const dp_descriptor& d, Program& program) {
  const uint32_t index = program.descriptors++;
  if (program.record.status != DP_ERROR_NONE) return;
  Active* active = free_.back();
  free_.pop_back();
  *active = Active{};
  active->d = d;
  active->program = &program;
  active->index = index;
  program.active++;
  if (!valid(d)) {
    fail(program, active, DP_ERROR_INVALID);
    retire(*active);
    free_.push_back(active);
    return;
  }
  if (d.op == DP_OP_NOP || d.op == DP_OP_BUMP) {
    turn_bumps(*active);
    if (active->program == nullptr) {
      free_.push_back(active);
      return;
    }
  }
  active_.push_back(active);
}

bool TransferEngine::valid(const dp_descriptor& d) const {
  if (d.program == 0 || d.op > DP_OP_BUMP || d.traffic_class > DP_CLASS_CONTROL || d.layer_count == 0)
    return false;
  bool needs_peer = d.op == DP_OP_SEND;
  bool signals_peer = false;
  for (const dp_signal& signal : d.signal) signals_peer |= signal.counter != DP_NONE && signal.remote != 0;
  needs_peer |= signals_peer;
  if (needs_peer && d.peer >= peer_count_.load(std::memory_order_acquire)) return false;
  if (signals_peer && d.op != DP_OP_SEND && d.op != DP_OP_BUMP && peers_[d.peer]->carries_steps())
    return false;
  const uint64_t last_step = d.layer_count - 1u;
  const uint32_t counters = options_.door->counter_entries();
  for (const dp_wait& wait : d.wait) {
    if (wait.counter != DP_NONE && !within(wait.counter, last_step * wait.counter_step + 1, counters))
      return false;
  }
  for (const dp_signal& signal : d.signal) {
    if (signal.counter == DP_NONE) continue;
    if (signal.mode > DP_SIGNAL_ORDERED || signal.remote > 1) return false;
    if (signal.remote == 0 && !within(signal.counter, last_step * signal.counter_step + 1, counters))
      return false;
  }
  if (d.op == DP_OP_READ || d.op == DP_OP_WRITE) return valid_blocks(d);
  if (d.op == DP_OP_COPY || d.op == DP_OP_SEND) return valid_layers(d);
  return true;
}

bool TransferEngine::valid_blocks(const dp_descriptor& d) const {
  const DoorLayout& header = options_.door->header();
  const bool read = d.op == DP_OP_READ;
  const auto buffer = geometry(read ? d.dst_geometry : d.src_geometry);
  if (options_.store == nullptr || buffer == nullptr || d.layer_count != 1) return false;
  const store::BlockFormat& format = options_.store->format();
  return buffer->device() == nullptr && buffer->layers() == format.layers() &&
         buffer->slots_hold(format.file_bytes(), store::BlockFormat::kAlignment) &&
         within(read ? d.src_list : d.dst_list, d.list_count, header.key_entries) &&
         within(read ? d.dst_list : d.src_list, d.list_count, header.slot_entries);
}

bool TransferEngine::valid_layers(const dp_descriptor& d) const {
  const DoorLayout& header = options_.door->header();
  const auto from = geometry(d.src_geometry);
  if (from == nullptr || !within(d.first_layer, d.layer_count, from->layers())) return false;
  const auto to = d.op == DP_OP_SEND ? nullptr : geometry(d.dst_geometry);
  const uint64_t count = d.list_count;
  if (!within(d.src_list, count * from->entries_per_block(), header.slot_entries) ||
      !within(d.dst_list, count * (to == nullptr ? 1 : to->entries_per_block()), header.slot_entries)) {
    return false;
  }
  const uint64_t tokens_begin = static_cast<uint64_t>(d.first_block) * from->block_tokens();
  const uint64_t tokens_end = tokens_begin + static_cast<uint64_t>(d.list_count) * from->block_tokens();
  if (d.token_begin > d.token_end) return false;
  if (d.token_begin < d.token_end && (d.token_begin < tokens_begin || d.token_end > tokens_end)) return false;
  if (d.op == DP_OP_SEND)
    return peers_[d.peer]->check(*from, d.src_geometry, d.dst_geometry) != PeerResult::kOutOfBounds;
  return to != nullptr && to->same_shape(*from);
}

}  // namespace dualpath
