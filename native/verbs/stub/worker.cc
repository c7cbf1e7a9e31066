// The strict stub provider's own thread: its devices work while nobody polls.
#include <chrono>
#include <map>

#include "verbs/stub/fabric.h"

namespace dualpath::verbs::stub {
namespace {

constexpr std::chrono::microseconds kBetweenSteps{20};  // a NIC is not infinitely fast

}  // namespace

bool StubFabric::has_work() {
  if (paused_) return false;
  for (StubQp* qp : order_) {
    if (qp->base.state == IBV_QPS_RTS && qp->executed != qp->posted) return true;
    if (qp->completions.empty()) continue;
    const Completion& first = qp->completions.front();
    const auto& cq = *reinterpret_cast<StubCq*>(first.receive ? qp->base.recv_cq : qp->base.send_cq);
    if (!cq.failed) return true;
  }
  return false;
}

void StubFabric::work() {
  std::unique_lock lock(mutex_);
  while (true) {
    work_.wait(lock, [this] { return stopping_ || has_work(); });
    if (stopping_) return;
    advance();
    lock.unlock();
    std::this_thread::sleep_for(kBetweenSteps);
    lock.lock();
  }
}

std::shared_ptr<StubFabric> StubFabric::named(const std::string& name, const StubOptions& options) {
  static std::mutex mutex;
  static auto& fabrics = *new std::map<std::string, std::weak_ptr<StubFabric>>();  // never destroyed
  std::lock_guard lock(mutex);
  auto& known = fabrics[name];
  std::shared_ptr<StubFabric> fabric = known.lock();
  if (fabric == nullptr) known = fabric = std::make_shared<StubFabric>(options);
  return fabric;
}

void StubFabric::pause(bool paused) {
  {
    std::lock_guard lock(mutex_);
    paused_ = paused;
  }
  work_.notify_all();
}

}  // namespace dualpath::verbs::stub
