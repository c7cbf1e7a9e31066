// Queue pairs of the strict stub provider: creation, and the state changes of ibv_modify_qp(3) for RC.
#include <errno.h>

#include "verbs/stub/fabric.h"

namespace dualpath::verbs::stub {
namespace {

constexpr int kInitMask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
constexpr int kRtrMask = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                         IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
constexpr int kRtsMask = IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
                         IBV_QP_MAX_QP_RD_ATOMIC;

}  // namespace

ibv_qp* StubFabric::create_qp(ibv_pd* pd, ibv_qp_init_attr* init) {
  const ibv_qp_cap& cap = init->cap;
  if (init->qp_type != IBV_QPT_RC || init->srq != nullptr || cap.max_send_wr > options_.max_send_wr ||
      cap.max_recv_wr > options_.max_send_wr || cap.max_send_sge > options_.max_send_sge ||
      cap.max_recv_sge > options_.max_send_sge || cap.max_inline_data > options_.max_inline_bytes) {
    errno = EINVAL;
    return nullptr;
  }
  auto qp = std::make_unique<StubQp>();
  qp->base.context = pd->context;
  qp->base.qp_context = init->qp_context;
  qp->base.pd = pd;
  qp->base.send_cq = init->send_cq;
  qp->base.recv_cq = init->recv_cq;
  qp->base.state = IBV_QPS_RESET;
  qp->base.qp_type = IBV_QPT_RC;
  qp->cap = cap;
  qp->signal_all = init->sq_sig_all != 0;
  qp->sends.resize(cap.max_send_wr);
  qp->send_sges.resize(size_t{cap.max_send_wr} * cap.max_send_sge);
  qp->inline_data.resize(size_t{cap.max_send_wr} * cap.max_inline_data);
  qp->receives.resize(cap.max_recv_wr);
  qp->receive_sges.resize(size_t{cap.max_recv_wr} * cap.max_recv_sge);
  qp->completions = FixedRing<Completion>(size_t{cap.max_send_wr} + cap.max_recv_wr);
  std::lock_guard lock(mutex_);
  qp->base.qp_num = next_qp_num_++;
  reinterpret_cast<StubPd*>(pd)->objects++;
  reinterpret_cast<StubCq*>(init->send_cq)->queue_pairs++;
  reinterpret_cast<StubCq*>(init->recv_cq)->queue_pairs++;
  StubQp* const added = qp.get();
  order_.push_back(added);
  queue_pairs_.emplace(added->base.qp_num, std::move(qp));
  return &added->base;
}

int StubFabric::destroy_qp(ibv_qp* qp) {
  std::lock_guard lock(mutex_);
  auto* mine = reinterpret_cast<StubQp*>(qp);
  for (ibv_cq* cq : {qp->send_cq, qp->recv_cq}) {
    auto* queue = reinterpret_cast<StubCq*>(cq);
    queue->queue_pairs--;
    queue->ring.keep_if([mine](const Completion& completion) { return completion.qp != mine; });
  }
  reinterpret_cast<StubPd*>(qp->pd)->objects--;
  std::erase(order_, mine);
  queue_pairs_.erase(qp->qp_num);
  return 0;
}

int StubFabric::to_init(StubQp& qp, const ibv_qp_attr& attr, int mask) {
  if (qp.base.state != IBV_QPS_RESET || mask != kInitMask || attr.port_num != 1 || attr.pkey_index != 0) {
    return EINVAL;
  }
  qp.attr.port_num = attr.port_num;
  qp.attr.qp_access_flags = attr.qp_access_flags;
  return 0;
}

int StubFabric::to_rtr(StubQp& qp, const ibv_qp_attr& attr, int mask) {
  if (qp.base.state != IBV_QPS_INIT || mask != kRtrMask) return EINVAL;
  const ibv_ah_attr& path = attr.ah_attr;
  const bool ethernet = options_.link_layer == IBV_LINK_LAYER_ETHERNET;
  if (ethernet && path.is_global == 0) return EINVAL;
  if (path.port_num != 1 || path.sl > 15 || attr.path_mtu > options_.active_mtu || attr.min_rnr_timer > 31) {
    return EINVAL;
  }
  const auto& gids = reinterpret_cast<StubContext*>(qp.base.context)->device->port.gids;
  if (path.is_global != 0 && path.grh.sgid_index >= gids.size()) return EINVAL;
  qp.attr.ah_attr = path;
  qp.attr.path_mtu = attr.path_mtu;
  qp.attr.dest_qp_num = attr.dest_qp_num;
  qp.attr.rq_psn = attr.rq_psn;
  qp.attr.max_dest_rd_atomic = attr.max_dest_rd_atomic;
  qp.attr.min_rnr_timer = attr.min_rnr_timer;
  return 0;
}

int StubFabric::to_rts(StubQp& qp, const ibv_qp_attr& attr, int mask) {
  if (qp.base.state != IBV_QPS_RTR || mask != kRtsMask) return EINVAL;
  if (attr.timeout > 31 || attr.retry_cnt > 7 || attr.rnr_retry > 7) return EINVAL;
  qp.attr.timeout = attr.timeout;
  qp.attr.retry_cnt = attr.retry_cnt;
  qp.attr.rnr_retry = attr.rnr_retry;
  qp.attr.sq_psn = attr.sq_psn;
  qp.attr.max_rd_atomic = attr.max_rd_atomic;
  return 0;
}

int StubFabric::modify_qp(ibv_qp* qp, ibv_qp_attr* attr, int mask) {
  if ((mask & IBV_QP_STATE) == 0) return EINVAL;
  std::lock_guard lock(mutex_);
  StubQp& mine = *reinterpret_cast<StubQp*>(qp);
  int error = EINVAL;
  switch (attr->qp_state) {
    case IBV_QPS_INIT:
      error = to_init(mine, *attr, mask);
      break;
    case IBV_QPS_RTR:
      error = to_rtr(mine, *attr, mask);
      break;
    case IBV_QPS_RTS:
      error = to_rts(mine, *attr, mask);
      break;
    case IBV_QPS_ERR:
      if (qp->state == IBV_QPS_RESET) return EINVAL;
      fail_queue_pair(mine);
      work_.notify_one();
      return 0;
    default:
      break;
  }
  if (error == 0) qp->state = attr->qp_state;
  return error;
}

}  // namespace dualpath::verbs::stub
