#include "uring/block_io.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>

#include <algorithm>
#include <string>

namespace dualpath {
namespace {

constexpr uint32_t kPage = 4096;  // direct reads begin and end on whole pages, but for the end of a file

}  // namespace

Status BlockIo::create(FaultPlan* faults, std::unique_ptr<BlockIo>* out) {
  auto io = std::unique_ptr<BlockIo>(new BlockIo());
  io->faults_ = faults;
  // An operation has one request under way, and perhaps the close of the file before it.
  io_uring_params params{};
  params.flags = IORING_SETUP_CLAMP;
  const int rc = io_uring_queue_init_params(2 * kMaxOps, &io->ring_, &params);
  if (rc < 0) {
    std::string why = std::string("io_uring is refused: ") + strerror(-rc);
    if (rc == -EPERM) {
      why += "; allow it in the container's seccomp profile, or set sysctl kernel.io_uring_disabled=0";
    } else if (rc == -ENOSYS) {
      why += "; a kernel with CONFIG_IO_URING is needed";
    }
    return Status::error("STORAGE_IO", why, -rc);
  }
  io->ready_ = true;
  io->free_.reserve(kMaxOps);
  for (BlockOp& op : io->ops_) io->free_.push_back(&op);
  *out = std::move(io);
  return {};
}

BlockIo::~BlockIo() {
  // Buffers belong to operations until these end: wait for every one.
  while (in_flight_ > 0) {
    submit();
    io_uring_cqe* cqe;
    if (io_uring_wait_cqe(&ring_, &cqe) < 0) continue;
    reap([this](BlockOp* op) { release(op); });
  }
  if (ready_) {
    submit();
    io_uring_queue_exit(&ring_);
  }
}

BlockOp* BlockIo::acquire() {
  if (free_.empty()) return nullptr;
  BlockOp* op = free_.back();
  free_.pop_back();
  op->error = 0;
  op->fd = -1;
  op->done = 0;
  op->durable = false;
  op->due_ns = 0;
  op->call = BlockCall::kOpen;
  return op;
}

void BlockIo::release(BlockOp* op) { free_.push_back(op); }

io_uring_sqe* BlockIo::sqe() {
  io_uring_sqe* entry = io_uring_get_sqe(&ring_);
  while (entry == nullptr) {  // closes can fill the queue; submitting empties it
    io_uring_submit(&ring_);
    entry = io_uring_get_sqe(&ring_);
  }
  return entry;
}

void BlockIo::submit() {
  if (io_uring_sq_ready(&ring_) > 0) io_uring_submit(&ring_);
}

void BlockIo::start(BlockOp* op, bool direct) {
  op->direct = direct;
  in_flight_++;
  const int flags =
      (op->write ? O_WRONLY | O_CREAT | O_EXCL : O_RDONLY) | O_CLOEXEC | O_NOFOLLOW | (direct ? O_DIRECT : 0);
  io_uring_sqe* entry = sqe();
  io_uring_prep_openat(entry, op->directory_fd, op->path, flags, 0644);
  io_uring_sqe_set_data(entry, op);
}

void BlockIo::prepare_transfer(BlockOp* op) {
  op->call = BlockCall::kTransfer;
  size_t bytes = op->bytes - op->done;
  uint32_t most =
      faults_ != nullptr && !op->write ? faults_->short_read_bytes.load(std::memory_order_relaxed) : 0;
  if (most != 0 && op->direct) most = std::max(kPage, most / kPage * kPage);
  if (most != 0) bytes = std::min<size_t>(bytes, most);
  io_uring_sqe* entry = sqe();
  if (op->write) {
    io_uring_prep_write(entry, op->fd, op->buffer + op->done, static_cast<unsigned>(bytes), op->done);
  } else {
    io_uring_prep_read(entry, op->fd, op->buffer + op->done, static_cast<unsigned>(bytes), op->done);
  }
  io_uring_sqe_set_data(entry, op);
}

void BlockIo::prepare_publish(BlockOp* op) {
  op->call = BlockCall::kPublish;
  io_uring_sqe* entry = sqe();
  io_uring_prep_renameat(entry, op->directory_fd, op->path, op->directory_fd, op->final_path, 0);
  io_uring_sqe_set_data(entry, op);
}

// Nobody waits for a close: the file is published or read by then.
void BlockIo::prepare_close(BlockOp* op) {
  io_uring_sqe* entry = sqe();
  io_uring_prep_close(entry, op->fd);
  io_uring_sqe_set_data(entry, nullptr);
  op->fd = -1;
}

bool BlockIo::fail(BlockOp* op, int error) {
  op->error = error;
  if (op->fd >= 0) prepare_close(op);
  if (op->write && op->call != BlockCall::kOpen) {
    io_uring_sqe* entry = sqe();
    io_uring_prep_unlinkat(entry, op->directory_fd, op->path, 0);
    io_uring_sqe_set_data(entry, nullptr);
    submit();  // the path is the operation's: the kernel must have read it before that is reused
  }
  return true;
}

// One request of `op` has ended with `result`; true when the operation as a whole has ended.
bool BlockIo::advance(BlockOp* op, int result) {
  if (result < 0 && (result == -EINTR || result == -EAGAIN) && op->call == BlockCall::kTransfer) {
    prepare_transfer(op);
    return false;
  }
  if (result < 0) return fail(op, -result);
  switch (op->call) {
    case BlockCall::kOpen:
      op->fd = result;
      prepare_transfer(op);
      return false;
    case BlockCall::kTransfer:
      if (faults_ != nullptr) {
        auto& countdown = op->write ? faults_->write_error_after : faults_->read_error_after;
        if (FaultPlan::strikes(countdown))
          return fail(op, op->write ? faults_->write_errno : faults_->read_errno);
      }
      op->done += static_cast<size_t>(result);
      if (op->done < op->bytes && result > 0 && !(op->direct && op->done % kPage != 0)) {
        prepare_transfer(op);
        return false;
      }
      if (!op->write) {
        prepare_close(op);
        return true;
      }
      if (op->done < op->bytes) return fail(op, ENOSPC);  // a write of nothing: no room and no errno
      if (op->durable) {
        op->call = BlockCall::kSync;
        io_uring_sqe* entry = sqe();
        io_uring_prep_fsync(entry, op->fd, 0);
        io_uring_sqe_set_data(entry, op);
        return false;
      }
      prepare_publish(op);
      return false;
    case BlockCall::kSync:
      prepare_publish(op);
      return false;
    case BlockCall::kPublish:
      prepare_close(op);
      return true;
  }
  return true;
}

}  // namespace dualpath
