#include "transfer/reactor.h"

#include <errno.h>
#include <sys/prctl.h>

#include <algorithm>

#include "core/clock.h"

namespace dualpath {

Status Reactor::create(std::unique_ptr<Reactor>* out, StorageIo storage_io) {
  auto reactor = std::unique_ptr<Reactor>(new Reactor());
  if (reactor->waker_->fd() < 0 || !reactor->waker_->open_bells()) {
    return Status::error("CAPACITY_EXHAUSTED",
                         "reactor: eventfd or epoll failed: no file descriptor is left; raise 'ulimit -n'",
                         EMFILE);
  }
  const Status status = BlockIo::create(storage_io, &reactor->faults_, &reactor->io_);
  if (!status.ok()) return status;
  reactor->thread_ = std::thread([raw = reactor.get()] { raw->run(); });
  *out = std::move(reactor);
  return {};
}

Reactor::~Reactor() {
  if (!thread_.joinable()) return;
  stop_.store(true, std::memory_order_seq_cst);
  waker_->ring();
  thread_.join();
}

Status Reactor::add(std::shared_ptr<TransferEngine> engine) {
  engine->door().add_waker(waker_);
  const int bell = engine->door().submission_bell();
  if (bell >= 0 && !waker_->watch(bell)) {
    return Status::error("CAPACITY_EXHAUSTED",
                         "reactor: epoll failed: no file descriptor is left; raise 'ulimit -n'", errno);
  }
  std::lock_guard lock(mutex_);
  adding_.push_back(std::move(engine));
  changes_.store(true, std::memory_order_seq_cst);
  waker_->ring();
  return {};
}

void Reactor::remove(const std::shared_ptr<TransferEngine>& engine) {
  std::unique_lock lock(mutex_);
  removing_.push_back(engine);
  changes_.store(true, std::memory_order_seq_cst);
  waker_->ring();
  changed_.wait(lock,
                [&] { return std::find(removing_.begin(), removing_.end(), engine) == removing_.end(); });
}

void Reactor::call(const std::function<void()>& work) {
  std::unique_lock lock(mutex_);
  calls_.push_back(&work);
  changes_.store(true, std::memory_order_seq_cst);
  waker_->ring();
  changed_.wait(lock, [&] { return std::find(calls_.begin(), calls_.end(), &work) == calls_.end(); });
}

Status Reactor::add_poller(std::shared_ptr<Poller> poller) {
  for (const int fd : poller->watched()) {
    if (fd < 0 || waker_->watch(fd)) continue;
    return Status::error("CAPACITY_EXHAUSTED",
                         "reactor: epoll failed: no file descriptor is left; raise 'ulimit -n'", errno);
  }
  pollers_.push_back(std::move(poller));
  return {};
}

std::shared_ptr<Poller> Reactor::poller(const std::string& key) const {
  const auto found =
      std::find_if(pollers_.begin(), pollers_.end(), [&](const auto& one) { return one->key() == key; });
  return found == pollers_.end() ? nullptr : *found;
}

void Reactor::drop_pollers() {
  std::erase_if(pollers_, [&](const auto& poller) {
    if (poller.use_count() != 1) return false;
    for (const int fd : poller->watched())
      if (fd >= 0) waker_->unwatch(fd);
    poller->stop();
    return true;
  });
}

void Reactor::take_changes() {
  std::lock_guard lock(mutex_);
  changes_.store(false, std::memory_order_relaxed);
  for (const auto* work : calls_) (*work)();
  calls_.clear();
  engines_.insert(engines_.end(), adding_.begin(), adding_.end());
  adding_.clear();
  const uint64_t now = now_ns();
  std::erase_if(removing_, [&](const auto& engine) {
    if (engine->busy(now)) {  // its operations come back first
      changes_.store(true, std::memory_order_relaxed);
      return false;
    }
    engine->leave(*io_);
    std::erase(engines_, engine);
    if (const int bell = engine->door().submission_bell(); bell >= 0) waker_->unwatch(bell);
    return true;
  });
  drop_pollers();
  changed_.notify_all();
}

// Everything that can be done now; whether anything was.
bool Reactor::pass() {
  if (changes_.load(std::memory_order_acquire)) take_changes();
  bool moved = false;
  const uint64_t now = now_ns();
  for (auto& engine : engines_) moved |= engine->ingest(now);
  for (auto& poller : pollers_) moved |= poller->poll(now);
  moved |= io_->reap([&](BlockOp* op) { static_cast<TransferEngine*>(op->owner)->finished(op, now, *io_); });
  for (auto& engine : engines_) moved |= engine->fire_due(now, *io_);
  // Only a pass that issued something passes the turn on: idle passes come in a rhythm, and the turn must
  // not fall into step with it.
  bool issued = false;
  const size_t count = engines_.size();
  for (size_t i = 0; i < count; i++) issued |= engines_[(turn_ + i) % count]->advance(now, *io_);
  if (issued) turn_ = (turn_ + 1) % count;
  moved |= issued;
  io_->submit();
  return moved;
}

void Reactor::sleep() {
  uint64_t next = io_->retry_ns();
  for (auto& engine : engines_) next = std::min(next, engine->next_due());
  const uint64_t now = now_ns();
  io_->submit_and_wait(next > now ? next - now : 0);
  waker_->drain();
}

void Reactor::run() {
  prctl(PR_SET_TIMERSLACK, 1UL, 0UL, 0UL, 0UL);
  prctl(PR_SET_NAME, "dp-reactor", 0UL, 0UL, 0UL);
  io_->watch({waker_->fd(), waker_->bells()});
  while (!stop_.load(std::memory_order_seq_cst)) {
    if (pass()) continue;
    // Say that we sleep, look once more, sleep: whoever publishes after the look rings.
    for (auto& engine : engines_) engine->arm();
    for (auto& poller : pollers_) poller->arm();
    waker_->arm();
    if (!pass() && !stop_.load(std::memory_order_seq_cst)) sleep();
    waker_->disarm();
    for (auto& engine : engines_) engine->disarm();
  }
  for (auto& poller : pollers_) poller->stop();
  io_->drain();  // reads and writes under way end before the engines' memory goes
}

}  // namespace dualpath
