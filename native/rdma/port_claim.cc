#include "rdma/port_claim.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>

namespace dualpath::rdma {
namespace {

// The process that listens at the address, 0 when it cannot be told.
pid_t holder_of(const sockaddr_un& address, socklen_t bytes) {
  const store::ScopedFd asking(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  ucred holder{};
  socklen_t length = sizeof holder;
  if (!asking.valid() || connect(asking.get(), reinterpret_cast<const sockaddr*>(&address), bytes) != 0 ||
      getsockopt(asking.get(), SOL_SOCKET, SO_PEERCRED, &holder, &length) != 0) {
    return 0;
  }
  return holder.pid;
}

}  // namespace

Status PortClaim::take(const std::string& device, unsigned port, std::unique_ptr<PortClaim>* out) {
  const std::string name = "dualpath/rdma/" + device + "/" + std::to_string(port);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const size_t length = std::min(name.size(), sizeof address.sun_path - 1);
  memcpy(address.sun_path + 1, name.data(), length);
  const auto bytes = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + length);
  store::ScopedFd socket_fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!socket_fd.valid()) {
    return Status::error("CAPACITY_EXHAUSTED", "no file descriptor is left; raise 'ulimit -n'", errno);
  }
  if (bind(socket_fd.get(), reinterpret_cast<const sockaddr*>(&address), bytes) != 0) {
    const int error = errno;
    const pid_t holder = holder_of(address, bytes);
    return Status::error("CAPACITY_EXHAUSTED",
                         "port " + std::to_string(port) + " of RDMA device '" + device +
                             "' belongs to another engine" +
                             (holder == 0 ? "" : " (process " + std::to_string(holder) + ")") +
                             ": close that one, use another port, or open both without 'exclusive'",
                         error);
  }
  listen(socket_fd.get(), 1);  // for those who ask who it is
  out->reset(new PortClaim(std::move(socket_fd)));
  return {};
}

}  // namespace dualpath::rdma
