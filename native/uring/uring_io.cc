#include "uring/uring_io.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>

#include <algorithm>
#include <string>

namespace dualpath {
namespace {

constexpr unsigned kEntries = BlockIo::kMaxOps * BlockOp::kMaxCalls + 1;  // a chain of every operation
// Chains given to the kernel at once. Who collects more lets the device wait meanwhile: random reads of 4 KiB
// at a depth of 32 lose 15 %, while single ones cost a third more CPU.
constexpr unsigned kSubmitBatch = 4;

constexpr unsigned kMaxFailures = 1000;  // with kRetry_ns in between: a second
constexpr uint64_t kRetry_ns = 1'000'000;

constexpr unsigned kCooperative = IORING_SETUP_CLAMP | IORING_SETUP_SUBMIT_ALL | IORING_SETUP_R_DISABLED |
                                  IORING_SETUP_COOP_TASKRUN | IORING_SETUP_TASKRUN_FLAG;  // Linux 5.19

Status refused(const char* call, int error) {
  std::string why = std::string("io_uring is refused: ") + call + ": " + strerror(error);
  if (error == EPERM || error == EACCES) {
    why += "; allow it in the container's seccomp profile, or set sysctl kernel.io_uring_disabled=0";
  } else if (error == ENOSYS || error == EINVAL) {
    why += "; Linux 5.19 or later with CONFIG_IO_URING is needed";
  } else if (error == EMFILE || error == ENFILE) {
    why += "; raise 'ulimit -n'";
  } else if (error == ENOMEM) {
    why += "; raise 'ulimit -l'";
  }
  return Status::error("STORAGE_IO", why, error);
}

uint64_t tag(const BlockOp& op, unsigned index) {
  return (static_cast<uint64_t>(op.place) + 1) * BlockOp::kMaxCalls + index;
}

}  // namespace

UringIo::UringIo(FaultPlan* faults) : BlockIo(StorageIo::kUring, faults) { stopped_.reserve(kMaxOps); }

Status UringIo::create(FaultPlan* faults, std::unique_ptr<BlockIo>* out) {
  auto io = std::unique_ptr<UringIo>(new UringIo(faults));
  const Status status = io->set_up();
  if (status.ok()) *out = std::move(io);
  return status;
}

Status UringIo::set_up() {
  io_uring_params params{};
  params.flags = kCooperative;
  int rc = io_uring_queue_init_params(kEntries, &ring_, &params);
  if (rc < 0) return refused("io_uring_setup", -rc);
  ready_ = true;
  // A linked read must find the file that the request before it has opened.
  if ((params.features & IORING_FEAT_LINKED_FILE) == 0) return refused("linked files", EINVAL);
  rc = io_uring_register_files_sparse(&ring_, kMaxOps + kMaxFiles);
  if (rc < 0) return refused("registering a table of files", -rc);
  rc = io_uring_register_buffers_sparse(&ring_, kMaxArenas);
  if (rc < 0) return refused("registering a table of buffers", -rc);
  return {};
}

UringIo::~UringIo() {
  drain();
  if (ready_) io_uring_queue_exit(&ring_);
}

// By the thread that will use the ring.
void UringIo::enable() {
  if (enabled_) return;
  enabled_ = true;
  if (const int rc = io_uring_enable_rings(&ring_); rc < 0) {
    fprintf(stderr, "dualpath: io_uring_enable_rings: %s\n", strerror(-rc));  // it has just been set up so
    abort();
  }
}

int UringIo::register_memory(unsigned index, std::byte* base, size_t bytes) {
  enable();
  const iovec memory{base, bytes};
  const __u64 no_tag = 0;
  const int rc = io_uring_register_buffers_update_tag(&ring_, index, &memory, &no_tag, 1);
  return rc == 1 ? 0 : rc < 0 ? -rc : EIO;
}

void UringIo::unregister_memory(unsigned index) {
  const iovec nothing{nullptr, 0};
  const __u64 no_tag = 0;
  io_uring_register_buffers_update_tag(&ring_, index, &nothing, &no_tag, 1);
}

int UringIo::add_file(int fd) {
  enable();
  const auto free = std::find(files_.begin(), files_.end(), false);
  if (free == files_.end()) return -ENFILE;
  const int file = static_cast<int>(free - files_.begin());
  const int rc = io_uring_register_files_update(&ring_, kMaxOps + static_cast<unsigned>(file), &fd, 1);
  if (rc != 1) return rc < 0 ? rc : -EIO;
  *free = true;
  return file;
}

void UringIo::drop_file(int file) {
  const int none = -1;
  io_uring_register_files_update(&ring_, kMaxOps + static_cast<unsigned>(file), &none, 1);
  files_[static_cast<size_t>(file)] = false;
}

void UringIo::prepare_transfer(const BlockOp* op, int file, io_uring_sqe* entry) {
  std::byte* buffer = op->buffer + op->at;
  const unsigned bytes = static_cast<unsigned>(op->transfer_bytes);
  const uint64_t offset = op->offset + op->at;
  if (op->buffer_index < 0) {
    if (op->write) {
      io_uring_prep_write(entry, file, buffer, bytes, offset);
    } else {
      io_uring_prep_read(entry, file, buffer, bytes, offset);
    }
  } else if (op->write) {
    io_uring_prep_write_fixed(entry, file, buffer, bytes, offset, op->buffer_index);
  } else {
    io_uring_prep_read_fixed(entry, file, buffer, bytes, offset, op->buffer_index);
  }
  entry->flags |= IOSQE_FIXED_FILE;
}

void UringIo::prepare(BlockOp* op, BlockCall call, io_uring_sqe* entry) {
  const unsigned slot = op->file == BlockOp::kOwnFile ? op->place : kMaxOps + static_cast<unsigned>(op->file);
  const int file = static_cast<int>(slot);
  switch (call) {
    case BlockCall::kOpen: {
      const int flags = (op->write ? O_WRONLY | O_CREAT | O_EXCL : O_RDONLY) | O_NOFOLLOW;
      io_uring_prep_openat_direct(entry, op->directory_fd, op->path, flags | (op->direct ? O_DIRECT : 0),
                                  0644, slot);
      break;
    }
    case BlockCall::kTransfer:
      prepare_transfer(op, file, entry);
      break;
    case BlockCall::kSync:
    case BlockCall::kSyncDirectory:
      io_uring_prep_fsync(entry, file, 0);
      entry->flags |= IOSQE_FIXED_FILE;
      break;
    case BlockCall::kPublish: {
      const bool refused = op->exclusive && refuses_exclusive_renames(faults_);
      const unsigned flags = op->exclusive ? RENAME_NOREPLACE : 0;
      io_uring_prep_renameat(entry, op->directory_fd, op->path, op->directory_fd, op->final_path,
                             refused ? flags | RENAME_EXCHANGE : flags);  // never together: EINVAL
      if (refused) entry->flags |= IOSQE_IO_HARDLINK;
      break;
    }
    case BlockCall::kOpenDirectory:
      io_uring_prep_openat_direct(entry, op->directory_fd, op->directory_path, O_RDONLY | O_DIRECTORY, 0,
                                  slot);
      break;
    case BlockCall::kClose:
      io_uring_prep_close_direct(entry, slot);
      break;
    case BlockCall::kRemove:
      io_uring_prep_unlinkat(entry, op->directory_fd, op->path, 0);
      break;
  }
}

void UringIo::add_call(BlockOp* op, unsigned index, unsigned flags) {
  io_uring_sqe* entry = io_uring_get_sqe(&ring_);  // never none: there is one for every call of every chain
  prepare(op, op->chain[index], entry);
  entry->flags |= flags;
  io_uring_sqe_set_data64(entry, tag(*op, index));
}

// Linux takes regular files of any file system for such as answer at once (io_uring/io_uring.c,
// __io_file_supports_nowait): a read of 9p waits for the server within the call that submits it, unless a
// worker is asked for; and of what is linked to another request Linux 6.1 does not hear that
// (io_req_task_submit).
void UringIo::issue(BlockOp* op) {
  op->failed_index = op->chain_calls;
  op->result = 0;
  op->pending = op->offload ? 1 : op->chain_calls;
  if (op->offload) add_call(op, 0, IOSQE_ASYNC);
  for (unsigned i = 0; !op->offload && i < op->chain_calls; i++) {
    add_call(op, i, i + 1u < op->chain_calls ? IOSQE_IO_LINK : 0);
  }
  if (++unsubmitted_ >= kSubmitBatch) submit();
}

// Requests taken, or -errno.
int UringIo::enter() {
  enable();
  if (faults_ == nullptr) return io_uring_submit(&ring_);
  if (faults_->submit_errors.load(std::memory_order_relaxed) > 0) {
    faults_->submit_errors.fetch_sub(1, std::memory_order_relaxed);
    return -faults_->submit_errno.load(std::memory_order_relaxed);
  }
  const unsigned most = faults_->submit_at_most.exchange(0, std::memory_order_relaxed);
  if (most == 0 || most >= io_uring_sq_ready(&ring_)) return io_uring_submit(&ring_);
  const unsigned tail = ring_.sq.sqe_tail;
  ring_.sq.sqe_tail = *ring_.sq.khead + most;
  const int rc = io_uring_submit(&ring_);
  ring_.sq.sqe_tail = tail;
  return rc;
}

void UringIo::submit() {
  unsubmitted_ = 0;
  const unsigned waiting = io_uring_sq_ready(&ring_);
  if (waiting == 0) return;
  settle(waiting, enter());
}

// What a submission of `waiting` requests came to: liburing's answer counts for why, not for how many.
void UringIo::settle(unsigned waiting, int rc) {
  const unsigned left = io_uring_sq_ready(&ring_);
  if (left == 0) {
    failures_ = 0;
    retry_ns_ = kNever;
    return;
  }
  retry_ns_ = now_ns() + kRetry_ns;
  if (left < waiting) {
    failures_ = 0;
    take_back(left, EAGAIN);
  } else if (rc != -EINTR && ++failures_ > kMaxFailures) {
    failures_ = 0;
    take_back(left, rc < 0 ? -rc : EAGAIN);
  }
}

// The kernel has not taken the last `entries` requests, and of the first of their chains perhaps a part. That
// chain stops where it was cut, the others are not made at all: an operation goes on with the error.
void UringIo::take_back(unsigned entries, int error) {
  const unsigned head = *ring_.sq.khead;
  for (unsigned i = 0; i < entries; i++) {
    const uint64_t data = ring_.sq.sqes[(head + i) & *ring_.sq.kring_mask].user_data;
    BlockOp& op = ops_[data / BlockOp::kMaxCalls - 1];
    if (answered(op, data % BlockOp::kMaxCalls, -error)) stopped_.push_back(&op);
  }
  ring_.sq.sqe_head = ring_.sq.sqe_tail = head;
  __atomic_store_n(ring_.sq.ktail, head, __ATOMIC_RELEASE);
  retry_ns_ = now_ns();
}

// One request of a chain has ended; true when all have. The first that failed or came short counts, what was
// linked to it is cancelled.
bool UringIo::answered(BlockOp& op, unsigned index, int result) {
  const bool whole = result >= 0 && (op.chain[index] != BlockCall::kTransfer ||
                                     static_cast<size_t>(result) == op.transfer_bytes);
  if ((!whole || index + 1u == op.chain_calls) && index < op.failed_index) {
    op.failed_index = static_cast<uint8_t>(index);
    op.result = result;
  } else if (op.offload) {
    add_call(&op, index + 1, IOSQE_ASYNC);
    unsubmitted_++;
    return false;
  }
  return --op.pending == 0;
}

BlockOp* UringIo::next_stopped() {
  if (!stopped_.empty()) {
    BlockOp* op = stopped_.back();
    stopped_.pop_back();
    return op;
  }
  io_uring_cqe* cqe;
  while (io_uring_peek_cqe(&ring_, &cqe) == 0) {
    const uint64_t data = io_uring_cqe_get_data64(cqe);
    const int result = cqe->res;
    io_uring_cqe_seen(&ring_, cqe);
    BlockOp& op = ops_[data / BlockOp::kMaxCalls - 1];
    if (answered(op, data % BlockOp::kMaxCalls, result)) return &op;
  }
  return nullptr;
}

// In ppoll, not in the ring: of multishot polls in a DEFER_TASKRUN ring wake-ups have been lost
// (Linux 6.18).
void UringIo::submit_and_wait(uint64_t timeout_ns) {
  enable();
  submit();
  if (!stopped_.empty() || io_uring_cq_ready(&ring_) > 0) return;
  timeout_ns = std::min(timeout_ns, io_uring_sq_ready(&ring_) > 0 ? kRetry_ns : kLongestSleep_ns);
  pollfd fds[3] = {{ring_.ring_fd, POLLIN, 0}, {watched_fds_[0], POLLIN, 0}, {watched_fds_[1], POLLIN, 0}};
  const timespec timeout{static_cast<time_t>(timeout_ns / 1'000'000'000u),
                         static_cast<long>(timeout_ns % 1'000'000'000u)};
  ppoll(fds, 3, &timeout, nullptr);  // -1 is passed over
}

}  // namespace dualpath
