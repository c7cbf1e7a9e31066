#include "verbs/device.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>

namespace dualpath::verbs {
namespace {

Status failed(const std::string& what, const std::string& device, int error) {
  return Status::error("RDMA_FAILED",
                       what + " of RDMA device '" + device + "' failed: " + strerror(error) +
                           "; see 'dualpath devices' and the kernel log",
                       error);
}

std::string joined(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ", ") + name;
  return text;
}

}  // namespace

uint32_t mtu_bytes(ibv_mtu mtu) { return 128u << static_cast<unsigned>(mtu); }

ibv_mtu mtu_of(uint32_t bytes) {
  for (const ibv_mtu mtu : {IBV_MTU_4096, IBV_MTU_2048, IBV_MTU_1024, IBV_MTU_512}) {
    if (bytes >= mtu_bytes(mtu)) return mtu;
  }
  return IBV_MTU_256;
}

std::vector<std::string> device_names(Verbs& verbs) {
  int count = 0;
  ibv_device** list = verbs.get_device_list(&count);
  std::vector<std::string> names;
  for (int i = 0; list != nullptr && i < count; i++) names.emplace_back(list[i]->name);
  if (list != nullptr) verbs.free_device_list(list);
  return names;
}

Status Device::open(std::shared_ptr<Verbs> verbs, const std::string& name, std::shared_ptr<Device>* out) {
  auto device = std::shared_ptr<Device>(new Device());
  device->verbs_ = std::move(verbs);
  device->name_ = name;
  const std::vector<std::string> names = device_names(*device->verbs_);
  if (names.empty()) {
    return Status::error(
        "RDMA_UNAVAILABLE",
        "no RDMA device on this machine; load its driver (soft-RoCE: 'rdma link add rxe0 type "
        "rxe netdev eth0'), or use another transport");
  }
  int count = 0;
  ibv_device** list = device->verbs_->get_device_list(&count);
  bool known = false;
  int error = 0;
  for (int i = 0; list != nullptr && i < count; i++) {
    if (name != list[i]->name) continue;
    known = true;
    device->context_ = device->verbs_->open_device(list[i]);
    error = errno;
  }
  if (list != nullptr) device->verbs_->free_device_list(list);
  if (!known) {
    return Status::error("INVALID_ARGUMENT",
                         "no RDMA device named '" + name + "'; there are: " + joined(names));
  }
  if (device->context_ == nullptr) return failed("opening", name, error);
  error = device->verbs_->query_device(device->context_, &device->attributes_);
  if (error != 0) return failed("querying", name, error);
  device->pd_ = device->verbs_->alloc_pd(device->context_);
  if (device->pd_ == nullptr) return failed("allocating a protection domain", name, errno);
  const int fd = device->context_->async_fd;
  fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
  *out = std::move(device);
  return {};
}

Device::~Device() {
  if (pd_ != nullptr) verbs_->dealloc_pd(pd_);
  if (context_ != nullptr) verbs_->close_device(context_);
}

Status Device::port(uint8_t number, PortFacts* out) {
  if (number == 0 || number > attributes_.phys_port_cnt) {
    return Status::error("INVALID_ARGUMENT", "port " + std::to_string(number) + " of RDMA device '" + name_ +
                                                 "': it has ports 1 to " +
                                                 std::to_string(attributes_.phys_port_cnt));
  }
  ibv_port_attr attr{};
  const int error = verbs_->query_port(context_, number, &attr);
  if (error != 0) return failed("querying port " + std::to_string(number), name_, error);
  out->active = attr.state == IBV_PORT_ACTIVE;
  out->ethernet = attr.link_layer == IBV_LINK_LAYER_ETHERNET;
  out->mtu_bytes = mtu_bytes(attr.active_mtu);
  out->lid = attr.lid;
  out->max_message_bytes = attr.max_msg_sz;
  out->gid_count = attr.gid_tbl_len;
  return {};
}

Status Device::gid(uint8_t port_number, int index, ibv_gid* out) {
  PortFacts facts;
  const Status status = port(port_number, &facts);
  if (!status.ok()) return status;
  const std::string where = " of port " + std::to_string(port_number) + " of RDMA device '" + name_ + "'";
  if (index < 0 || index >= facts.gid_count) {
    return Status::error("INVALID_ARGUMENT", "GID index " + std::to_string(index) + where + ": 0 to " +
                                                 std::to_string(facts.gid_count - 1) +
                                                 " allowed; 'dualpath devices' lists them");
  }
  memset(out, 0, sizeof *out);
  const int error = verbs_->query_gid(context_, port_number, index, out);
  const bool empty = out->global.subnet_prefix == 0 && out->global.interface_id == 0;
  if (error != 0 || empty) {
    return Status::error("INVALID_ARGUMENT",
                         "GID index " + std::to_string(index) + where +
                             " is empty; 'dualpath devices' lists those that are not",
                         error);
  }
  return {};
}

bool Device::take_event(DeviceEvent* out) {
  ibv_async_event event{};
  if (verbs_->get_async_event(context_, &event) != 0) return false;
  *out = DeviceEvent{DeviceEventKind::kOther, 0, nullptr};
  switch (event.event_type) {
    case IBV_EVENT_PORT_ERR:
    case IBV_EVENT_PORT_ACTIVE:
      out->kind =
          event.event_type == IBV_EVENT_PORT_ERR ? DeviceEventKind::kPortError : DeviceEventKind::kPortActive;
      out->port = static_cast<uint8_t>(event.element.port_num);
      break;
    case IBV_EVENT_CQ_ERR:
      out->kind = DeviceEventKind::kCompletionQueueError;
      out->object = event.element.cq;
      break;
    case IBV_EVENT_QP_FATAL:
    case IBV_EVENT_QP_REQ_ERR:
    case IBV_EVENT_QP_ACCESS_ERR:
      out->kind = DeviceEventKind::kQueuePairFatal;
      out->object = event.element.qp;
      break;
    case IBV_EVENT_DEVICE_FATAL:
      out->kind = DeviceEventKind::kDeviceFatal;
      break;
    default:
      break;
  }
  verbs_->ack_async_event(&event);
  return true;
}

}  // namespace dualpath::verbs
