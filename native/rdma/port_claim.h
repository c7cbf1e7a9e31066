// A port that one engine of the host has for itself: a name in the abstract socket namespace, which ends with
// whoever holds it.
#pragma once
#include <memory>
#include <string>

#include "core/status.h"
#include "store/posix.h"

namespace dualpath::rdma {

class PortClaim {
 public:
  // CAPACITY_EXHAUSTED when another engine has it; the message names its process.
  static Status take(const std::string& device, unsigned port, std::unique_ptr<PortClaim>* out);

 private:
  explicit PortClaim(store::ScopedFd socket) : socket_(std::move(socket)) {}
  store::ScopedFd socket_;
};

}  // namespace dualpath::rdma
