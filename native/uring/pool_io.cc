#include "uring/pool_io.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <system_error>

namespace dualpath {

PoolIo::PoolIo(FaultPlan* faults) : BlockIo(StorageIo::kThreadPool, faults) {
  files_.fill(-1);
  for (auto* list : {&issued_, &stopped_, &finished_}) list->reserve(kMaxOps);
}

Status PoolIo::create(FaultPlan* faults, std::unique_ptr<BlockIo>* out) {
  auto io = std::unique_ptr<PoolIo>(new PoolIo(faults));
  io->wake_fd_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (io->wake_fd_ < 0) {
    return Status::error("STORAGE_IO", "storage threads: no eventfd: raise 'ulimit -n'", errno);
  }
  io->threads_.reserve(kThreads);
  try {
    for (unsigned i = 0; i < kThreads; i++) io->threads_.emplace_back([raw = io.get()] { raw->run(); });
  } catch (const std::system_error& error) {
    return Status::error("STORAGE_IO",
                         "storage threads: " + std::to_string(kThreads) +
                             " wanted: " + strerror(error.code().value()) + "; raise 'ulimit -u'",
                         error.code().value());
  }
  *out = std::move(io);
  return {};
}

PoolIo::~PoolIo() {
  drain();
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
  }
  work_.notify_all();
  for (std::thread& thread : threads_) thread.join();
  for (const int fd : files_) {
    if (fd >= 0) close(fd);
  }
  if (wake_fd_ >= 0) close(wake_fd_);
}

int PoolIo::register_memory(unsigned, std::byte*, size_t) { return EOPNOTSUPP; }

int PoolIo::add_file(int fd) {
  const auto free = std::find(files_.begin(), files_.end(), -1);
  if (free == files_.end()) return -ENFILE;
  *free = fcntl(fd, F_DUPFD_CLOEXEC, 0);
  return *free < 0 ? -errno : static_cast<int>(free - files_.begin());
}

void PoolIo::drop_file(int file) {
  close(files_[static_cast<size_t>(file)]);
  files_[static_cast<size_t>(file)] = -1;
}

void PoolIo::submit() {
  if (issued_.empty()) return;
  {
    std::lock_guard lock(mutex_);
    for (BlockOp* op : issued_) queue_[(queue_head_ + queue_count_++) % kMaxOps] = op;
  }
  if (issued_.size() == 1) {
    work_.notify_one();
  } else {
    work_.notify_all();
  }
  issued_.clear();
}

BlockOp* PoolIo::next_stopped() {
  if (stopped_.empty()) {
    uint64_t count;
    if (read(wake_fd_, &count, sizeof count) != sizeof count) return nullptr;
    std::lock_guard lock(mutex_);
    stopped_.swap(finished_);
  }
  if (stopped_.empty()) return nullptr;
  BlockOp* op = stopped_.back();
  stopped_.pop_back();
  return op;
}

void PoolIo::submit_and_wait(uint64_t timeout_ns) {
  submit();
  if (!stopped_.empty()) return;
  timeout_ns = std::min(timeout_ns, kLongestSleep_ns);
  pollfd fds[3] = {{wake_fd_, POLLIN, 0}, {watched_fds_[0], POLLIN, 0}, {watched_fds_[1], POLLIN, 0}};
  const timespec timeout{static_cast<time_t>(timeout_ns / 1'000'000'000u),
                         static_cast<long>(timeout_ns % 1'000'000'000u)};
  ppoll(fds, 3, &timeout, nullptr);  // -1 is passed over
}

void PoolIo::run() {
  prctl(PR_SET_NAME, "dp-storage", 0UL, 0UL, 0UL);
  std::unique_lock lock(mutex_);
  while (true) {
    work_.wait(lock, [this] { return stop_ || queue_count_ > 0; });
    if (queue_count_ == 0) return;
    BlockOp* op = queue_[queue_head_];
    queue_head_ = (queue_head_ + 1) % kMaxOps;
    queue_count_--;
    lock.unlock();
    make_chain(*op);
    lock.lock();
    const bool first = finished_.empty();
    finished_.push_back(op);
    if (!first) continue;
    const uint64_t one = 1;
    [[maybe_unused]] ssize_t n = write(wake_fd_, &one, sizeof one);
  }
}

void PoolIo::make_chain(BlockOp& op) {
  for (uint8_t i = 0; i < op.chain_calls; i++) {
    const int result = make_call(op, op.chain[i]);
    op.failed_index = i;
    op.result = result;
    if (result < 0) return;
    if (op.chain[i] == BlockCall::kTransfer && static_cast<size_t>(result) != op.transfer_bytes) return;
  }
}

int PoolIo::transfer(BlockOp& op) {
  const int fd = op.file == BlockOp::kOwnFile ? op.fd : files_[static_cast<size_t>(op.file)];
  const iovec memory{op.buffer + op.at, op.transfer_bytes};
  const off_t offset = static_cast<off_t>(op.offset + op.at);
  return static_cast<int>(op.write ? pwritev(fd, &memory, 1, offset) : preadv(fd, &memory, 1, offset));
}

// At least 0, or -errno.
int PoolIo::make_call(BlockOp& op, BlockCall call) {
  int rc = 0;
  switch (call) {
    case BlockCall::kOpen: {
      const int flags = (op.write ? O_WRONLY | O_CREAT | O_EXCL : O_RDONLY) | O_CLOEXEC | O_NOFOLLOW;
      rc = op.fd = openat(op.directory_fd, op.path, flags | (op.direct ? O_DIRECT : 0), 0644);
      break;
    }
    case BlockCall::kTransfer:
      rc = transfer(op);
      break;
    case BlockCall::kSync:
    case BlockCall::kSyncDirectory:
      rc = fsync(op.fd);
      break;
    case BlockCall::kPublish:
      if (op.exclusive && refuses_exclusive_renames(faults_)) return -EINVAL;
      rc = renameat2(op.directory_fd, op.path, op.directory_fd, op.final_path,
                     op.exclusive ? RENAME_NOREPLACE : 0);
      break;
    case BlockCall::kOpenDirectory:
      rc = op.fd = openat(op.directory_fd, op.directory_path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
      break;
    case BlockCall::kClose:
      rc = close(op.fd);
      op.fd = -1;
      break;
    case BlockCall::kRemove:
      rc = unlinkat(op.directory_fd, op.path, 0);
      break;
  }
  return rc < 0 ? -errno : rc;
}

}  // namespace dualpath
