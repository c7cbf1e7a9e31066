// Devices, memory and queues of the strict stub provider.
#include "verbs/stub/fabric.h"

#include <errno.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

namespace dualpath::verbs::stub {
namespace {

constexpr int kGids = 4;

// As the kernel fills them: link-local and IPv4-mapped, RoCE v1 and v2 of each; the stub has no types.
std::vector<ibv_gid> gids_of(uint8_t device) {
  std::vector<ibv_gid> gids(kGids);
  for (int i = 0; i < kGids; i++) {
    uint8_t* raw = gids[static_cast<size_t>(i)].raw;
    if (i < 2) {
      raw[0] = 0xfe;
      raw[1] = 0x80;
      raw[15] = static_cast<uint8_t>(device + 1);
    } else {
      raw[10] = raw[11] = 0xff;
      raw[12] = 10;
      raw[15] = static_cast<uint8_t>(device + 1);
    }
  }
  return gids;
}

template <typename T>
T* failing(int error) {
  errno = error;
  return nullptr;
}

}  // namespace

StubFabric::StubFabric(const StubOptions& options)
    : options_(options), random_(options.seed), memlock_bytes_(options.memlock_bytes) {
  for (uint32_t i = 0; i < options.devices; i++) {
    auto device = std::make_unique<StubDevice>();
    device->base.node_type = IBV_NODE_CA;
    device->base.transport_type = IBV_TRANSPORT_IB;
    const std::string name = "stub" + std::to_string(i);
    memcpy(device->base.name, name.c_str(), name.size() + 1);
    device->port.gids = gids_of(static_cast<uint8_t>(i));
    devices_.push_back(std::move(device));
  }
  if (options.own_thread) thread_ = std::thread([this] { work(); });
}

StubFabric::~StubFabric() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  work_.notify_all();
  if (thread_.joinable()) thread_.join();
}

ibv_device** StubFabric::get_device_list(int* count) {
  auto** list = new ibv_device*[devices_.size() + 1]();
  for (size_t i = 0; i < devices_.size(); i++) list[i] = &devices_[i]->base;
  if (count != nullptr) *count = static_cast<int>(devices_.size());
  return list;
}

void StubFabric::free_device_list(ibv_device** list) { delete[] list; }

ibv_context* StubFabric::open_device(ibv_device* device) {
  auto* context = new StubContext();
  context->fabric = this;
  context->device = reinterpret_cast<StubDevice*>(device);
  context->base.device = device;
  context->base.async_fd = eventfd(0, EFD_CLOEXEC | EFD_SEMAPHORE);
  context->base.ops.post_send = post_send;
  context->base.ops.post_recv = post_recv;
  context->base.ops.poll_cq = poll_cq;
  context->base.ops.req_notify_cq = req_notify_cq;
  std::lock_guard lock(mutex_);
  context->device->contexts.push_back(context);
  return &context->base;
}

int StubFabric::close_device(ibv_context* context) {
  auto* mine = reinterpret_cast<StubContext*>(context);
  std::lock_guard lock(mutex_);
  if (mine->objects != 0) return EBUSY;
  std::erase(mine->device->contexts, mine);
  close(mine->base.async_fd);
  delete mine;
  return 0;
}

int StubFabric::query_device(ibv_context*, ibv_device_attr* out) {
  *out = ibv_device_attr{};
  out->max_qp_wr = static_cast<int>(options_.max_send_wr);
  out->max_sge = static_cast<int>(options_.max_send_sge);
  out->max_cqe = static_cast<int>(options_.max_cq_entries);
  out->max_qp = 1024;
  out->phys_port_cnt = 1;
  out->max_qp_rd_atom = 16;
  out->max_qp_init_rd_atom = 16;
  return 0;
}

int StubFabric::query_port(ibv_context* context, uint8_t port, ibv_port_attr* out) {
  if (port != 1) return EINVAL;
  std::lock_guard lock(mutex_);
  const StubDevice& device = *reinterpret_cast<StubContext*>(context)->device;
  *out = ibv_port_attr{};
  out->state = device.port.up ? IBV_PORT_ACTIVE : IBV_PORT_DOWN;
  out->max_mtu = IBV_MTU_4096;
  out->active_mtu = options_.active_mtu;
  out->gid_tbl_len = kGids;
  out->max_msg_sz = 1u << 30;
  out->link_layer = options_.link_layer;
  out->lid = options_.link_layer == IBV_LINK_LAYER_ETHERNET ? 0 : 1;
  return 0;
}

int StubFabric::query_gid(ibv_context* context, uint8_t port, int index, ibv_gid* out) {
  const StubDevice& device = *reinterpret_cast<StubContext*>(context)->device;
  if (port != 1 || index < 0 || index >= kGids) return EINVAL;
  *out = device.port.gids[static_cast<size_t>(index)];
  return 0;
}

ibv_pd* StubFabric::alloc_pd(ibv_context* context) {
  auto* pd = new StubPd();
  pd->base.context = context;
  std::lock_guard lock(mutex_);
  reinterpret_cast<StubContext*>(context)->objects++;
  return &pd->base;
}

int StubFabric::dealloc_pd(ibv_pd* pd) {
  auto* mine = reinterpret_cast<StubPd*>(pd);
  std::lock_guard lock(mutex_);
  if (mine->objects != 0) return EBUSY;
  reinterpret_cast<StubContext*>(pd->context)->objects--;
  delete mine;
  return 0;
}

// Keys of the two directions differ, so that mixing them up is seen.
ibv_mr* StubFabric::add_mr(ibv_pd* pd, std::unique_ptr<StubMr> mr, size_t bytes) {
  const uint32_t number = next_region_++;
  mr->base.context = pd->context;
  mr->base.pd = pd;
  mr->base.length = bytes;
  mr->base.lkey = number * 2;
  mr->base.rkey = number * 2 + 1;
  locked_bytes_ += bytes;
  reinterpret_cast<StubPd*>(pd)->objects++;
  StubMr* const added = mr.get();
  regions_.emplace(number, std::move(mr));
  return &added->base;
}

ibv_mr* StubFabric::reg_mr(ibv_pd* pd, void* address, size_t bytes, int access) {
  const int remote = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC;
  if (bytes == 0 || address == nullptr) return failing<ibv_mr>(EINVAL);
  if ((access & remote) != 0 && (access & IBV_ACCESS_LOCAL_WRITE) == 0) return failing<ibv_mr>(EINVAL);
  std::lock_guard lock(mutex_);
  if (bytes > memlock_bytes_ || locked_bytes_ > memlock_bytes_ - bytes) return failing<ibv_mr>(ENOMEM);
  auto mr = std::make_unique<StubMr>();
  mr->base.addr = address;
  mr->iova = reinterpret_cast<uint64_t>(address);
  void* const device_memory =
      options_.peer_memory == nullptr ? nullptr : options_.peer_memory(address, bytes);
  mr->memory = static_cast<std::byte*>(device_memory == nullptr ? address : device_memory);
  mr->access = access;
  return add_mr(pd, std::move(mr), bytes);
}

// A memfd stands in for a dma-buf.
ibv_mr* StubFabric::reg_dmabuf_mr(ibv_pd* pd, uint64_t offset, size_t bytes, uint64_t iova, int fd,
                                  int access) {
  void* const memory = mmap(nullptr, offset + bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (memory == MAP_FAILED) return nullptr;
  std::lock_guard lock(mutex_);
  auto mr = std::make_unique<StubMr>();
  mr->iova = iova;
  mr->memory = static_cast<std::byte*>(memory) + offset;
  mr->access = access;
  mr->mapping = memory;
  mr->mapping_bytes = offset + bytes;
  return add_mr(pd, std::move(mr), bytes);
}

int StubFabric::dereg_mr(ibv_mr* mr) {
  std::lock_guard lock(mutex_);
  const auto found = regions_.find(mr->lkey / 2);
  if (found == regions_.end()) return EINVAL;
  locked_bytes_ -= mr->length;
  reinterpret_cast<StubPd*>(mr->pd)->objects--;
  if (found->second->mapping != nullptr) munmap(found->second->mapping, found->second->mapping_bytes);
  regions_.erase(found);
  return 0;
}

ibv_comp_channel* StubFabric::create_comp_channel(ibv_context* context) {
  auto* channel = new StubChannel();
  channel->base.context = context;
  channel->base.fd = eventfd(0, EFD_CLOEXEC | EFD_SEMAPHORE);
  std::lock_guard lock(mutex_);
  reinterpret_cast<StubContext*>(context)->objects++;
  return &channel->base;
}

int StubFabric::destroy_comp_channel(ibv_comp_channel* channel) {
  auto* mine = reinterpret_cast<StubChannel*>(channel);
  std::lock_guard lock(mutex_);
  if (mine->queues != 0) return EBUSY;
  reinterpret_cast<StubContext*>(channel->context)->objects--;
  close(mine->base.fd);
  delete mine;
  return 0;
}

ibv_cq* StubFabric::create_cq(ibv_context* context, int entries, void* cq_context,
                              ibv_comp_channel* channel) {
  if (entries < 1 || static_cast<uint32_t>(entries) > options_.max_cq_entries) return failing<ibv_cq>(EINVAL);
  auto* cq = new StubCq();
  cq->base.context = context;
  cq->base.channel = channel;
  cq->base.cq_context = cq_context;
  cq->base.cqe = entries;
  cq->ring = FixedRing<Completion>(static_cast<size_t>(entries));
  std::lock_guard lock(mutex_);
  if (channel != nullptr) reinterpret_cast<StubChannel*>(channel)->queues++;
  reinterpret_cast<StubContext*>(context)->objects++;
  reinterpret_cast<StubContext*>(context)->completion_queues.push_back(cq);
  return &cq->base;
}

// libibverbs waits here until every event has been acknowledged; the stub says so instead of hanging.
int StubFabric::destroy_cq(ibv_cq* cq) {
  auto* mine = reinterpret_cast<StubCq*>(cq);
  std::lock_guard lock(mutex_);
  if (mine->queue_pairs != 0 || mine->events != mine->acknowledged) return EBUSY;
  if (cq->channel != nullptr) reinterpret_cast<StubChannel*>(cq->channel)->queues--;
  reinterpret_cast<StubContext*>(cq->context)->objects--;
  std::erase(reinterpret_cast<StubContext*>(cq->context)->completion_queues, mine);
  delete mine;
  return 0;
}

int StubFabric::get_cq_event(ibv_comp_channel* channel, ibv_cq** cq, void** cq_context) {
  uint64_t one;
  if (read(channel->fd, &one, sizeof one) != sizeof one) return -1;
  auto* mine = reinterpret_cast<StubChannel*>(channel);
  std::lock_guard lock(mutex_);
  StubCq* const from = mine->events.front();
  mine->events.pop_front();
  *cq = &from->base;
  *cq_context = from->base.cq_context;
  return 0;
}

void StubFabric::ack_cq_events(ibv_cq* cq, unsigned count) {
  std::lock_guard lock(mutex_);
  reinterpret_cast<StubCq*>(cq)->acknowledged += count;
}

int StubFabric::get_async_event(ibv_context* context, ibv_async_event* out) {
  uint64_t one;
  if (read(context->async_fd, &one, sizeof one) != sizeof one) return -1;
  auto* mine = reinterpret_cast<StubContext*>(context);
  std::lock_guard lock(mutex_);
  *out = mine->events.front();
  mine->events.pop_front();
  return 0;
}

void StubFabric::ack_async_event(ibv_async_event*) {}

StubCounters StubFabric::counters() {
  std::lock_guard lock(mutex_);
  return counters_;
}

bool StubFabric::set_link(uint32_t device, bool up) {
  std::lock_guard lock(mutex_);
  if (device >= devices_.size()) return false;
  StubDevice& changed = *devices_[device];
  changed.port.up = up;
  for (StubContext* context : changed.contexts) {
    raise(*context, up ? IBV_EVENT_PORT_ACTIVE : IBV_EVENT_PORT_ERR, nullptr);
  }
  return true;
}

void StubFabric::fail_request(uint32_t qp_num, uint32_t nth, ibv_wc_status status) {
  std::lock_guard lock(mutex_);
  faults_.push_back({qp_num, nth, status});
}

void StubFabric::fail_completion_queues(uint32_t device) {
  std::lock_guard lock(mutex_);
  for (StubContext* context : devices_[device]->contexts) {
    for (StubCq* cq : context->completion_queues) {
      cq->failed = true;
      raise(*context, IBV_EVENT_CQ_ERR, &cq->base);
    }
  }
}

void StubFabric::fail_post(uint32_t nth, int error) {
  std::lock_guard lock(mutex_);
  post_fault_in_ = nth;
  post_fault_errno_ = error;
}

void StubFabric::set_memlock(uint64_t bytes) {
  std::lock_guard lock(mutex_);
  memlock_bytes_ = bytes;
}

uint32_t StubFabric::objects() {
  std::lock_guard lock(mutex_);
  uint32_t count = static_cast<uint32_t>(regions_.size() + queue_pairs_.size());
  for (const auto& device : devices_) {
    for (const StubContext* context : device->contexts) count += context->objects;
  }
  return count;
}

}  // namespace dualpath::verbs::stub
