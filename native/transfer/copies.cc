// COPY: between memories of this host by the CPU, or by the driver of the device whose memory it is.
#include <algorithm>

#include "core/clock.h"
#include "memory/walk.h"
#include "transfer/engine.h"

namespace dualpath {
namespace {

// A driver that fails calls nobody; so its copies are looked at now and then besides.
constexpr uint64_t kLook_ns = 1'000'000;

}  // namespace

// What copies of this geometry need: a stream of its device, and memory of the host registered with every
// device. The owner's thread, before the geometry is known to anybody.
Status TransferEngine::prepare_memory(const Geometry& geometry) {
  const uint32_t count = device_count_.load(std::memory_order_relaxed);
  if (geometry.device() == nullptr) {
    for (uint32_t i = 0; i < count; i++) {
      const Status status = register_host(geometry, *devices_[i].first);
      if (!status.ok()) return status;
    }
    return {};
  }
  for (uint32_t i = 0; i < count; i++) {
    if (devices_[i].first == geometry.device()) return {};
  }
  if (count == kMaxDevices) {
    return Status::error("CAPACITY_EXHAUSTED", "engine '" + options_.name + "' has memory of " +
                                                   std::to_string(kMaxDevices) +
                                                   " devices, the most there can be");
  }
  auto& [device, stream] = devices_[count];
  Status status = geometry.device()->open_stream([door = options_.door] { door->notify(); }, &stream);
  for (uint32_t id = 0; status.ok(); id++) {
    const auto* known = endpoint_->geometries().find(id);
    if (known == nullptr) break;
    if ((*known)->device() == nullptr) status = register_host(**known, *geometry.device());
  }
  if (!status.ok()) return status;
  device = geometry.device();
  device_count_.store(count + 1, std::memory_order_release);
  return {};
}

Status TransferEngine::register_host(const Geometry& geometry, DeviceMemory& device) {
  Status status;
  geometry.for_each_range([&](const std::string& name, std::byte* base, uint64_t bytes) {
    if (!status.ok()) return;
    status = device.register_host(name, base, bytes);
    if (status.ok()) host_memory_.emplace_back(device.shared(), base);
  });
  return status;
}

NicRefusal TransferEngine::nic_refusal(const dp_descriptor& d) const {
  if (options_.copy_way == CopyWish::kPlain) return NicRefusal::kNotWanted;
  if (copy_nic_ == nullptr) return NicRefusal::kNotOpen;
  return copy_nic_->refusal(d.src_geometry, d.dst_geometry);
}

// For the step that is to be opened. False: the way that is wanted cannot be gone. The program has failed
// then, unless steps of it are still on the NIC: the cause comes with them.
bool TransferEngine::choose_way(Active& active) {
  const dp_descriptor& d = active.d;
  const auto& from = *endpoint_->geometries().find(d.src_geometry);
  const auto& to = *endpoint_->geometries().find(d.dst_geometry);
  const NicRefusal nic = nic_refusal(d);
  const CopyChoice choice =
      choose_copy_way({options_.copy_way, from->device() != nullptr || to->device() != nullptr, nic});
  active.way = choice.way;
  if (choice.allowed) return true;
  if (choice.refusal == NicRefusal::kBroken && active.in_flight != 0) return false;
  statistics_.copy_refusals[static_cast<size_t>(choice.refusal)].fetch_add(1, std::memory_order_relaxed);
  fail(*active.program, &active, DP_ERROR_DEVICE);
  active.program->record.error_call = DP_CALL_RDMA;
  return false;
}

// One step at a time: only the open one can be cut short.
bool TransferEngine::may_recopy(const Active& active) const {
  return active.d.op == DP_OP_COPY && options_.copy_way == CopyWish::kAuto && active.redo_step == kNoStep;
}

// A step that the NIC did not finish, whose queue pair carries nothing any more: the same bytes once more, as
// the memory allows. False where that is not wanted.
bool TransferEngine::recopy(Active& active, uint16_t step) {
  Program& program = *active.program;
  if (!may_recopy(active) || program.record.status != DP_ERROR_NONE) return false;
  DeviceStream* const stream = stream_of(active.d);
  if (stream != nullptr && stream->marks_left() == 0) return false;
  const uint32_t cursor = std::exchange(active.cursor, 0);
  uint64_t bytes = 0;
  const bool good = copy_blocks(active, active.d.first_layer + uint32_t{step}, active.d.list_count, &bytes);
  active.cursor = cursor;
  program.record.bytes_moved += bytes;
  statistics_.copy_bytes.fetch_add(bytes, std::memory_order_relaxed);
  statistics_.copy_steps.fetch_add(1, std::memory_order_relaxed);
  if (good && stream != nullptr && !device_copies_.empty() && device_copies_.back().step.active == &active &&
      device_copies_.back().ends == DeviceCopy::Ends::kNothing) {
    device_copies_.back().ends = DeviceCopy::Ends::kStep;
    device_copies_.back().step.step = step;
  } else {
    finish_step(active, step);
  }
  return true;
}

// Whose driver copies; nullptr: the CPU does.
DeviceStream* TransferEngine::stream_of(const dp_descriptor& d) const {
  if (d.op != DP_OP_COPY || device_count_.load(std::memory_order_acquire) == 0) return nullptr;
  const auto& from = (*endpoint_->geometries().find(d.src_geometry))->device();
  const auto& to = (*endpoint_->geometries().find(d.dst_geometry))->device();
  for (const auto& [device, stream] : devices_) {
    if (device != nullptr && (device == to || (to == nullptr && device == from))) return stream.get();
  }
  return nullptr;
}

bool TransferEngine::device_accepts(DeviceStream& stream) {
  if (device_bytes_ < options_.copy_in_flight_bytes && stream.marks_left() != 0) return true;
  statistics_.waits_queue.fetch_add(1, std::memory_order_relaxed);
  return false;
}

// Blocks from the cursor on. False when the program has failed.
bool TransferEngine::copy_blocks(Active& active, uint32_t layer, uint32_t count, uint64_t* bytes) {
  const dp_descriptor& d = active.d;
  const Geometry& from = **endpoint_->geometries().find(d.src_geometry);
  const Geometry& to = **endpoint_->geometries().find(d.dst_geometry);
  const uint64_t from_width = from.entries_per_block();
  const uint64_t to_width = to.entries_per_block();
  const uint32_t* from_slots = door().slots() + d.src_list + active.cursor * from_width;
  const uint32_t* to_slots = door().slots() + d.dst_list + active.cursor * to_width;
  const TokenRange tokens{d.token_begin, d.token_end};
  DeviceStream* const stream = stream_of(d);
  Status status;
  const auto queue = [&](const PieceRows& piece) {
    status = stream->copy({reinterpret_cast<uint64_t>(piece.to), reinterpret_cast<uint64_t>(piece.from),
                           piece.to_stride, piece.from_stride, piece.bytes, piece.rows});
    return status.ok();
  };
  for (uint32_t i = 0; i < count; i++) {
    const uint32_t* const source = from_slots + i * from_width;
    const uint32_t* const target = to_slots + i * to_width;
    const uint32_t block = d.first_block + active.cursor + i;
    const bool good =
        stream == nullptr
            ? copy_block(from, source, to, target, layer, block, tokens, d.window_end, bytes)
            : walk_block(from, source, to, target, layer, block, tokens, d.window_end, bytes, queue);
    if (good) continue;
    fail(*active.program, &active, status.ok() ? DP_ERROR_INVALID : DP_ERROR_DEVICE, active.cursor + i);
    break;
  }
  if (active.cursor == 0) {
    statistics_.copy_refusals[static_cast<size_t>(nic_refusal(d))].fetch_add(1, std::memory_order_relaxed);
  }
  const CopyWay way = stream == nullptr ? CopyWay::kMemcpy : CopyWay::kCuda;
  statistics_.copy_bytes_by_way[static_cast<size_t>(way)].fetch_add(*bytes, std::memory_order_relaxed);
  if (stream != nullptr) {
    // Of a block that failed half-way, too: something of it may be under way.
    const bool queued = *bytes > 0 || active.program->record.status != DP_ERROR_NONE;
    if (queued && !queue_chunk(active, *stream, *bytes)) fail(*active.program, &active, DP_ERROR_DEVICE);
  } else if (*bytes > 0 && faults_ != nullptr && FaultPlan::strikes(faults_->flip_byte_after)) {
    flip_byte(active, layer);
  }
  return active.program->record.status == DP_ERROR_NONE;
}

// False where the stream takes no event: its context is lost then, and it copies nothing any more.
bool TransferEngine::queue_chunk(Active& active, DeviceStream& stream, uint64_t bytes) {
  DeviceCopy copy{DeviceCopy::Ends::kNothing, {0, &active, nullptr, 0, 0, 0}, &stream, 0, bytes};
  if (!stream.mark(&copy.mark).ok()) return false;
  device_bytes_ += bytes;
  device_copies_.push_back(copy);
  return true;
}

// Of its open step, that has not arrived; nullptr when all have.
TransferEngine::DeviceCopy* TransferEngine::last_chunk_of(const Active& active) {
  for (size_t i = device_copies_.size(); i != 0; i--) {
    DeviceCopy& copy = device_copies_[i - 1];
    if (copy.step.active == &active && copy.ends == DeviceCopy::Ends::kNothing) return &copy;
  }
  return nullptr;
}

// The first byte of the first token that was copied.
void TransferEngine::flip_byte(const Active& active, uint32_t layer) {
  const dp_descriptor& d = active.d;
  const Geometry& to = **endpoint_->geometries().find(d.dst_geometry);
  const uint32_t first_block = d.first_block + active.cursor;
  const uint32_t token = std::max(d.token_begin, first_block * to.block_tokens());
  const uint32_t i = active.cursor + token / to.block_tokens() - first_block;
  const uint32_t* const entries = door().slots() + d.dst_list + i * uint64_t{to.entries_per_block()};
  Place place;
  if (to.find(entries, layer, 0, token % to.block_tokens(), &place))
    *to.address(to.strips(layer, 0).data[0], place) ^= std::byte{1};
}

// All of the step has been issued, and what a driver was given of it may not have arrived.
void TransferEngine::land_step(Active& active, const Timer& end, uint64_t now) {
  if (DeviceCopy* const copy = last_chunk_of(active)) {
    copy->ends = DeviceCopy::Ends::kStep;
    copy->step = end;
    return;
  }
  Timer timer = end;
  if (links_carried(timer, now)) {
    finish_step(active, timer.step);
  } else {
    timers_.push(timer);
  }
}

// Whether any has ended.
bool TransferEngine::poll_copies(uint64_t now) {
  if (device_copies_.empty()) return false;
  bool any = false;
  size_t kept = 0;
  for (size_t i = 0; i < device_copies_.size(); i++) {
    const DeviceCopy copy = device_copies_[i];
    Status why;
    const DeviceStream::Progress progress = copy.stream->poll(copy.mark, &why);
    if (progress == DeviceStream::Progress::kPending) {
      device_copies_[kept++] = copy;
      continue;
    }
    any = true;
    device_bytes_ -= copy.bytes;
    Active& active = *copy.step.active;
    if (progress == DeviceStream::Progress::kFailed) fail(*active.program, &active, DP_ERROR_DEVICE);
    if (copy.ends == DeviceCopy::Ends::kAbandoned) active.in_flight--;
    Timer step = copy.step;
    if (copy.ends != DeviceCopy::Ends::kStep) continue;
    if (links_carried(step, now)) {
      finish_step(active, step.step);
    } else {
      timers_.push(step);
    }
  }
  device_copies_.resize(kept);
  next_copy_ns_ = kept == 0 ? kNever : now + kLook_ns;
  return any;
}

}  // namespace dualpath
