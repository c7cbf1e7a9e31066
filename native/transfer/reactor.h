// One thread that carries any number of engines: takes their programs, moves their bytes, and sleeps in
// one place (io_uring, its eventfd among what that waits for) when there is nothing to do. It never spins.
#pragma once
#include <atomic>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "core/faults.h"
#include "core/live.h"
#include "core/waker.h"
#include "transfer/engine.h"
#include "transfer/poller.h"
#include "uring/block_io.h"

namespace dualpath {

class Reactor {
 public:
  // STORAGE_IO when storage cannot be had the way it is wanted (block_io.h), CAPACITY_EXHAUSTED.
  static Status create(std::unique_ptr<Reactor>* out, StorageIo storage_io = StorageIo::kAuto);
  // Joins the thread and waits for the storage operations in flight. Programs of engines still here end
  // without a record.
  ~Reactor();
  Reactor(const Reactor&) = delete;
  Reactor& operator=(const Reactor&) = delete;

  // CAPACITY_EXHAUSTED when the bell of a shared door cannot be watched.
  Status add(std::shared_ptr<TransferEngine> engine);
  // The engine is no longer touched when this returns. Call request_close() and collect the records first:
  // remove() waits for its operations in flight, and what is still in its submission ring is never taken.
  void remove(const std::shared_ptr<TransferEngine>& engine);
  // Runs something on the thread and waits for it.
  void call(const std::function<void()>& work);
  // On the thread, by call(). CAPACITY_EXHAUSTED when its descriptors cannot be watched. A poller that nobody
  // else holds any more goes.
  Status add_poller(std::shared_ptr<Poller> poller);
  std::shared_ptr<Poller> poller(const std::string& key) const;  // nullptr when there is none
  // The doorbell: work was published while the reactor said it sleeps.
  void ring() { waker_->ring(); }

  FaultPlan& faults() { return faults_; }
  const StorageIoFacts& storage_io() const { return io_->facts(); }

 private:
  Reactor() = default;
  void run();
  bool pass();
  void take_changes();
  void drop_pollers();
  void sleep();

  FaultPlan faults_;
  std::unique_ptr<BlockIo> io_;
  std::shared_ptr<Waker> waker_ = std::make_shared<Waker>();
  std::vector<std::shared_ptr<TransferEngine>> engines_;  // the thread's own
  std::vector<std::shared_ptr<Poller>> pollers_;          // likewise
  size_t turn_ = 0;  // of the engine that has the first choice of links they share

  std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  std::vector<std::shared_ptr<TransferEngine>> adding_;
  std::vector<std::shared_ptr<TransferEngine>> removing_;
  std::vector<const std::function<void()>*> calls_;
  std::atomic<bool> changes_{false};
  std::atomic<bool> stop_{false};
  std::thread thread_;
  Live<LiveKind::kReactor> live_;
};

}  // namespace dualpath
