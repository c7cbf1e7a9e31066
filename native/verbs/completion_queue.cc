#include "verbs/completion_queue.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>

#include <algorithm>

#include "core/clock.h"
#include "verbs/queue_pair.h"

namespace dualpath::verbs {
namespace {

constexpr int kBatch = 32;
constexpr uint32_t kAcknowledgeEvery = 64;  // events: each acknowledgement takes a lock

Status failed_call(const char* what, Device& device, int error) {
  return Status::error("RDMA_FAILED",
                       std::string(what) + " on RDMA device '" + device.name() +
                           "' failed: " + strerror(error) + "; see the kernel log",
                       error);
}

}  // namespace

Status CompletionQueue::create(std::shared_ptr<Device> device, uint32_t entries,
                               std::unique_ptr<CompletionQueue>* out) {
  const int most = device->attributes().max_cqe;
  if (entries == 0 || entries > static_cast<uint32_t>(most)) {
    return Status::error("INVALID_ARGUMENT", "a completion queue of " + std::to_string(entries) +
                                                 " entries: RDMA device '" + device->name() + "' has 1 to " +
                                                 std::to_string(most) + "; use fewer or smaller queue pairs");
  }
  auto queue = std::unique_ptr<CompletionQueue>(new CompletionQueue());
  queue->device_ = std::move(device);
  Verbs& verbs = queue->device_->verbs();
  queue->channel_ = verbs.create_comp_channel(queue->device_->context());
  if (queue->channel_ == nullptr) {
    return failed_call("creating a completion channel", *queue->device_, errno);
  }
  const int fd = queue->channel_->fd;
  fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
  queue->cq_ =
      verbs.create_cq(queue->device_->context(), static_cast<int>(entries), nullptr, queue->channel_);
  if (queue->cq_ == nullptr) return failed_call("creating a completion queue", *queue->device_, errno);
  queue->entries_ = entries;
  queue->places_.resize(kMaxQueuePairs);
  for (uint32_t i = kMaxQueuePairs; i != 0; i--) queue->free_.push_back(static_cast<uint16_t>(i - 1));
  *out = std::move(queue);
  return {};
}

CompletionQueue::~CompletionQueue() {
  Verbs& verbs = device_->verbs();
  if (cq_ != nullptr) {
    // Destroying waits for events that were taken and not acknowledged, for ever.
    if (unacknowledged_ != 0) verbs.ack_cq_events(cq_, unacknowledged_);
    unacknowledged_ = 0;
    take_events();
    if (unacknowledged_ != 0) verbs.ack_cq_events(cq_, unacknowledged_);
    verbs.destroy_cq(cq_);
  }
  if (channel_ != nullptr) verbs.destroy_comp_channel(channel_);
}

Status CompletionQueue::attach(QueuePair* queue_pair, uint32_t entries, uint64_t* prefix) {
  if (free_.empty() || entries > entries_ - used_) {
    return Status::error("CAPACITY_EXHAUSTED",
                         "a queue pair with " + std::to_string(entries) +
                             " requests outstanding: " + std::to_string(entries_ - used_) +
                             " of the completion queue's " + std::to_string(entries_) +
                             " entries are left; close idle connections or use a larger queue");
  }
  used_ += entries;
  const uint16_t index = free_.back();
  free_.pop_back();
  places_[index].queue_pair = queue_pair;
  places_[index].generation = (places_[index].generation + 1) & 0x3fff;
  *prefix = uint64_t{index} << 48 | uint64_t{places_[index].generation} << 34;
  return {};
}

void CompletionQueue::detach(uint64_t prefix, uint32_t entries) {
  const uint16_t index = static_cast<uint16_t>(prefix >> 48);
  places_[index].queue_pair = nullptr;
  free_.push_back(index);
  used_ -= entries;
}

void CompletionQueue::dispatch(const ibv_wc& wc) {
  const uint32_t index = static_cast<uint32_t>(wc.wr_id >> 48);
  QueuePair* const queue_pair = index < places_.size() ? places_[index].queue_pair : nullptr;
  if (queue_pair == nullptr || places_[index].generation != (wc.wr_id >> 34 & 0x3fff)) {
    stale_++;
    return;
  }
  queue_pair->completed(wc);
}

int CompletionQueue::poll(uint32_t budget) {
  if (failed_) return -1;
  ibv_wc batch[kBatch];
  uint32_t handled = 0;
  while (handled < budget) {
    const int wanted = static_cast<int>(std::min<uint32_t>(kBatch, budget - handled));
    const int count = ibv_poll_cq(cq_, wanted, batch);
    if (count < 0) {
      failed_ = true;
      return -1;
    }
    for (int i = 0; i < count; i++) dispatch(batch[i]);
    handled += static_cast<uint32_t>(count);
    if (count < wanted) break;
  }
  return static_cast<int>(handled);
}

Status CompletionQueue::arm() {
  const int error = ibv_req_notify_cq(cq_, 0);
  return error == 0 ? Status{} : failed_call("requesting notification", *device_, error);
}

uint32_t CompletionQueue::take_events() {
  uint32_t taken = 0;
  ibv_cq* cq = nullptr;
  void* context = nullptr;
  while (device_->verbs().get_cq_event(channel_, &cq, &context) == 0) {
    taken++;
    if (++unacknowledged_ < kAcknowledgeEvery) continue;
    device_->verbs().ack_cq_events(cq_, unacknowledged_);
    unacknowledged_ = 0;
  }
  return taken;
}

int CompletionQueue::wait(uint64_t spin_ns, uint64_t deadline_ns) {
  const uint64_t begun = now_ns();
  for (;;) {
    int handled = poll(UINT32_MAX);
    if (handled != 0) return handled;
    const uint64_t now = now_ns();
    if (now >= deadline_ns) return 0;
    if (now - begun < spin_ns) continue;
    if (!arm().ok()) return -1;
    handled = poll(UINT32_MAX);  // what came before it was armed makes no event
    if (handled != 0) return handled;
    const uint64_t left_ms = (deadline_ns - now) / 1'000'000 + 1;
    pollfd waited{fd(), POLLIN, 0};
    ::poll(&waited, 1, static_cast<int>(std::min<uint64_t>(left_ms, 60'000)));
    take_events();
  }
}

}  // namespace dualpath::verbs
