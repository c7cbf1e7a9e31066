// READ and WRITE: whole blocks between the store and a buffer, over the node's storage link.
#include <errno.h>

#include <algorithm>

#include "transfer/engine.h"

namespace dualpath {
namespace {

// Blocks issued before others get their turn: sealing and checking them takes the thread's time.
constexpr uint64_t kBlocksPerTurn = 8;
constexpr uint64_t kBytesPerTurn = 2 << 20;
constexpr uint64_t kMaxOvertaken_ns = 2'000'000'000;

dp_call storage_call(const BlockOp& op) {
  switch (op.call) {
    case BlockCall::kOpen:
    case BlockCall::kOpenDirectory:
      return DP_CALL_OPEN;
    case BlockCall::kTransfer:
      return op.write ? DP_CALL_WRITE : DP_CALL_READ;
    case BlockCall::kSync:
    case BlockCall::kSyncDirectory:
      return DP_CALL_FSYNC;
    case BlockCall::kPublish:
      return DP_CALL_RENAME;
    case BlockCall::kClose:
      return op.write ? DP_CALL_WRITE : DP_CALL_READ;
    case BlockCall::kRemove:
      break;
  }
  return DP_CALL_NONE;
}

}  // namespace

bool TransferEngine::turn_blocks(Active& active, uint64_t now, BlockIo& io) {
  const dp_descriptor& d = active.d;
  if (active.next_step != 0) return false;  // everything is issued
  if (!active.step_open && !open_blocks(active, now)) return false;
  RateLink* link = (d.op == DP_OP_READ ? options_.links.storage_read : options_.links.storage_write).get();
  bool moved = false;
  const uint64_t file_bytes = options_.store->format().file_bytes();
  const uint64_t most = std::clamp<uint64_t>(kBytesPerTurn / file_bytes, 1, kBlocksPerTurn);
  for (uint64_t i = 0; i < most && active.cursor < d.list_count; i++) {
    if (link != nullptr && !link->accepts(now, options_.storage_lookahead_ns)) {
      next_link_ns_ = std::min(next_link_ns_, link->free_at() - options_.storage_lookahead_ns);
      statistics_.waits_link.fetch_add(1, std::memory_order_relaxed);
      break;
    }
    if (!start_block(active, now, io)) break;
    moved = true;
    if (active.program == nullptr || active.program->record.status != DP_ERROR_NONE) return true;
  }
  if (active.cursor == d.list_count) {
    active.next_step = 1;
    if (d.list_count == 0) {
      active.in_flight++;
      block_done(active);
      moved = true;
    }
  }
  return moved;
}

bool TransferEngine::open_blocks(Active& active, uint64_t now) {
  if (!waits_hold(active.d, 0) || !owe_event(active.d)) return false;
  active.step_open = true;
  active.ready_ns = now;
  return true;
}

// Writes go by what is left of them: one request's new block does not wait for another's whole prompt. Who
// has waited for kMaxOvertaken_ns is not overtaken any more.
TransferEngine::Active* TransferEngine::first_to_write(Active* best, Active& active, uint64_t now) {
  if (active.next_step != 0) return best;  // everything is issued
  if (!active.step_open && !open_blocks(active, now)) return best;
  if (best == nullptr) return &active;
  const bool best_waits = now - best->ready_ns > kMaxOvertaken_ns;
  const bool active_waits = now - active.ready_ns > kMaxOvertaken_ns;
  if (best_waits != active_waits) return best_waits ? best : &active;
  if (best_waits) return active.ready_ns < best->ready_ns ? &active : best;
  return active.d.list_count - active.cursor < best->d.list_count - best->cursor ? &active : best;
}

bool TransferEngine::start_block(Active& active, uint64_t now, BlockIo& io) {
  const dp_descriptor& d = active.d;
  const bool read = d.op == DP_OP_READ;
  const uint32_t slot = read_once(door().slots()[(read ? d.dst_list : d.src_list) + active.cursor]);
  const store::BlockKey key = read_once(door().keys()[(read ? d.src_list : d.dst_list) + active.cursor]);
  const auto& buffer = *endpoint_->geometries().find(read ? d.dst_geometry : d.src_geometry);
  if (slot >= buffer->slots()) {
    fail(*active.program, &active, DP_ERROR_INVALID, active.cursor);
    return true;
  }
  store::BlockStore& store = *options_.store;
  BlockOp* op = io.acquire();
  if (op == nullptr) {
    statistics_.waits_queue.fetch_add(1, std::memory_order_relaxed);
    return false;
  }
  if (!read && store.indexed(key)) {  // the same key is the same bytes
    io.release(op);
    statistics_.write_skipped_blocks.fetch_add(1, std::memory_order_relaxed);
    active.cursor++;
    active.in_flight++;
    block_done(active);
    return true;
  }
  use_memory(read ? d.dst_geometry : d.src_geometry, io);
  op->write = !read;
  op->durable = options_.durable_writes;
  op->directory_fd = store.root_fd();
  op->buffer = buffer->slot(slot);
  op->bytes = store.format().file_bytes();
  op->owner = this;
  op->context = &active;
  op->index = active.cursor;
  op->key = key.bytes;
  if (read) {
    store.block_path(key, op->path);
  } else {
    store.format().seal(op->buffer, key);
    op->settled = store.settled_position();
    store.temp_path(op->path);
    store.block_path(key, op->final_path);
  }
  RateLink* link = (read ? options_.links.storage_read : options_.links.storage_write).get();
  if (link != nullptr) op->due_ns = link->reserve(op->bytes, now);
  const uint64_t delay_ns =
      read && faults_ != nullptr ? faults_->read_delay_ns.load(std::memory_order_relaxed) : 0;
  if (delay_ns != 0) op->due_ns = std::max(op->due_ns, now) + delay_ns;
  if (read) store.pin(key);  // until finish_block
  active.cursor++;
  active.in_flight++;
  op->direct = direct_io_;
  op->offload = !store.local();
  io.start(op);
  return true;
}

// The arenas of a geometry are registered when storage first needs them.
void TransferEngine::use_memory(uint32_t geometry, BlockIo& io) {
  if (used_by_storage_[geometry]) return;
  used_by_storage_.set(geometry);
  const auto& memory = *endpoint_->geometries().find(geometry);
  memory->for_each_arena([&](const std::shared_ptr<Arena>& arena) { io.add_arena(arena); });
}

void TransferEngine::leave(BlockIo& io) {
  for (uint32_t id = 0; id < GeometryTable::kMax; id++) {
    if (!used_by_storage_[id]) continue;
    const auto& memory = *endpoint_->geometries().find(id);
    memory->for_each_arena([&](const std::shared_ptr<Arena>& arena) { io.drop_arena(arena.get()); });
  }
  used_by_storage_.reset();
  for (const auto& transport : transports_) transport->leave();
  transports_.clear();
}

void TransferEngine::finished(BlockOp* op, uint64_t now, BlockIo& io) {
  if (op->error == 0 && op->due_ns > now) {
    timers_.push(Timer{op->due_ns, nullptr, op, 0, 0, 0});
  } else {
    finish_block(op, io);
  }
}

void TransferEngine::finish_block(BlockOp* op, BlockIo& io) {
  Active& active = *static_cast<Active*>(op->context);
  if (!op->write) options_.store->unpin(store::BlockKey{op->key});
  const bool good = judge_block(*op, active);
  const uint64_t bytes = op->done;
  const bool existed = op->existed;
  const bool registered = op->registered;
  io.release(op);
  if (!good) {
    active.in_flight--;
    return;
  }
  if (existed) {
    statistics_.write_skipped_blocks.fetch_add(1, std::memory_order_relaxed);
    block_done(active);
    return;
  }
  if (registered) statistics_.registered_bytes.fetch_add(bytes, std::memory_order_relaxed);
  active.program->record.bytes_moved += bytes;
  const bool read = active.d.op == DP_OP_READ;
  (read ? statistics_.read_bytes : statistics_.write_bytes).fetch_add(bytes, std::memory_order_relaxed);
  (read ? statistics_.read_blocks : statistics_.write_blocks).fetch_add(1, std::memory_order_relaxed);
  block_done(active);
}

// Whether the operation did what it should; if not, the program fails and the store learns of it.
bool TransferEngine::judge_block(const BlockOp& op, Active& active) {
  store::BlockStore& store = *options_.store;
  const store::BlockKey key{op.key};
  if (op.write) {
    if (op.error != 0) {
      if (op.error == ENOSPC || op.error == EDQUOT) store.no_space();
      fail_block(op, active, DP_ERROR_STORAGE);
      return false;
    }
    // Another process was first: look-ups shall know its block.
    if (op.existed) {
      store.longest_prefix(&key, 1);
    } else {
      store.publish(key, op.settled, active.d.first_block + op.index);
    }
    return true;
  }
  const store::BlockVerdict verdict =
      op.error == 0 ? store.format().verify(op.buffer, op.done, key) : store::BlockVerdict{};
  const bool accept = faults_ != nullptr && faults_->accept_bad_blocks.load(std::memory_order_relaxed) != 0;
  if (op.error == 0 && (verdict.ok() || accept)) return true;
  if (op.error != 0 && op.error != ENOENT) {
    fail_block(op, active, DP_ERROR_STORAGE);
    return false;
  }
  statistics_.bad_blocks.fetch_add(1, std::memory_order_relaxed);
  if (op.error == ENOENT) {
    store.forget(key);
  } else {
    store.quarantine(key, verdict.fault);
  }
  fail_block(op, active, DP_ERROR_BAD_BLOCK);
  return false;
}

// Which call on which block's file failed, where in it.
void TransferEngine::fail_block(const BlockOp& op, Active& active, dp_error error) {
  dp_record& record = active.program->record;
  fail(*active.program, &active, error, op.index, op.error);
  if (record.error_index != active.index || record.error_block != op.index) return;
  record.error_errno = op.error;
  record.error_call = op.error == 0 ? DP_CALL_VERIFY : storage_call(op);
  record.error_offset = static_cast<uint32_t>(op.done);
  record.error_bytes = static_cast<uint32_t>(op.bytes);
}

void TransferEngine::block_done(Active& active) {
  const dp_descriptor& d = active.d;
  Program& program = *active.program;
  active.in_flight--;
  const bool none = d.list_count == 0;
  if (!none) active.blocks_done++;
  const bool all = active.blocks_done == d.list_count;
  if (program.record.status == DP_ERROR_NONE) {
    for (const dp_signal& signal : d.signal) {
      if (signal.counter == DP_NONE) continue;
      const bool ordered = signal.mode == DP_SIGNAL_ORDERED;
      if (ordered ? !all : none) continue;
      if (!raise(active, signal, signal.counter, ordered ? signal.value + 1 : signal.value)) break;
    }
    door().notify();
  }
  if (!all) return;
  if (active.step_open) post_event(active, 0);
  retire(active);
}

}  // namespace dualpath
