#include "rdma/progress.h"

#include <algorithm>

namespace dualpath::rdma {
namespace {

constexpr uint32_t kBudget = 256;  // completions of a pass: the engines have other work, too
constexpr int kMaxEntries = 32767;
constexpr uint64_t kEventsEvery_ns = 10'000'000;  // looked for while there is no time to sleep

std::string key_of(const verbs::Verbs& verbs, const std::string& device) {
  return "rdma " + std::to_string(reinterpret_cast<uintptr_t>(&verbs)) + " " + device;
}

}  // namespace

Status Progress::of(Reactor& reactor, const std::shared_ptr<verbs::Verbs>& verbs, const std::string& device,
                    std::shared_ptr<Progress>* out) {
  const std::string key = key_of(*verbs, device);
  std::shared_ptr<Poller> known;
  reactor.call([&] { known = reactor.poller(key); });
  if (known != nullptr) {
    *out = std::static_pointer_cast<Progress>(known);
    return {};
  }
  auto progress = std::shared_ptr<Progress>(new Progress());
  progress->key_ = key;
  Status status = verbs::Device::open(verbs, device, &progress->device_);
  if (!status.ok()) return status;
  const int most = std::min(progress->device_->attributes().max_cqe, kMaxEntries);
  status = verbs::CompletionQueue::create(progress->device_, static_cast<uint32_t>(most),
                                          &progress->completion_queue_);
  if (!status.ok()) return status;
  reactor.call([&] { status = reactor.add_poller(progress); });
  if (status.ok()) *out = std::move(progress);
  return status;
}

bool Progress::poll(uint64_t now) {
  bool moved = false;
  if (!failed_) {
    const int handled = completion_queue_->poll(kBudget);
    if (handled < 0) {
      fail("the completion queue of RDMA device '" + device_->name() + "' failed (overflow)");
    }
    moved = handled != 0;
    if (now >= next_events_ns_) {
      next_events_ns_ = now + kEventsEvery_ns;
      take_events();
    }
  }
  for (ProgressUser* user : users_) moved |= user->deliver();
  return moved;
}

// One request for notification makes one event, so it is made again only after one has come.
void Progress::arm() {
  take_events();
  if (failed_ || (armed_ && completion_queue_->take_events() == 0)) return;
  const Status status = completion_queue_->arm();
  armed_ = status.ok();
  if (!armed_) fail(status.message);
}

void Progress::take_events() {
  verbs::DeviceEvent event;
  while (device_->take_event(&event)) {
    switch (event.kind) {
      case verbs::DeviceEventKind::kPortError:
      case verbs::DeviceEventKind::kPortActive:
        for (ProgressUser* user : users_) {
          user->port_event(event.port, event.kind == verbs::DeviceEventKind::kPortActive);
        }
        break;
      case verbs::DeviceEventKind::kCompletionQueueError:
        fail("the completion queue of RDMA device '" + device_->name() + "' overflowed");
        break;
      case verbs::DeviceEventKind::kDeviceFatal:
        fail("RDMA device '" + device_->name() + "' reported a fatal error; see the kernel log");
        break;
      case verbs::DeviceEventKind::kQueuePairFatal:  // its requests are flushed, which says the same
      case verbs::DeviceEventKind::kOther:
        break;
    }
  }
}

void Progress::fail(const std::string& cause) {
  if (failed_) return;
  failed_ = true;
  for (ProgressUser* user : users_) user->device_failed(cause);
}

void Progress::stop() {
  for (ProgressUser* user : std::vector<ProgressUser*>(users_)) user->stop();
}

}  // namespace dualpath::rdma
