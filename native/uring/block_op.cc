#include "uring/block_op.h"

#include <errno.h>
#include <string.h>

#include <algorithm>

namespace dualpath {
namespace {

constexpr size_t kPage = 4096;  // direct transfers begin on whole pages
constexpr uint8_t kMaxRetries = 16;

void append(BlockOp& op, BlockCall call) { op.chain[op.chain_calls++] = call; }

size_t injected_limit(const BlockOp& op, const FaultPlan& faults) {
  const auto& limit = op.write ? faults.short_write_bytes : faults.short_read_bytes;
  size_t most = limit.load(std::memory_order_relaxed);
  if (most != 0 && op.direct) most = std::max(kPage, most / kPage * kPage);
  return most;
}

// Nothing of the file itself is left to do by then: in Linux 6.1 a rename that fails does not cancel what is
// linked to it (io_uring/fs.c: no req_set_fail).
void append_publish(BlockOp& op) {
  append(op, BlockCall::kPublish);
  if (!op.durable) return;
  append(op, BlockCall::kOpenDirectory);
  append(op, BlockCall::kSyncDirectory);
  append(op, BlockCall::kClose);
}

// What follows a transfer that is complete.
void append_rest(BlockOp& op) {
  if (op.file != BlockOp::kOwnFile) return;
  if (op.write && op.durable) append(op, BlockCall::kSync);
  append(op, BlockCall::kClose);
  if (op.write) append_publish(op);
}

void append_transfer(BlockOp& op, FaultPlan* faults) {
  op.transfer_bytes = op.bytes - op.at;
  op.injected_errno = 0;
  if (faults != nullptr) {
    const size_t most = injected_limit(op, *faults);
    if (most != 0) op.transfer_bytes = std::min(op.transfer_bytes, most);
    auto& countdown = op.write ? faults->write_error_after : faults->read_error_after;
    if (FaultPlan::strikes(countdown))
      op.injected_errno = op.write ? faults->write_errno : faults->read_errno;
  }
  append(op, BlockCall::kTransfer);
  if (op.injected_errno == 0 && op.at + op.transfer_bytes == op.bytes) append_rest(op);
}

// The directory of final_path, whose entry must be on disk too.
void set_directory_path(BlockOp& op) {
  const char* slash = strrchr(op.final_path, '/');
  const size_t bytes = slash == nullptr ? 0 : static_cast<size_t>(slash - op.final_path);
  memcpy(op.directory_path, bytes == 0 ? "." : op.final_path, bytes == 0 ? 1 : bytes);
  op.directory_path[bytes == 0 ? 1 : bytes] = '\0';
}

void did(BlockOp& op, BlockCall call) {
  switch (call) {
    case BlockCall::kOpen:
      op.open = true;
      op.created = op.write;
      break;
    case BlockCall::kOpenDirectory:
      op.open = true;
      break;
    case BlockCall::kTransfer:
      op.done = std::max(op.done, op.at + op.transfer_bytes);
      break;
    case BlockCall::kPublish:
      op.published = true;
      break;
    case BlockCall::kClose:
      op.open = false;
      break;
    case BlockCall::kRemove:
      op.created = false;
      break;
    case BlockCall::kSync:
    case BlockCall::kSyncDirectory:
      break;
  }
}

// Closes what is open and removes what was not published; then the operation has ended.
bool end(BlockOp& op) {
  op.ending = true;
  if (op.open) {
    append(op, BlockCall::kClose);
  } else if (op.created && !op.published) {
    append(op, BlockCall::kRemove);
  }
  return op.chain_calls == 0;
}

bool fail(BlockOp& op, BlockCall call, int error) {
  op.call = call;
  op.error = error;
  return end(op);
}

// A transfer that moved less than it should, failed, or is the last call of its chain.
bool transferred(BlockOp& op, int result, FaultPlan* faults) {
  if (op.injected_errno != 0) result = -op.injected_errno;
  if (result == -EINTR || result == -EAGAIN) {
    if (op.retries++ == kMaxRetries) return fail(op, BlockCall::kTransfer, -result);
    append_transfer(op, faults);
    return false;
  }
  if (result < 0) return fail(op, BlockCall::kTransfer, -result);
  const size_t reached = op.at + static_cast<size_t>(result);
  const bool progress = reached > op.done;
  op.done = std::max(op.done, reached);
  if (op.done == op.bytes) {
    append_rest(op);
    return op.chain_calls == 0;
  }
  if (!progress) {
    // The end of the file. A write of nothing has no such excuse, and no errno either.
    return op.write ? fail(op, BlockCall::kTransfer, EIO) : end(op);
  }
  // A direct transfer that stopped inside a page goes on from its beginning: offsets must be aligned.
  op.at = op.direct ? op.done / kPage * kPage : op.done;
  append_transfer(op, faults);
  return false;
}

bool published(BlockOp& op, int result) {
  if (result == -EEXIST) {
    op.existed = true;
    return end(op);
  }
  if (result == -EINVAL && op.exclusive) {  // a file system that cannot rename so
    op.exclusive = false;
    append_publish(op);
    return false;
  }
  return fail(op, BlockCall::kPublish, -result);
}

}  // namespace

void begin_block(BlockOp& op, FaultPlan* faults) {
  op.call = BlockCall::kOpen;
  op.error = 0;
  op.done = op.at = 0;
  op.existed = op.registered = false;
  op.retries = 0;
  op.exclusive = true;
  op.open = op.created = op.published = op.ending = false;
  op.fd = -1;
  op.chain_calls = 0;
  if (op.write && op.durable) set_directory_path(op);
  if (op.file == BlockOp::kOwnFile) append(op, BlockCall::kOpen);
  append_transfer(op, faults);
}

bool advance_block(BlockOp& op, unsigned index, int result, FaultPlan* faults) {
  for (unsigned i = 0; i < index; i++) did(op, op.chain[i]);
  const BlockCall call = op.chain[index];
  op.chain_calls = 0;
  if (op.ending) {
    did(op, call);  // or could not: there is nothing else to try
    return end(op);
  }
  if (call == BlockCall::kTransfer) return transferred(op, result, faults);
  if (result >= 0) {
    did(op, call);
    return end(op);  // the chain's last
  }
  if (call == BlockCall::kPublish) return published(op, result);
  if (call == BlockCall::kClose) {
    if (result != -EAGAIN) did(op, call);  // else it was never made, and end() makes it
    if (!op.write) return end(op);         // what was to be read has been
  }
  return fail(op, call, -result);
}

}  // namespace dualpath
