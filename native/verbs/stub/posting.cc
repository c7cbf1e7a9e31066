// What the strict stub provider does when work is posted and completions are polled.
#include <errno.h>
#include <string.h>

#include <algorithm>

#include "verbs/stub/fabric.h"

namespace dualpath::verbs::stub {
namespace {

StubFabric& fabric_of(ibv_context* context) { return *reinterpret_cast<StubContext*>(context)->fabric; }

}  // namespace

int StubFabric::queue_send(StubQp& qp, const ibv_send_wr& wr) {
  if (post_fault_in_ != 0 && --post_fault_in_ == 0) return post_fault_errno_;
  if (qp.posted - qp.released == qp.cap.max_send_wr) {
    counters_.refused_full++;
    return ENOMEM;
  }
  const uint32_t count = static_cast<uint32_t>(wr.num_sge);
  if (wr.num_sge < 0 || count > qp.cap.max_send_sge) return EINVAL;
  const uint64_t place = qp.posted % qp.cap.max_send_wr;
  SendEntry& entry = qp.sends[place];
  entry = {wr.wr_id, wr.opcode, wr.send_flags, wr.imm_data, wr.wr.rdma.remote_addr, wr.wr.rdma.rkey,
           count,    0};
  switch (wr.opcode) {
    case IBV_WR_RDMA_WRITE:
      counters_.writes++;
      break;
    case IBV_WR_RDMA_WRITE_WITH_IMM:
      counters_.writes_with_immediate++;
      break;
    case IBV_WR_RDMA_READ:
      counters_.reads++;
      break;
    case IBV_WR_SEND:
    case IBV_WR_SEND_WITH_IMM:
      counters_.sends++;
      break;
    default:
      return EINVAL;
  }
  if ((wr.send_flags & IBV_SEND_INLINE) != 0) {
    std::byte* const data = qp.inline_data.data() + place * qp.cap.max_inline_data;
    for (uint32_t i = 0; i < count; i++) {
      const ibv_sge& sge = wr.sg_list[i];
      if (wr.opcode == IBV_WR_RDMA_READ || sge.length > qp.cap.max_inline_data - entry.inline_bytes)
        return EINVAL;
      memcpy(data + entry.inline_bytes, reinterpret_cast<const void*>(sge.addr), sge.length);
      entry.inline_bytes += sge.length;
    }
    counters_.inlined++;
  } else if (count != 0) {
    memcpy(qp.send_sges.data() + place * qp.cap.max_send_sge, wr.sg_list, count * sizeof(ibv_sge));
  }
  if (qp.signal_all || (wr.send_flags & IBV_SEND_SIGNALED) != 0) counters_.signalled++;
  counters_.requests++;
  qp.posted++;
  return 0;
}

int StubFabric::post_send(ibv_qp* qp, ibv_send_wr* wr, ibv_send_wr** bad_wr) {
  StubFabric& fabric = fabric_of(qp->context);
  std::lock_guard lock(fabric.mutex_);
  StubQp& mine = *reinterpret_cast<StubQp*>(qp);
  fabric.counters_.post_calls++;
  const bool takes = qp->state == IBV_QPS_RTS || qp->state == IBV_QPS_ERR;
  for (; wr != nullptr; wr = wr->next) {
    const int error = takes ? fabric.queue_send(mine, *wr) : EINVAL;
    if (error != 0) {
      *bad_wr = wr;
      return error;
    }
  }
  fabric.counters_.most_outstanding =
      std::max(fabric.counters_.most_outstanding, mine.posted - mine.released);
  if (qp->state == IBV_QPS_ERR) fabric.fail_queue_pair(mine);  // flushed at once
  fabric.work_.notify_one();
  return 0;
}

int StubFabric::post_recv(ibv_qp* qp, ibv_recv_wr* wr, ibv_recv_wr** bad_wr) {
  StubFabric& fabric = fabric_of(qp->context);
  std::lock_guard lock(fabric.mutex_);
  StubQp& mine = *reinterpret_cast<StubQp*>(qp);
  for (; wr != nullptr; wr = wr->next) {
    const uint32_t count = static_cast<uint32_t>(wr->num_sge);
    int error = 0;
    if (qp->state == IBV_QPS_RESET || wr->num_sge < 0 || count > mine.cap.max_recv_sge) error = EINVAL;
    if (mine.receive_posted - mine.receive_released == mine.cap.max_recv_wr) error = ENOMEM;
    if (error != 0) {
      *bad_wr = wr;
      return error;
    }
    const uint64_t place = mine.receive_posted++ % mine.cap.max_recv_wr;
    mine.receives[place] = {wr->wr_id, count};
    if (count != 0) {
      memcpy(mine.receive_sges.data() + place * mine.cap.max_recv_sge, wr->sg_list, count * sizeof(ibv_sge));
    }
    fabric.counters_.receives++;
  }
  // In the error state nothing comes of it until the state is set again: as with soft-RoCE.
  fabric.work_.notify_one();
  return 0;
}

int StubFabric::poll(StubCq& cq, int count, ibv_wc* wc) {
  if (cq.failed) return -1;
  int polled = 0;
  for (; polled < count && !cq.ring.empty(); polled++) {
    const Completion& completion = cq.ring.front();
    wc[polled] = completion.wc;
    (completion.receive ? completion.qp->receive_released : completion.qp->released) =
        completion.position + 1;
    counters_.completions++;
    if (completion.wc.status != IBV_WC_SUCCESS) counters_.errors++;
    cq.ring.pop();
  }
  return polled;
}

int StubFabric::poll_cq(ibv_cq* cq, int count, ibv_wc* wc) {
  StubFabric& fabric = fabric_of(cq->context);
  std::lock_guard lock(fabric.mutex_);
  fabric.advance();
  return fabric.poll(*reinterpret_cast<StubCq*>(cq), count, wc);
}

int StubFabric::req_notify_cq(ibv_cq* cq, int) {
  StubFabric& fabric = fabric_of(cq->context);
  std::lock_guard lock(fabric.mutex_);
  reinterpret_cast<StubCq*>(cq)->armed = true;
  return 0;
}

void StubFabric::step() {
  std::lock_guard lock(mutex_);
  advance();
}

}  // namespace dualpath::verbs::stub
