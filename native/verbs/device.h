// An RDMA device opened by name, with its protection domain. Which device, port and GID to use is decided
// elsewhere (src/rdma); here the choice is checked and carried out.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "core/status.h"
#include "verbs/verbs.h"

namespace dualpath::verbs {

struct PortFacts {
  bool active = false;
  bool ethernet = false;   // RoCE; else InfiniBand
  uint32_t mtu_bytes = 0;  // active
  uint16_t lid = 0;
  uint32_t max_message_bytes = 0;
  int gid_count = 0;
};

enum class DeviceEventKind {
  kPortError,
  kPortActive,
  kCompletionQueueError,
  kQueuePairFatal,
  kDeviceFatal,
  kOther
};

struct DeviceEvent {
  DeviceEventKind kind;
  uint8_t port = 0;              // port events
  const void* object = nullptr;  // the ibv_cq or ibv_qp concerned
};

class Device {
 public:
  // RDMA_UNAVAILABLE without any device, INVALID_ARGUMENT for a name that is not there (names those that
  // are).
  static Status open(std::shared_ptr<Verbs> verbs, const std::string& name, std::shared_ptr<Device>* out);
  ~Device();
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  Verbs& verbs() { return *verbs_; }
  ibv_context* context() { return context_; }
  ibv_pd* pd() { return pd_; }
  const std::string& name() const { return name_; }
  const ibv_device_attr& attributes() const { return attributes_; }

  Status port(uint8_t number, PortFacts* out);
  Status gid(uint8_t port, int index, ibv_gid* out);

  // Events that concern no single request, one at a time; false when there is none. async_fd() becomes
  // readable.
  bool take_event(DeviceEvent* out);
  int async_fd() const { return context_->async_fd; }

 private:
  Device() = default;
  std::shared_ptr<Verbs> verbs_;
  std::string name_;
  ibv_context* context_ = nullptr;
  ibv_pd* pd_ = nullptr;
  ibv_device_attr attributes_{};
};

// Names of the devices there are.
std::vector<std::string> device_names(Verbs& verbs);
uint32_t mtu_bytes(ibv_mtu mtu);
// The largest path MTU not above this many bytes; IBV_MTU_256 at least.
ibv_mtu mtu_of(uint32_t bytes);

}  // namespace dualpath::verbs
