// The life of a queue pair: made, connected, drained, destroyed.
#include "verbs/queue_pair.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <algorithm>

namespace dualpath::verbs {
namespace {

Status out_of_range(const char* name, uint32_t value, uint32_t least, uint32_t most, const char* remedy) {
  return Status::error("INVALID_ARGUMENT", std::string(name) + " " + std::to_string(value) + ": " +
                                               std::to_string(least) + " to " + std::to_string(most) +
                                               " allowed" + remedy);
}

Status check(const QueuePairOptions& options) {
  if (options.send_entries < 4 || options.send_entries > 32768) {
    return out_of_range("send_entries", options.send_entries, 4, 32768, "");
  }
  if (options.receive_entries < 4 || options.receive_entries > 32768) {
    return out_of_range("receive_entries", options.receive_entries, 4, 32768, "");
  }
  if (options.sges < 1 || options.sges > 32) return out_of_range("sges", options.sges, 1, 32, "");
  return {};
}

Status check(const PathParameters& path) {
  if (path.service_level > 15) return out_of_range("service level (SL)", path.service_level, 0, 15, "");
  if (path.timeout < 17 || path.timeout > 31) {
    return out_of_range("timeout", path.timeout, 17, 31, ": shorter ones fire under load");
  }
  if (path.retry_count > 6) {
    return out_of_range("retry_count", path.retry_count, 0, 6, ": soft-RoCE would take 7 for ever");
  }
  if (path.rnr_retry < 1 || path.rnr_retry > 6) {
    return out_of_range("rnr_retry", path.rnr_retry, 1, 6, ": 7 would mean for ever");
  }
  const uint32_t mtu = path.mtu_bytes;
  if (mtu < 256 || mtu > 4096 || (mtu & (mtu - 1)) != 0) {
    return Status::error("INVALID_ARGUMENT",
                         "path MTU " + std::to_string(mtu) + ": 256, 512, 1024, 2048 or 4096 allowed");
  }
  return {};
}

}  // namespace

QueuePair::QueuePair(CompletionQueue& completion_queue, const QueuePairOptions& options,
                     QueuePairEvents* events)
    : completion_queue_(completion_queue),
      options_(options),
      events_(events),
      usable_(options.send_entries - 1),
      in_flight_(options.send_entries),
      own_chain_(ChainOptions{1, 1, 0, 8}),
      landings_(options.landings) {}

Status QueuePair::create(CompletionQueue& completion_queue, const QueuePairOptions& options, uint32_t psn,
                         QueuePairEvents* events, std::unique_ptr<QueuePair>* out) {
  Status status = check(options);
  if (!status.ok()) return status;
  auto queue_pair = std::unique_ptr<QueuePair>(new QueuePair(completion_queue, options, events));
  status = queue_pair->make(psn);
  if (status.ok()) *out = std::move(queue_pair);
  return status;
}

Status QueuePair::make_control_memory() {
  const size_t bytes = 128 + (size_t{options_.receive_entries} + options_.send_entries) * kMessageBytes;
  void* memory = nullptr;
  if (posix_memalign(&memory, Arena::kAlignment, bytes) != 0) {
    return Status::error("MEMORY_LIMIT", "no memory for " + std::to_string(bytes) +
                                             " bytes of control messages; use smaller queues");
  }
  control_ = static_cast<std::byte*>(memory);
  memset(control_, 0, bytes);
  return MemoryRegion::register_memory(completion_queue_.shared_device(), "control messages", control_, bytes,
                                       RegionAccess::kPeersWrite, &control_region_);
}

Status QueuePair::make(uint32_t psn) {
  psn_ = psn & 0xffffff;
  Status status = make_control_memory();
  if (!status.ok()) return status;
  const uint32_t entries = options_.send_entries + options_.receive_entries;
  status = completion_queue_.attach(this, entries, &prefix_);
  if (!status.ok()) return status;
  attached_ = true;
  Device& device = completion_queue_.device();
  ibv_qp_init_attr init{};
  init.send_cq = init.recv_cq = completion_queue_.cq_;
  init.qp_type = IBV_QPT_RC;
  init.cap = {options_.send_entries, options_.receive_entries, options_.sges, 1, options_.inline_bytes};
  qp_ = device.verbs().create_qp(device.pd(), &init);
  if (qp_ == nullptr) {
    const int error = errno;
    return Status::error("RDMA_FAILED",
                         "a queue pair of " + std::to_string(options_.send_entries) + " send and " +
                             std::to_string(options_.receive_entries) + " receive entries with " +
                             std::to_string(options_.sges) + " SGEs on RDMA device '" + device.name() +
                             "' was refused: " + strerror(error) + "; it has at most " +
                             std::to_string(device.attributes().max_qp_wr) + " entries and " +
                             std::to_string(device.attributes().max_sge) + " SGEs a queue",
                         error);
  }
  qp_num_ = qp_->qp_num;
  PortFacts port;
  status = device.port(options_.port, &port);
  if (!status.ok()) return status;
  const uint64_t largest = std::min<uint64_t>(port.max_message_bytes, 1u << 30);
  chain_options_ = {std::max(1u, usable_ / 2), options_.sges, init.cap.max_inline_data, largest};
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_INIT;
  attr.port_num = options_.port;
  attr.qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
  const int error = device.verbs().modify_qp(
      qp_, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
  if (error != 0) {
    return Status::error("RDMA_FAILED", std::string("initialising a queue pair failed: ") + strerror(error),
                         error);
  }
  for (uint32_t i = 0; i + 1 < options_.receive_entries; i++) {
    status = post_receive(i, WorkKind::kReceive);
    if (!status.ok()) return status;
  }
  receives_offered_ = receives_posted_;
  return {};
}

QueuePairAddress QueuePair::address() const {
  return {qp_num_, psn_, options_.receive_entries - 1, reinterpret_cast<uint64_t>(control_),
          control_region_->remote_key()};
}

Status QueuePair::connect(const PathParameters& path) {
  const Status status = check(path);
  if (!status.ok()) return status;
  path_ = path;
  Verbs& verbs = completion_queue_.device().verbs();
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_RTR;
  attr.path_mtu = mtu_of(path.mtu_bytes);
  attr.dest_qp_num = path.peer.qp_num;
  attr.rq_psn = path.peer.psn;
  attr.max_dest_rd_atomic = 1;
  attr.min_rnr_timer = path.min_rnr_timer;
  attr.ah_attr.dlid = path.peer_lid;
  attr.ah_attr.sl = path.service_level;
  attr.ah_attr.port_num = options_.port;
  if (path.gid_index >= 0) {
    attr.ah_attr.is_global = 1;
    attr.ah_attr.grh.dgid = path.peer_gid;
    attr.ah_attr.grh.sgid_index = static_cast<uint8_t>(path.gid_index);
    attr.ah_attr.grh.traffic_class = path.traffic_class;
    attr.ah_attr.grh.hop_limit = path.hop_limit;
  }
  int error = verbs.modify_qp(qp_, &attr,
                              IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                                  IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
  const char* step = "RTR";
  if (error == 0) {
    step = "RTS";
    attr = ibv_qp_attr{};
    attr.qp_state = IBV_QPS_RTS;
    attr.timeout = path.timeout;
    attr.retry_cnt = path.retry_count;
    attr.rnr_retry = path.rnr_retry;
    attr.sq_psn = psn_;
    attr.max_rd_atomic = 1;
    error = verbs.modify_qp(qp_, &attr,
                            IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                                IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC);
  }
  if (error != 0) {
    return Status::error("RDMA_FAILED",
                         std::string("bringing a queue pair to ") + step + " with GID index " +
                             std::to_string(path.gid_index) + " and path MTU " +
                             std::to_string(path.mtu_bytes) + " failed: " + strerror(error) +
                             "; try the next GID of 'dualpath devices'",
                         error);
  }
  state_ = State::kReady;
  return {};
}

// The error state flushes what is posted; a marker behind it in each queue says when all of it has come out.
// The receive queue's goes in before: soft-RoCE's posting of receives is a write to shared memory that its
// kernel side looks at again only when the state changes. The peer has no credit for that receive.
void QueuePair::drain() {
  if (state_ == State::kDraining || state_ == State::kDrained) return;
  state_ = State::kDraining;
  bool marked = post_receive(options_.receive_entries - 1, WorkKind::kReceiveMarker).ok();
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_ERR;
  marked = marked && completion_queue_.device().verbs().modify_qp(qp_, &attr, IBV_QP_STATE) == 0;
  if (marked) {
    ibv_send_wr marker{};
    marker.wr_id = prefix_ | static_cast<uint32_t>(posted_);
    marker.opcode = IBV_WR_RDMA_WRITE;
    marker.send_flags = IBV_SEND_SIGNALED;
    ibv_send_wr* bad = nullptr;
    marked = ibv_post_send(qp_, &marker, &bad) == 0;
  }
  if (marked) {
    in_flight_.push() = {++posted_, nullptr, true, 0};
    signalled_in_flight_++;
  }
  if (marked) return;
  destroy();  // the other way to be sure
  events_->on_drained(*this);
}

void QueuePair::finish_drain() {
  if (!send_drained_ || !receive_drained_ || state_ == State::kDrained) return;
  state_ = State::kDrained;
  landings_.close_all(Quiescence());
  events_->on_drained(*this);
}

void QueuePair::destroy() {
  if (qp_ != nullptr) completion_queue_.device().verbs().destroy_qp(qp_);
  qp_ = nullptr;
  if (attached_) completion_queue_.detach(prefix_, options_.send_entries + options_.receive_entries);
  attached_ = false;
  const bool was_drained = state_ == State::kDrained;
  state_ = State::kDrained;
  if (first_error_.ok()) first_error_.blame = Blame::kCancelled;
  while (!in_flight_.empty()) {
    if (Operation* const operation = in_flight_.front().operation; operation != nullptr) {
      operation->fail(first_error_);
    }
    retire_front();
  }
  if (!was_drained) landings_.close_all(Quiescence());
}

QueuePair::~QueuePair() {
  destroy();
  control_region_.reset();
  free(control_);
}

}  // namespace dualpath::verbs
