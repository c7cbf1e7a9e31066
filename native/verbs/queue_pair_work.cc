// Work on a queue pair: chains posted, completions taken, receives and credits.
#include <errno.h>
#include <string.h>

#include <algorithm>
#include <atomic>

#include "verbs/queue_pair.h"

namespace dualpath::verbs {

uint32_t QueuePair::credits() const {
  if (state_ != State::kReady) return 0;
  // The peer writes a running total, eight aligned bytes that arrive together.
  const uint64_t since =
      std::atomic_ref<uint64_t>(*reinterpret_cast<uint64_t*>(control_)).load(std::memory_order_acquire);
  return static_cast<uint32_t>(path_.peer.receives + since - credits_used_);
}

bool QueuePair::append_message(Chain& chain, std::span<const std::byte> message) {
  const bool fits = posted_ + chain.size() - released_ < usable_;  // else the place may be in flight
  if (!fits || chain.size_ == chain.options_.requests) return false;
  std::byte* const place = staging(posted_ + chain.size());
  memcpy(place, message.data(), message.size());
  return chain.message(reinterpret_cast<uint64_t>(place), control_region_->local_key(),
                       static_cast<uint32_t>(message.size()));
}

PostResult QueuePair::post(Chain& chain, Operation* operation) {
  const uint32_t count = chain.size();
  if (state_ != State::kReady) {
    WorkError error = first_error_;
    if (error.ok()) error.blame = Blame::kCancelled;
    error.flushed = true;
    if (operation != nullptr) operation->fail(error);
    return PostResult::kFailed;
  }
  if (count == 0) return PostResult::kPosted;
  if (count > usable_) return refused(chain, operation, 0, EINVAL);  // can never fit
  if (count > room()) return PostResult::kAgain;
  if (chain.receives_ != 0 && chain.receives_ > credits()) return PostResult::kAgain;
  ibv_send_wr* const first = &chain.requests_[chain.first_];
  for (uint32_t i = 0; i < count; i++) first[i].wr_id = prefix_ | static_cast<uint32_t>(posted_ + i);
  ibv_send_wr& last = first[count - 1];
  ibv_send_wr* const after = std::exchange(last.next, nullptr);
  last.send_flags |= IBV_SEND_SIGNALED;
  ibv_send_wr* bad = nullptr;
  const int error = ibv_post_send(qp_, first, &bad);
  last.next = after;
  last.send_flags &= ~static_cast<unsigned>(IBV_SEND_SIGNALED);
  counters_.post_calls++;
  if (error != 0) return refused(chain, operation, static_cast<uint32_t>(bad - first), error);
  posted_ += count;
  in_flight_.push() = {posted_, operation, true, chain.bytes_};
  signalled_in_flight_++;
  bytes_in_flight_ += chain.bytes_;
  if (operation != nullptr) operation->chain_posted();
  credits_used_ += chain.receives_;
  counters_.chains++;
  counters_.requests += count;
  counters_.bytes += chain.bytes_;
  chain.clear();
  return PostResult::kPosted;
}

// The provider took the first `accepted` requests of the chain, none of them signalled: a later completion
// has to cover them. Want of room passes when something is in flight that will make some; all else is a fault
// here.
PostResult QueuePair::refused(Chain& chain, Operation* operation, uint32_t accepted, int error) {
  const bool passes = error == ENOMEM && signalled_in_flight_ != 0;
  if (accepted != 0) {
    const uint32_t receives = chain.receives_;
    chain.drop_front(accepted);
    credits_used_ += receives - chain.receives_;
    posted_ += accepted;
    in_flight_.push() = {posted_, operation, false, 0};
    if (operation != nullptr) operation->chain_posted();
    counters_.requests += accepted;
  }
  counters_.refused++;
  if (passes) return PostResult::kAgain;
  WorkError cause;
  cause.blame = Blame::kLocal;
  cause.post_errno = error;
  cause.qp_num = qp_num_;
  cause.position = posted_;
  if (operation != nullptr) operation->fail(cause);
  fail(cause);
  return PostResult::kFailed;
}

void QueuePair::retire_front() {
  const InFlight done = in_flight_.front();
  in_flight_.pop();
  if (done.signalled) signalled_in_flight_--;
  bytes_in_flight_ -= done.bytes;
  if (done.operation != nullptr) done.operation->chain_ended();
}

void QueuePair::retire_until(uint64_t position) {
  released_ = std::max(released_, position);
  while (!in_flight_.empty() && in_flight_.front().end <= position) retire_front();
}

void QueuePair::completed(const ibv_wc& wc) {
  if ((wc.wr_id >> 32 & 3) == static_cast<uint64_t>(WorkKind::kSend)) {
    sent(wc);
  } else {
    received(wc);
  }
}

void QueuePair::sent(const ibv_wc& wc) {
  const uint64_t position = released_ + static_cast<uint32_t>(static_cast<uint32_t>(wc.wr_id) - released_);
  if (wc.status == IBV_WC_SUCCESS) {
    counters_.completions++;
    retire_until(position + 1);
    cover_tail();
    offer_credits();
    return;
  }
  retire_until(position);  // what came before it was carried out: order holds within a queue pair
  WorkError error;
  error.blame = blame_of(wc.status);
  error.status = wc.status;
  error.vendor_error = wc.vendor_err;
  error.qp_num = qp_num_;
  error.position = position;
  const bool flushed = wc.status == IBV_WC_WR_FLUSH_ERR;
  (flushed ? counters_.flushed : counters_.errors)++;
  if (flushed && !first_error_.ok()) error = first_error_;
  // Flushed although nothing failed here: the device or the peer broke the connection.
  if (flushed && first_error_.ok() && state_ == State::kReady) error.blame = Blame::kRemote;
  error.flushed = flushed;
  const InFlight front = in_flight_.front();
  if (front.operation != nullptr) front.operation->fail(error);
  const bool marker = front.operation == nullptr && state_ == State::kDraining && position + 1 == posted_;
  fail(error);
  retire_until(position + 1);
  if (marker) {
    send_drained_ = true;
    finish_drain();
  }
}

void QueuePair::fail(const WorkError& error) {
  if (!first_error_.ok() || state_ != State::kReady) return;
  first_error_ = error;
  drain();
  events_->on_broken(*this, first_error_);
}

Status QueuePair::post_receive(uint32_t buffer, WorkKind kind) {
  ibv_sge sge{reinterpret_cast<uint64_t>(receive_buffer(buffer)), kMessageBytes,
              control_region_->local_key()};
  ibv_recv_wr receive{};
  receive.wr_id = prefix_ | static_cast<uint64_t>(kind) << 32 | buffer;
  receive.sg_list = &sge;
  receive.num_sge = 1;
  ibv_recv_wr* bad = nullptr;
  const int error = ibv_post_recv(qp_, &receive, &bad);
  if (error != 0) {
    return Status::error("RDMA_FAILED", std::string("posting a receive failed: ") + strerror(error), error);
  }
  receives_posted_++;
  return {};
}

void QueuePair::received(const ibv_wc& wc) {
  const bool marker = (wc.wr_id >> 32 & 3) == static_cast<uint64_t>(WorkKind::kReceiveMarker);
  if (wc.status != IBV_WC_SUCCESS) {
    WorkError error;
    error.blame = wc.status == IBV_WC_WR_FLUSH_ERR ? Blame::kRemote : blame_of(wc.status);
    error.status = wc.status;
    error.vendor_error = wc.vendor_err;
    error.qp_num = qp_num_;
    (wc.status == IBV_WC_WR_FLUSH_ERR ? counters_.flushed : counters_.errors)++;
    fail(error);
    if (!marker) return;
    receive_drained_ = true;
    finish_drain();
    return;
  }
  const uint32_t buffer = static_cast<uint32_t>(wc.wr_id);
  uint64_t cookie = 0;
  if (wc.opcode == IBV_WC_RECV) {
    counters_.messages++;
    events_->on_message(*this, {receive_buffer(buffer), wc.byte_len});
  } else if (options_.landings == 0) {
    counters_.announcements++;
    events_->on_announced(*this, be32toh(wc.imm_data));
  } else if (landings_.find(be32toh(wc.imm_data), &cookie)) {
    counters_.announcements++;
    events_->on_announced(*this, cookie);
  }
  if (state_ != State::kReady && state_ != State::kInitialised) return;
  if (!post_receive(buffer, WorkKind::kReceive).ok()) {
    WorkError error;
    error.blame = Blame::kLocal;
    error.post_errno = ENOMEM;
    error.qp_num = qp_num_;
    fail(error);
    return;
  }
  offer_credits();
}

// Tells the peer of receives posted since, a quarter of the queue at a time; tried again with each
// completion.
void QueuePair::offer_credits() {
  const uint64_t news = receives_posted_ - receives_offered_;
  if (state_ != State::kReady || news < std::max(1u, options_.receive_entries / 4) || room() == 0) return;
  const uint64_t total = receives_posted_ - (options_.receive_entries - 1);
  // One cell for all: a write still in flight may carry the newer total, which is as true.
  std::atomic_ref<uint64_t>(*reinterpret_cast<uint64_t*>(credit_out()))
      .store(total, std::memory_order_release);
  own_chain_.clear();
  own_chain_.write_control({reinterpret_cast<uint64_t>(credit_out()), path_.peer.credit_address,
                            control_region_->local_key(), path_.peer.credit_key, sizeof total});
  if (post(own_chain_, nullptr) == PostResult::kPosted) receives_offered_ = receives_posted_;
}

// After a partial post requests may be in flight that no completion will cover.
void QueuePair::cover_tail() {
  if (in_flight_.empty() || signalled_in_flight_ != 0 || state_ != State::kReady || room() == 0) return;
  own_chain_.clear();
  own_chain_.fresh(IBV_WR_RDMA_WRITE);
  post(own_chain_, nullptr);
}

}  // namespace dualpath::verbs
