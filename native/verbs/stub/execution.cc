// What the devices of the strict stub provider do by themselves: run requests, deliver completions.
#include <string.h>
#include <unistd.h>

#include <algorithm>

#include "verbs/stub/fabric.h"

namespace dualpath::verbs::stub {

void StubFabric::raise(StubContext& context, ibv_event_type type, void* element) {
  ibv_async_event event{};
  event.event_type = type;
  if (type == IBV_EVENT_CQ_ERR) {
    event.element.cq = static_cast<ibv_cq*>(element);
  } else if (type == IBV_EVENT_PORT_ERR || type == IBV_EVENT_PORT_ACTIVE) {
    event.element.port_num = 1;
  } else {
    event.element.qp = static_cast<ibv_qp*>(element);
  }
  context.events.push_back(event);
  const uint64_t one = 1;
  [[maybe_unused]] ssize_t n = write(context.base.async_fd, &one, sizeof one);
}

StubMr* StubFabric::find(uint32_t key, bool remote) {
  if ((key & 1) != (remote ? 1u : 0u)) return nullptr;
  const auto found = regions_.find(key / 2);
  return found == regions_.end() ? nullptr : found->second.get();
}

// Where the bytes lie; nullptr when the key does not allow it.
std::byte* StubFabric::resolve(const StubQp& qp, uint32_t key, bool remote, uint64_t address, uint64_t bytes,
                               int access) {
  StubMr* const mr = find(key, remote);
  if (mr == nullptr || mr->base.pd != qp.base.pd || (mr->access & access) != access) return nullptr;
  if (address < mr->iova || bytes > mr->base.length || address - mr->iova > mr->base.length - bytes)
    return nullptr;
  return mr->memory + (address - mr->iova);
}

namespace {

bool is_word(const std::byte* at, uint64_t bytes) {
  return bytes == 8 && reinterpret_cast<uintptr_t>(at) % 8 == 0;
}

// Eight aligned bytes are read and arrive together, as PCIe does it; others in any order.
void place(std::byte* to, std::byte* from, uint64_t bytes) {
  if (!is_word(to, bytes) || !is_word(from, bytes)) {
    memcpy(to, from, bytes);
    return;
  }
  const uint64_t word =
      std::atomic_ref<uint64_t>(*reinterpret_cast<uint64_t*>(from)).load(std::memory_order_acquire);
  std::atomic_ref<uint64_t>(*reinterpret_cast<uint64_t*>(to)).store(word, std::memory_order_release);
}

}  // namespace

// The local side of a request against `remote`: out of the local memory, or into it for a read. The first
// `bytes` bytes move. False when a local key does not allow it.
bool StubFabric::gather(StubQp& qp, const SendEntry& entry, std::byte* remote, uint64_t bytes, bool read) {
  const uint64_t slot = static_cast<uint64_t>(&entry - qp.sends.data());
  if ((entry.flags & IBV_SEND_INLINE) != 0) {
    place(remote, qp.inline_data.data() + slot * qp.cap.max_inline_data, bytes);
    return true;
  }
  const ibv_sge* const sges = qp.send_sges.data() + slot * qp.cap.max_send_sge;
  for (uint32_t i = 0; i < entry.sge_count; i++) {
    if (resolve(qp, sges[i].lkey, false, sges[i].addr, sges[i].length, read ? IBV_ACCESS_LOCAL_WRITE : 0) ==
        nullptr)
      return false;
  }
  for (uint32_t i = 0; i < entry.sge_count && bytes != 0; i++) {
    std::byte* const local = resolve(qp, sges[i].lkey, false, sges[i].addr, sges[i].length, 0);
    const uint64_t part = std::min<uint64_t>(bytes, sges[i].length);
    if (read) {
      memcpy(local, remote, part);
    } else {
      place(remote, local, part);
    }
    remote += part;
    bytes -= part;
  }
  return true;
}

// The other end, or why it cannot be reached.
StubQp* StubFabric::peer_of(StubQp& qp, ibv_wc_status* status) {
  *status = IBV_WC_RETRY_EXC_ERR;
  const auto found = queue_pairs_.find(qp.attr.dest_qp_num);
  if (found == queue_pairs_.end()) return nullptr;
  StubQp& peer = *found->second;
  const bool listens = peer.base.state == IBV_QPS_RTR || peer.base.state == IBV_QPS_RTS;
  if (!listens || peer.attr.dest_qp_num != qp.base.qp_num || peer.attr.rq_psn != qp.attr.sq_psn)
    return nullptr;
  for (const StubQp* end : {&qp, &peer}) {
    if (!reinterpret_cast<StubContext*>(end->base.context)->device->port.up) return nullptr;
  }
  if (peer.attr.path_mtu != qp.attr.path_mtu) *status = IBV_WC_REM_INV_REQ_ERR;
  return peer.attr.path_mtu == qp.attr.path_mtu ? &peer : nullptr;
}

bool StubFabric::strikes(const StubQp& qp, ibv_wc_status* status) {
  for (Fault& fault : faults_) {
    if (fault.left == 0 || (fault.qp_num != 0 && fault.qp_num != qp.base.qp_num)) continue;
    if (--fault.left != 0) continue;
    *status = fault.status;
    return true;
  }
  return false;
}

ibv_wc_status StubFabric::transfer(StubQp& qp, const SendEntry& entry, StubQp* peer, uint64_t bytes) {
  const bool read = entry.opcode == IBV_WR_RDMA_READ;
  const int access = read ? IBV_ACCESS_REMOTE_READ : IBV_ACCESS_REMOTE_WRITE;
  if (bytes == 0) return IBV_WC_SUCCESS;
  std::byte* const remote = (peer->attr.qp_access_flags & static_cast<unsigned>(access)) == 0
                                ? nullptr
                                : resolve(*peer, entry.rkey, true, entry.remote_addr, bytes, access);
  if (remote == nullptr) {
    raise(*reinterpret_cast<StubContext*>(peer->base.context), IBV_EVENT_QP_ACCESS_ERR, &peer->base);
    fail_queue_pair(*peer);
    return IBV_WC_REM_ACCESS_ERR;
  }
  ibv_wc_status status = IBV_WC_SUCCESS;
  if (strikes(qp, &status)) bytes /= 2;
  if (!gather(qp, entry, remote, bytes, read)) return IBV_WC_LOC_PROT_ERR;
  return status;
}

// A posted receive of the peer's takes the message or the immediate.
ibv_wc_status StubFabric::receive(StubQp& qp, const SendEntry& entry, StubQp& peer, uint64_t bytes) {
  if (peer.receive_consumed == peer.receive_posted) return IBV_WC_RNR_RETRY_EXC_ERR;
  const bool message = entry.opcode == IBV_WR_SEND || entry.opcode == IBV_WR_SEND_WITH_IMM;
  const uint64_t slot = peer.receive_consumed % peer.cap.max_recv_wr;
  const ibv_sge& sge = peer.receive_sges[slot * peer.cap.max_recv_sge];
  if (message && bytes != 0) {
    std::byte* const to = peer.receives[slot].sge_count == 0 || sge.length < bytes
                              ? nullptr
                              : resolve(peer, sge.lkey, false, sge.addr, bytes, IBV_ACCESS_LOCAL_WRITE);
    if (to == nullptr) {
      fail_queue_pair(peer);
      return IBV_WC_REM_INV_REQ_ERR;
    }
    if (!gather(qp, entry, to, bytes, false)) return IBV_WC_LOC_PROT_ERR;
  }
  Completion completion{{}, &peer, peer.receive_consumed++, true};
  completion.wc.wr_id = peer.receives[slot].wr_id;
  completion.wc.status = IBV_WC_SUCCESS;
  completion.wc.opcode = message ? IBV_WC_RECV : IBV_WC_RECV_RDMA_WITH_IMM;
  completion.wc.byte_len = static_cast<uint32_t>(bytes);
  completion.wc.qp_num = peer.base.qp_num;
  if (entry.opcode != IBV_WR_SEND) {
    completion.wc.wc_flags = IBV_WC_WITH_IMM;
    completion.wc.imm_data = entry.imm_data;
  }
  complete(peer, completion);
  return IBV_WC_SUCCESS;
}

void StubFabric::complete(StubQp& qp, const Completion& completion) { qp.completions.push() = completion; }

void StubFabric::finish(StubQp& qp, ibv_wc_status status, uint64_t bytes) {
  const SendEntry& entry = qp.sends[qp.executed % qp.cap.max_send_wr];
  const bool signalled = qp.signal_all || (entry.flags & IBV_SEND_SIGNALED) != 0;
  if (signalled || status != IBV_WC_SUCCESS) {
    Completion completion{{}, &qp, qp.executed, false};
    completion.wc.wr_id = entry.wr_id;
    completion.wc.status = status;
    completion.wc.opcode = entry.opcode == IBV_WR_RDMA_READ ? IBV_WC_RDMA_READ : IBV_WC_RDMA_WRITE;
    completion.wc.byte_len = static_cast<uint32_t>(bytes);
    completion.wc.qp_num = qp.base.qp_num;
    complete(qp, completion);
  }
  qp.executed++;
  qp.retries = qp.rnr_retries = 0;
}

// To the error state: what has not run is flushed, signalled or not, in order.
void StubFabric::fail_queue_pair(StubQp& qp) {
  qp.base.state = IBV_QPS_ERR;
  while (qp.executed != qp.posted) finish(qp, IBV_WC_WR_FLUSH_ERR, 0);
  while (qp.receive_consumed != qp.receive_posted) {
    Completion completion{{}, &qp, qp.receive_consumed++, true};
    completion.wc.wr_id = qp.receives[completion.position % qp.cap.max_recv_wr].wr_id;
    completion.wc.status = IBV_WC_WR_FLUSH_ERR;
    completion.wc.opcode = IBV_WC_RECV;
    completion.wc.qp_num = qp.base.qp_num;
    complete(qp, completion);
  }
}

// Runs the request at the head of the send queue; false when it has to be tried again later.
bool StubFabric::run_next(StubQp& qp) {
  const SendEntry& entry = qp.sends[qp.executed % qp.cap.max_send_wr];
  uint64_t bytes = entry.inline_bytes;
  const uint64_t slot = qp.executed % qp.cap.max_send_wr;
  for (uint32_t i = 0; (entry.flags & IBV_SEND_INLINE) == 0 && i < entry.sge_count; i++) {
    bytes += qp.send_sges[slot * qp.cap.max_send_sge + i].length;
  }
  ibv_wc_status status;
  StubQp* const peer = peer_of(qp, &status);
  if (peer == nullptr) {
    if (status == IBV_WC_RETRY_EXC_ERR && qp.retries++ < qp.attr.retry_cnt) return false;
  } else {
    const bool write = entry.opcode == IBV_WR_RDMA_WRITE || entry.opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
    const bool consumes = entry.opcode != IBV_WR_RDMA_WRITE && entry.opcode != IBV_WR_RDMA_READ;
    const bool ready = !consumes || peer->receive_consumed != peer->receive_posted;
    if (!ready && (qp.attr.rnr_retry == 7 || qp.rnr_retries++ < qp.attr.rnr_retry)) return false;
    status = ready ? IBV_WC_SUCCESS : IBV_WC_RNR_RETRY_EXC_ERR;
    if (ready && (write || entry.opcode == IBV_WR_RDMA_READ)) status = transfer(qp, entry, peer, bytes);
    if (status == IBV_WC_SUCCESS && consumes) status = receive(qp, entry, *peer, bytes);
  }
  finish(qp, status, status == IBV_WC_SUCCESS ? bytes : 0);
  if (status != IBV_WC_SUCCESS) fail_queue_pair(qp);
  return true;
}

bool StubFabric::deliver(StubQp& qp) {
  if (qp.completions.empty()) return false;
  const Completion& completion = qp.completions.front();
  auto& cq = *reinterpret_cast<StubCq*>(completion.receive ? qp.base.recv_cq : qp.base.send_cq);
  if (cq.failed) return false;
  if (cq.ring.full()) {
    cq.failed = true;
    raise(*reinterpret_cast<StubContext*>(cq.base.context), IBV_EVENT_CQ_ERR, &cq.base);
    return false;
  }
  cq.ring.push() = completion;
  qp.completions.pop();
  if (cq.armed && cq.base.channel != nullptr) {
    cq.armed = false;
    cq.events++;
    reinterpret_cast<StubChannel*>(cq.base.channel)->events.push_back(&cq);
    const uint64_t one = 1;
    [[maybe_unused]] ssize_t n = write(cq.base.channel->fd, &one, sizeof one);
  }
  return true;
}

// One queue pair works for a moment; true when anything moved.
bool StubFabric::turn(StubQp& qp) {
  bool moved = false;
  uint64_t runs = qp.posted - qp.executed;
  uint64_t deliveries = UINT64_MAX;
  if (options_.shuffled) {
    runs = std::min<uint64_t>(runs, random_() % 4);
    deliveries = random_() % 3;
  }
  for (; runs != 0 && qp.base.state == IBV_QPS_RTS && qp.executed != qp.posted; runs--) {
    if (!run_next(qp)) break;
    moved = true;
  }
  for (; deliveries != 0 && deliver(qp); deliveries--) moved = true;
  return moved;
}

void StubFabric::advance() {
  if (paused_) return;
  if (!options_.shuffled) {
    bool moved = true;
    while (moved) {
      moved = false;
      for (StubQp* qp : order_) moved |= turn(*qp);
    }
    return;
  }
  std::shuffle(order_.begin(), order_.end(), random_);
  for (StubQp* qp : order_) turn(*qp);
}

}  // namespace dualpath::verbs::stub
