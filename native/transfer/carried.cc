// Steps of SEND and BUMP that a peer's transport carries, and of COPY that the NIC does: begun and posted
// here, ended by them.
#include "transfer/engine.h"

namespace dualpath {

Peer* TransferEngine::carrier_of(const Active& active) const {
  const dp_descriptor& d = active.d;
  if (d.op == DP_OP_COPY) return active.way == CopyWay::kNic ? copy_nic_.get() : nullptr;
  bool remote = d.op == DP_OP_SEND;
  for (const dp_signal& signal : d.signal) remote |= signal.counter != DP_NONE && signal.remote != 0;
  return remote && peers_[d.peer]->carries_steps() ? peers_[d.peer].get() : nullptr;
}

// Whether it went on. One step of a descriptor is posted at a time, so that they arrive in order.
bool TransferEngine::turn_carried(Active& active) {
  if (active.program == nullptr || active.program->record.status != DP_ERROR_NONE) return false;
  if (!active.step_open && !open_step(active)) return false;
  if (active.peer_step == nullptr && !begin_carried(active))
    return active.program->record.status != DP_ERROR_NONE || carrier_of(active) == nullptr;
  Peer& peer = *carrier_of(active);
  bool moved = false;
  uint32_t block = DP_NONE;
  PeerFailure failure;
  const PeerResult result = peer.post(active.peer_step, &moved, &block, &failure);
  if (result == PeerResult::kAgain) {
    if (!moved) statistics_.waits_peer.fetch_add(1, std::memory_order_relaxed);
    return moved;
  }
  const bool again = result == PeerResult::kLost && may_recopy(active);
  if (result != PeerResult::kOk && !again) {
    fail_at_peer(active, failure, block);  // the next turn abandons the step
    return true;
  }
  if (again) {  // when what was posted of it has come out
    peer.abandon(active.peer_step);
    active.redo_step = active.next_step;
  }
  active.peer_step = nullptr;
  active.step_open = false;
  active.next_step++;
  return true;
}

bool TransferEngine::begin_carried(Active& active) {
  const dp_descriptor& d = active.d;
  const uint16_t step = active.next_step;
  StepRequest request{this, &active, step, d.traffic_class, {}, {}, 0};
  if (d.op == DP_OP_SEND || d.op == DP_OP_COPY) {
    const auto& from = *endpoint_->geometries().find(d.src_geometry);
    request.part = {from.get(),
                    d.src_geometry,
                    d.dst_geometry,
                    door().slots() + d.src_list,
                    door().slots() + d.dst_list,
                    d.list_count,
                    d.first_layer + uint32_t{step},
                    d.first_block,
                    {d.token_begin, d.token_end},
                    d.window_end};
  }
  for (const dp_signal& signal : d.signal) {
    if (signal.counter == DP_NONE || signal.remote == 0 || d.op == DP_OP_COPY) continue;
    const bool ordered = signal.mode == DP_SIGNAL_ORDERED;
    const uint32_t counter = ordered ? signal.counter : signal.counter + step * signal.counter_step;
    request.signals[request.signal_count++] = {counter, signal.mode,
                                               ordered ? signal.value + step + 1 : signal.value};
  }
  PeerFailure failure;
  const PeerResult result = carrier_of(active)->begin(request, &active.peer_step, &failure);
  if (result == PeerResult::kOk) return true;
  if (result == PeerResult::kAgain) {
    statistics_.waits_peer.fetch_add(1, std::memory_order_relaxed);
  } else if (result == PeerResult::kLost && may_recopy(active)) {
    active.way = CopyWay::kMemcpy;  // or the driver: anything but the NIC
  } else {
    fail_at_peer(active, failure);
  }
  return false;
}

void TransferEngine::fail_at_peer(Active& active, const PeerFailure& failure, uint32_t block) {
  dp_record& record = active.program->record;
  if (record.status != DP_ERROR_NONE) return;
  const bool lost = failure.result == PeerResult::kLost;
  fail(*active.program, &active, lost ? DP_ERROR_PEER : DP_ERROR_INVALID, block, failure.sys_errno);
  if (!lost) return;
  record.error_call = DP_CALL_RDMA;
  record.error_offset = failure.status;
  record.error_bytes = failure.queue_pair;
}

void TransferEngine::step_ended(void* context, uint16_t step, uint64_t bytes, const PeerFailure& failure) {
  Active& active = *static_cast<Active*>(context);
  active.program->record.bytes_moved += bytes;
  if (active.d.op == DP_OP_SEND) {
    statistics_.send_bytes.fetch_add(bytes, std::memory_order_relaxed);
    if (failure.result == PeerResult::kOk) statistics_.send_steps.fetch_add(1, std::memory_order_relaxed);
  } else if (active.d.op == DP_OP_COPY) {
    statistics_.copy_bytes.fetch_add(bytes, std::memory_order_relaxed);
    statistics_.copy_bytes_by_way[static_cast<size_t>(CopyWay::kNic)].fetch_add(bytes,
                                                                                std::memory_order_relaxed);
    const bool redo = step == active.redo_step;
    if (redo) active.redo_step = kNoStep;
    const bool lost = failure.result == PeerResult::kLost && step < active.next_step;
    if ((redo || lost) && recopy(active, step)) return;
    if (failure.result == PeerResult::kOk && !redo)
      statistics_.copy_steps.fetch_add(1, std::memory_order_relaxed);
    if (redo) fail_at_peer(active, {PeerResult::kLost, 0, 0, 0});
  }
  if (failure.result == PeerResult::kOk && step < active.next_step) {
    finish_step(active, step);
    return;
  }
  // It failed, or was abandoned; then the program has.
  if (failure.result != PeerResult::kOk) fail_at_peer(active, failure);
  active.in_flight--;
  if (step < active.next_step && (active.d.flags & DP_FLAG_EVENT) != 0) records_owed_--;
}

}  // namespace dualpath
