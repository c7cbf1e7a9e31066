#include "uring/block_io.h"

#include <errno.h>

#include <algorithm>

#include "uring/pool_io.h"
#include "uring/uring_io.h"

namespace dualpath {

const char* storage_io_name(StorageIo io) {
  return io == StorageIo::kThreadPool ? "thread_pool" : "io_uring";
}

Status BlockIo::create(StorageIo wanted, FaultPlan* faults, std::unique_ptr<BlockIo>* out) {
  if (wanted == StorageIo::kThreadPool) return PoolIo::create(faults, out);
  const Status uring = UringIo::create(faults, out);
  if (uring.ok() || wanted == StorageIo::kUring) return uring;
  const Status pool = PoolIo::create(faults, out);
  if (pool.ok()) (*out)->facts_.refused = uring.message;
  return pool;
}

BlockIo::BlockIo(StorageIo io, FaultPlan* faults) : faults_(faults) {
  facts_.io = io;
  free_.reserve(kMaxOps);
  for (unsigned i = 0; i < kMaxOps; i++) {
    ops_[i].place = static_cast<uint8_t>(i);
    free_.push_back(&ops_[i]);
  }
  arenas_.reserve(kMaxArenas);
  free_buffers_.reserve(kMaxArenas);
  for (unsigned i = kMaxArenas; i > 0; i--) free_buffers_.push_back(i - 1);
}

BlockOp* BlockIo::acquire() {
  if (free_.empty()) return nullptr;
  BlockOp* op = free_.back();
  free_.pop_back();
  op->write = op->durable = op->direct = op->offload = false;
  op->file = BlockOp::kOwnFile;
  op->offset = 0;
  op->due_ns = 0;
  return op;
}

void BlockIo::start(BlockOp* op) {
  begin_block(*op, faults_);
  op->exclusive = exclusive_renames_;
  op->buffer_index = buffer_index(op->buffer, op->bytes);
  op->registered = op->buffer_index >= 0;
  in_flight_++;
  issue(op);
}

void BlockIo::drain() {
  while (in_flight_ > 0) {
    submit_and_wait(100'000'000);
    reap([this](BlockOp* op) { release(op); });
  }
}

int BlockIo::buffer_index(const std::byte* memory, size_t bytes) const {
  const auto after = std::upper_bound(
      arenas_.begin(), arenas_.end(), memory,
      [](const std::byte* address, const User& user) { return address < user.arena->base(); });
  if (after == arenas_.begin()) return -1;
  const User& user = *std::prev(after);
  const size_t offset = static_cast<size_t>(memory - user.arena->base());
  return offset < user.arena->bytes() && bytes <= user.arena->bytes() - offset ? user.index : -1;
}

bool BlockIo::add_arena(const std::shared_ptr<Arena>& arena) {
  const auto same = std::find_if(arenas_.begin(), arenas_.end(),
                                 [&](const User& user) { return user.arena.get() == arena.get(); });
  if (same != arenas_.end()) {
    same->users++;
    return same->index >= 0;
  }
  int error = free_buffers_.empty() ? ENOBUFS : 0;
  if (error == 0) {
    error = faults_ == nullptr ? 0 : faults_->register_errno.load(std::memory_order_relaxed);
    if (error == 0) error = register_memory(free_buffers_.back(), arena->base(), arena->bytes());
  }
  User user{arena, 1, -1};
  if (error == 0) {
    user.index = static_cast<int>(free_buffers_.back());
    free_buffers_.pop_back();
    facts_.registered_arenas.fetch_add(1, std::memory_order_relaxed);
  } else {
    facts_.register_errno.store(error, std::memory_order_relaxed);
    facts_.unregistered_arenas.fetch_add(1, std::memory_order_relaxed);
  }
  const auto place =
      std::upper_bound(arenas_.begin(), arenas_.end(), arena->base(),
                       [](const std::byte* base, const User& other) { return base < other.arena->base(); });
  arenas_.insert(place, std::move(user));
  return error == 0;
}

void BlockIo::drop_arena(const Arena* arena) {
  const auto found = std::find_if(arenas_.begin(), arenas_.end(),
                                  [&](const User& user) { return user.arena.get() == arena; });
  if (found == arenas_.end() || --found->users != 0) return;
  if (found->index >= 0) {
    unregister_memory(static_cast<unsigned>(found->index));
    free_buffers_.push_back(static_cast<unsigned>(found->index));
    facts_.registered_arenas.fetch_sub(1, std::memory_order_relaxed);
  } else {
    facts_.unregistered_arenas.fetch_sub(1, std::memory_order_relaxed);
  }
  arenas_.erase(found);
}

}  // namespace dualpath
