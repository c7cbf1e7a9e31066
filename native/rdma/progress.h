// A device as one reactor uses it: context, protection domain, one completion queue for all its queue pairs,
// events. Polled with a budget in each pass of the reactor; asleep, its descriptors wake it.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "transfer/reactor.h"
#include "verbs/completion_queue.h"

namespace dualpath::rdma {

// An engine's use of the device.
class ProgressUser {
 public:
  virtual bool deliver() = 0;  // ends steps; whether there were any
  virtual void port_event(uint8_t port, bool up) = 0;
  // The device or its completion queue has failed: nothing works any more.
  virtual void device_failed(const std::string& cause) = 0;
  virtual void stop() = 0;

 protected:
  ~ProgressUser() = default;
};

class Progress final : public Poller {
 public:
  // The reactor's for this device, made when it has none. RDMA_UNAVAILABLE, INVALID_ARGUMENT, RDMA_FAILED,
  // CAPACITY_EXHAUSTED. From the thread that owns the reactor.
  static Status of(Reactor& reactor, const std::shared_ptr<verbs::Verbs>& verbs, const std::string& device,
                   std::shared_ptr<Progress>* out);

  verbs::Device& device() { return *device_; }
  const std::shared_ptr<verbs::Device>& shared_device() { return device_; }

  // The rest on the reactor's thread.
  verbs::CompletionQueue& completion_queue() { return *completion_queue_; }
  bool failed() const { return failed_; }
  void add(ProgressUser* user) { users_.push_back(user); }
  void remove(ProgressUser* user) { std::erase(users_, user); }

  const std::string& key() const override { return key_; }
  bool poll(uint64_t now) override;
  void arm() override;
  std::array<int, 2> watched() const override { return {completion_queue_->fd(), device_->async_fd()}; }
  void stop() override;

 private:
  Progress() = default;
  void take_events();
  void fail(const std::string& cause);

  std::string key_;
  std::shared_ptr<verbs::Device> device_;
  std::unique_ptr<verbs::CompletionQueue> completion_queue_;
  std::vector<ProgressUser*> users_;
  bool armed_ = false;
  bool failed_ = false;
  uint64_t next_events_ns_ = 0;
};

}  // namespace dualpath::rdma
