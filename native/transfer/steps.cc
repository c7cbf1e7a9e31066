// Steps of COPY, SEND, NOP and BUMP.
#include <algorithm>
#include <bit>
#include <utility>

#include "transfer/engine.h"

namespace dualpath {

bool TransferEngine::waits_hold(const dp_descriptor& d, uint16_t step) {
  for (const dp_wait& wait : d.wait) {
    if (wait.counter == DP_NONE || step < wait.skip_steps) continue;
    const uint64_t value = wait.value + static_cast<uint64_t>(step) * wait.value_step;
    if (door().counter(wait.counter + step * wait.counter_step) < value) {
      statistics_.waits_counter.fetch_add(1, std::memory_order_relaxed);
      return false;
    }
  }
  return true;
}

// False when the peer has no such counter or is lost; the program has failed then.
bool TransferEngine::raise(Active& active, const dp_signal& signal, uint32_t index, uint64_t value) {
  if (signal.remote != 0) {
    if (peers_[active.d.peer]->carries_steps()) return true;  // it went with the step
    const PeerResult result = peers_[active.d.peer]->signal({index, signal.mode, value});
    if (result == PeerResult::kOk) return true;
    fail(*active.program, &active, result == PeerResult::kLost ? DP_ERROR_PEER : DP_ERROR_INVALID);
    return false;
  }
  if (signal.mode == DP_SIGNAL_ADD) {
    door().counter_add(index, value);
  } else {
    door().counter_raise(index, value);
  }
  return true;
}

// Steps may finish in any order; finished_prefix hides that.
void TransferEngine::advance_prefix(Active& active, uint16_t step) {
  active.finished_ahead |= 1u << (step - active.finished_prefix);
  const int run = std::countr_one(active.finished_ahead);
  active.finished_prefix = static_cast<uint16_t>(active.finished_prefix + run);
  active.finished_ahead >>= run;
}

void TransferEngine::finish_step(Active& active, uint16_t step) {
  const dp_descriptor& d = active.d;
  active.in_flight--;
  Program& program = *active.program;
  if (program.record.status == DP_ERROR_NONE) {
    const uint16_t before = active.finished_prefix;
    advance_prefix(active, step);
    for (const dp_signal& signal : d.signal) {
      if (signal.counter == DP_NONE) continue;
      const bool ordered = signal.mode == DP_SIGNAL_ORDERED;
      if (ordered && active.finished_prefix == before) continue;
      const uint64_t value = ordered ? signal.value + active.finished_prefix : signal.value;
      const uint32_t index = ordered ? signal.counter : signal.counter + step * signal.counter_step;
      if (!raise(active, signal, index, value)) break;
    }
    door().notify();
  }
  post_event(active, step);
  if (active.finished_prefix == d.layer_count) retire(active);
}

// Begins the next step if it may begin now.
bool TransferEngine::open_step(Active& active) {
  const dp_descriptor& d = active.d;
  if (active.next_step == d.layer_count || active.next_step >= active.finished_prefix + kMaxStepsInFlight) {
    return false;
  }
  if (!waits_hold(d, active.next_step) || !owe_event(d)) return false;
  active.step_open = true;
  active.cursor = 0;
  active.egress_end = active.ingress_end = 0;
  active.in_flight++;
  return true;
}

// A step that was begun and will not go on. Of a layer nothing is under way between two turns; blocks may
// be, and are counted one by one.
void TransferEngine::abandon_step(Active& active) {
  if (!active.step_open) return;
  active.step_open = false;
  if (active.peer_step != nullptr) {  // which ends in its own time
    carrier_of(active)->abandon(std::exchange(active.peer_step, nullptr));
  } else if (DeviceCopy* const copy = last_chunk_of(active)) {  // so does what a driver was given
    copy->ends = DeviceCopy::Ends::kAbandoned;
  } else if (active.d.op != DP_OP_READ && active.d.op != DP_OP_WRITE) {
    active.in_flight--;
  }
  if ((active.d.flags & DP_FLAG_EVENT) != 0) records_owed_--;
}

bool TransferEngine::turn_bumps(Active& active) {
  bool moved = false;
  if (carrier_of(active) != nullptr) {
    while (turn_carried(active)) moved = true;
    return moved;
  }
  // A repetition is a few nanoseconds; kMaxStepsInFlight is no limit as each ends at once.
  while (active.program != nullptr && active.program->record.status == DP_ERROR_NONE && open_step(active)) {
    active.step_open = false;
    finish_step(active, active.next_step++);
    moved = true;
  }
  return moved;
}

NicLink* TransferEngine::ingress_of(const dp_descriptor& d) {
  return d.op == DP_OP_SEND ? peers_[d.peer]->ingress() : options_.links.nic_ingress.get();
}

bool TransferEngine::links_accept(const Active& active, uint64_t now) {
  for (NicLink* link : {options_.links.nic_egress.get(), ingress_of(active.d)}) {
    uint64_t when = 0;
    if (link == nullptr || link->accepts(active.d.traffic_class, now, options_.nic_lookahead_ns, &when))
      continue;
    next_link_ns_ = std::min(next_link_ns_, when);
    statistics_.waits_link.fetch_add(1, std::memory_order_relaxed);
    return false;
  }
  return true;
}

// Whether the step's bytes have crossed both links; if not, when to look again.
bool TransferEngine::links_carried(Timer& timer, uint64_t now) {
  const dp_descriptor& d = timer.active->d;
  const std::pair<NicLink*, uint64_t> ends[] = {{options_.links.nic_egress.get(), timer.egress_end},
                                                {ingress_of(d), timer.ingress_end}};
  bool carried = true;
  for (const auto& [link, end] : ends) {
    if (link == nullptr || link->crossed(d.traffic_class, end, now)) continue;
    carried = false;
    timer.due_ns = std::max({timer.due_ns, now + 1, link->forecast(d.traffic_class, end)});
  }
  return carried;
}

// One turn: at most chunk_bytes of one step.
bool TransferEngine::turn_layers(Active& active, uint64_t now) {
  if (active.d.op == DP_OP_COPY && !active.step_open && !choose_way(active))
    return active.program->record.status != DP_ERROR_NONE;
  if (carrier_of(active) != nullptr) return turn_carried(active);
  if (!active.step_open && !open_step(active)) return false;
  if (!links_accept(active, now)) return false;
  if (DeviceStream* const stream = stream_of(active.d); stream != nullptr && !device_accepts(*stream))
    return false;
  const dp_descriptor& d = active.d;
  const uint64_t bytes = move_chunk(active, now);
  active.program->record.bytes_moved += bytes;
  const bool send = d.op == DP_OP_SEND;
  (send ? statistics_.send_bytes : statistics_.copy_bytes).fetch_add(bytes, std::memory_order_relaxed);
  if (active.program->record.status != DP_ERROR_NONE) return true;
  if (active.cursor < d.list_count) return true;
  active.step_open = false;
  (send ? statistics_.send_steps : statistics_.copy_steps).fetch_add(1, std::memory_order_relaxed);
  const uint16_t step = active.next_step++;
  land_step(active, Timer{now, &active, nullptr, step, active.egress_end, active.ingress_end}, now);
  return true;
}

uint64_t TransferEngine::move_chunk(Active& active, uint64_t now) {
  const dp_descriptor& d = active.d;
  const auto& from = *endpoint_->geometries().find(d.src_geometry);
  const uint32_t layer = d.first_layer + active.next_step;
  uint64_t layer_bytes = 0;
  for (const Plane& plane : from->planes(layer)) {
    layer_bytes += static_cast<uint64_t>(plane.bytes_per_token) * from->block_tokens();
  }
  const uint32_t fits = static_cast<uint32_t>(std::max<uint64_t>(1, options_.chunk_bytes / layer_bytes));
  const uint32_t count = std::min(fits, d.list_count - active.cursor);
  const uint64_t from_width = from->entries_per_block();
  const uint32_t* from_slots = door().slots() + d.src_list + active.cursor * from_width;
  const uint32_t* to_slots = door().slots() + d.dst_list;
  const TokenRange tokens{d.token_begin, d.token_end};
  const uint32_t first_block = d.first_block + active.cursor;
  uint64_t bytes = 0;
  if (d.op == DP_OP_SEND) {
    const SendPart part{from.get(), d.src_geometry, d.dst_geometry, from_slots, to_slots + active.cursor,
                        count,      layer,          first_block,    tokens,     d.window_end};
    const PeerResult result = peers_[d.peer]->write(part, &bytes);
    if (result != PeerResult::kOk) {
      fail(*active.program, &active, result == PeerResult::kLost ? DP_ERROR_PEER : DP_ERROR_INVALID,
           active.cursor);
      return bytes;
    }
  } else {
    if (!copy_blocks(active, layer, count, &bytes)) return bytes;
  }
  if (bytes > 0) {
    if (NicLink* const egress = options_.links.nic_egress.get())
      active.egress_end = egress->enqueue(d.traffic_class, bytes, now);
    if (NicLink* const ingress = ingress_of(d))
      active.ingress_end = ingress->enqueue(d.traffic_class, bytes, now);
  }
  active.cursor += count;
  return bytes;
}

}  // namespace dualpath
