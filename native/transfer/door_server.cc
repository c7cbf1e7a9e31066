#include "transfer/door_server.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <algorithm>

namespace dualpath {
namespace {

using store::ScopedFd;

constexpr size_t kMaxFds = 3;

dp_message message_of(dp_message_kind kind, dp_door_status status = DP_DOOR_OK) {
  dp_message message{};
  message.magic = DP_ABI_MAGIC;
  message.version = DP_ABI_VERSION;
  message.kind = static_cast<uint16_t>(kind);
  message.status = status;
  return message;
}

// Never waits: who does not read what it is sent goes without.
bool send_message(int socket, const dp_message& message, const int* fds = nullptr, size_t fd_count = 0) {
  iovec part{const_cast<dp_message*>(&message), sizeof message};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int) * kMaxFds)] = {};
  msghdr packet{};
  packet.msg_iov = &part;
  packet.msg_iovlen = 1;
  if (fd_count > 0) {
    packet.msg_control = control;
    packet.msg_controllen = CMSG_SPACE(sizeof(int) * fd_count);
    cmsghdr* header = CMSG_FIRSTHDR(&packet);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int) * fd_count);
    memcpy(CMSG_DATA(header), fds, sizeof(int) * fd_count);
  }
  return sendmsg(socket, &packet, MSG_DONTWAIT | MSG_NOSIGNAL) == sizeof message;
}

// Bytes of the packet, 0 at the connection's end, -1 when there is none. At most one descriptor comes with
// it.
ssize_t receive_message(int socket, dp_message* message, ScopedFd* fd) {
  iovec part{message, sizeof *message};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr packet{};
  packet.msg_iov = &part;
  packet.msg_iovlen = 1;
  packet.msg_control = control;
  packet.msg_controllen = sizeof control;
  const ssize_t bytes = recvmsg(socket, &packet, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  if (bytes <= 0) return bytes < 0 && (errno == EAGAIN || errno == EINTR) ? -1 : 0;
  for (cmsghdr* header = CMSG_FIRSTHDR(&packet); header != nullptr; header = CMSG_NXTHDR(&packet, header)) {
    if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) continue;
    int received;
    memcpy(&received, CMSG_DATA(header), sizeof received);
    fd->reset(received);
  }
  return bytes;
}

}  // namespace

Status DoorServer::listen(DoorServerOptions options, std::unique_ptr<DoorServer>* out) {
  if (options.engine->door().submission_bell() < 0) {
    return Status::error("INVALID_ARGUMENT", "engine '" + options.engine->options().name +
                                                 "' has no shared door; open it with `shared`");
  }
  auto server = std::unique_ptr<DoorServer>(new DoorServer(std::move(options)));
  server->stop_bell_.reset(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!server->stop_bell_.valid()) {
    return Status::error("CAPACITY_EXHAUSTED",
                         "door: eventfd failed: no file descriptor is left; raise 'ulimit -n'", errno);
  }
  if (Status status = server->bind_socket(); !status.ok()) return status;
  server->offers_.reserve(kMaxOffers);
  server->thread_ = std::thread([raw = server.get()] { raw->run(); });
  *out = std::move(server);
  return {};
}

Status DoorServer::bind_socket() {
  const std::string& path = options_.path;
  const auto failed = [&](const char* call) {
    const int error = errno;
    return Status::error("STORAGE_IO",
                         std::string("door: ") + call + " " + path + ": " + strerror(error) +
                             "; choose a path in a directory that exists and that this process may write",
                         error);
  };
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.empty() || path.size() >= sizeof address.sun_path || path.find('\0') != std::string::npos) {
    return Status::error("INVALID_ARGUMENT", "door: a path of " + std::to_string(path.size()) +
                                                 " bytes; a unix socket's has 1 to " +
                                                 std::to_string(sizeof address.sun_path - 1));
  }
  memcpy(address.sun_path, path.data(), path.size());
  const auto* where = reinterpret_cast<const sockaddr*>(&address);
  listener_.reset(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!listener_.valid()) return failed("socket");
  int bound = bind(listener_.get(), where, sizeof address);
  if (bound != 0 && errno == EADDRINUSE) {
    // What a process that was killed left behind answers nobody; a file that is no socket does not either.
    struct stat facts {};
    const bool is_socket = lstat(path.c_str(), &facts) == 0 && S_ISSOCK(facts.st_mode);
    const ScopedFd probe(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!is_socket || connect(probe.get(), where, sizeof address) == 0 || errno != ECONNREFUSED ||
        unlink(path.c_str()) != 0) {
      return Status::error("INVALID_ARGUMENT", "door: " + path + " is there already; choose another path",
                           EADDRINUSE);
    }
    bound = bind(listener_.get(), where, sizeof address);
  }
  if (bound != 0) return failed("bind");
  if (chmod(path.c_str(), 0600) != 0 || ::listen(listener_.get(), kMaxClients) != 0) {
    const Status status = failed("listen");
    unlink(path.c_str());
    return status;
  }
  return {};
}

DoorServer::~DoorServer() { stop(); }

void DoorServer::stop() {
  if (!thread_.joinable()) return;
  stopping_.store(true, std::memory_order_seq_cst);
  const uint64_t one = 1;
  [[maybe_unused]] ssize_t n = write(stop_bell_.get(), &one, sizeof one);
  thread_.join();
  unlink(options_.path.c_str());
  listener_.reset();
  for (Client& client : clients_) {
    if (client.socket.valid()) drop(client);
  }
}

void DoorServer::run() {
  prctl(PR_SET_NAME, "dp-door", 0UL, 0UL, 0UL);
  while (!stopping_.load(std::memory_order_seq_cst)) {
    std::array<pollfd, kMaxClients + 2> fds;
    const bool room = std::ranges::any_of(clients_, [](const Client& c) { return !c.socket.valid(); });
    fds[kMaxClients] = {stop_bell_.get(), POLLIN, 0};
    fds[kMaxClients + 1] = {room ? listener_.get() : -1, POLLIN, 0};
    for (size_t i = 0; i < kMaxClients; i++) fds[i] = {clients_[i].socket.get(), POLLIN, 0};
    if (poll(fds.data(), fds.size(), -1) <= 0) continue;
    for (size_t i = 0; i < kMaxClients; i++) {
      if (fds[i].revents != 0 && !hear(clients_[i])) drop(clients_[i]);
    }
    if ((fds[kMaxClients + 1].revents & POLLIN) != 0) accept_client();
  }
}

// Only processes of this user, or of root.
void DoorServer::accept_client() {
  ScopedFd socket(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (!socket.valid()) {
    if (errno == EMFILE || errno == ENFILE) usleep(10'000);  // it stays readable: do not spin on it
    return;
  }
  ucred peer{};
  socklen_t bytes = sizeof peer;
  if (getsockopt(socket.get(), SOL_SOCKET, SO_PEERCRED, &peer, &bytes) != 0 ||
      (peer.uid != geteuid() && peer.uid != 0)) {
    count_refused();
    return;
  }
  const auto free = std::ranges::find_if(clients_, [](const Client& c) { return !c.socket.valid(); });
  free->socket = std::move(socket);
  free->pid = peer.pid;
  free->role = 0;
}

// One packet; false when the connection is to end.
bool DoorServer::hear(Client& client) {
  dp_message message{};
  ScopedFd fd;
  const ssize_t bytes = receive_message(client.socket.get(), &message, &fd);
  if (bytes <= 0) return bytes < 0;
  const bool ours = bytes == sizeof message && message.magic == DP_ABI_MAGIC;
  if (ours && client.role == 0 && message.kind == DP_MESSAGE_HELLO) return greet(client, message);
  if (ours && client.role == DP_ROLE_PRODUCER && message.kind == DP_MESSAGE_CANCEL) {
    options_.engine->request_cancel(message.value);
    options_.ring_reactor();
    return true;
  }
  if (ours && client.role == DP_ROLE_PRODUCER && message.kind == DP_MESSAGE_MEMORY) {
    take_memory(client, message, std::move(fd));
    return true;
  }
  count_refused();
  return false;
}

bool DoorServer::greet(Client& client, const dp_message& hello) {
  dp_door_status status = DP_DOOR_OK;
  {
    std::lock_guard lock(mutex_);
    if (hello.version != DP_ABI_VERSION) {
      status = DP_DOOR_VERSION;
    } else if (hello.role == DP_ROLE_PRODUCER) {
      if (producer_socket_ >= 0) status = DP_DOOR_BUSY;
    } else if (hello.role == DP_ROLE_OBSERVER) {
      // A place is kept for the producer and one for whoever is to be told that there is none.
      if (state_.observers + 2 >= kMaxClients) status = DP_DOOR_BUSY;
    } else {
      status = DP_DOOR_INVALID;
    }
  }
  client.role = hello.role;
  if (status == DP_DOOR_OK && !welcome(client)) status = DP_DOOR_INVALID;
  if (status != DP_DOOR_OK) {
    client.role = 0;
    count_refused();
    send_message(client.socket.get(), message_of(DP_MESSAGE_WELCOME, status));
    return false;
  }
  {
    std::lock_guard lock(mutex_);
    if (client.role == DP_ROLE_PRODUCER) {
      producer_socket_ = client.socket.get();
      state_.producer = client.pid;
      state_.producers_seen++;
    } else {
      state_.observers++;
    }
  }
  options_.changed();
  return true;
}

bool DoorServer::welcome(const Client& client) {
  Door& door = options_.engine->door();
  dp_message message = message_of(DP_MESSAGE_WELCOME);
  message.role = client.role;
  message.bytes = door.bytes();
  if (client.role == DP_ROLE_PRODUCER) {
    const int fds[] = {door.memfd(), door.submission_bell(), door.completion_bell()};
    return send_message(client.socket.get(), message, fds, 3);
  }
  // Opened anew, so that no observer can map it for writing.
  const std::string again = "/proc/self/fd/" + std::to_string(door.memfd());
  const ScopedFd read_only(open(again.c_str(), O_RDONLY | O_CLOEXEC));
  const int fd = read_only.get();
  return fd >= 0 && send_message(client.socket.get(), message, &fd, 1);
}

void DoorServer::take_memory(const Client& client, const dp_message& message, ScopedFd fd) {
  dp_door_status status = DP_DOOR_OK;
  if (!fd.valid() || message.bytes > Arena::kMaxBytes) status = DP_DOOR_INVALID;  // the rest its mapping says
  {
    std::lock_guard lock(mutex_);
    if (status == DP_DOOR_OK && offers_.size() == kMaxOffers) status = DP_DOOR_FULL;
    if (status == DP_DOOR_OK)
      offers_.push_back({message.tag, static_cast<size_t>(message.bytes), std::move(fd)});
  }
  if (status == DP_DOOR_OK) {
    options_.changed();
    return;
  }
  count_refused();
  dp_message refusal = message_of(DP_MESSAGE_GEOMETRY, status);
  refusal.tag = message.tag;
  refusal.value = DP_NONE;
  send_message(client.socket.get(), refusal);
}

void DoorServer::drop(Client& client) {
  {
    std::lock_guard lock(mutex_);
    if (client.role == DP_ROLE_PRODUCER) {
      producer_socket_ = -1;
      state_.producer = 0;
      offers_.clear();  // nobody is there to be told
    } else if (client.role == DP_ROLE_OBSERVER) {
      state_.observers--;
    }
  }
  const bool known = client.role != 0;
  client = Client{};
  if (known && !stopping_.load(std::memory_order_relaxed)) options_.changed();
}

void DoorServer::count_refused() {
  std::lock_guard lock(mutex_);
  state_.refused++;
}

DoorServer::State DoorServer::state() {
  std::lock_guard lock(mutex_);
  return state_;
}

bool DoorServer::take_offer(Offer* out) {
  std::lock_guard lock(mutex_);
  if (offers_.empty()) return false;
  *out = std::move(offers_.front());
  offers_.erase(offers_.begin());
  return true;
}

void DoorServer::answer(uint32_t tag, dp_door_status status, uint32_t geometry) {
  dp_message message = message_of(DP_MESSAGE_GEOMETRY, status);
  message.tag = tag;
  message.value = geometry;
  std::lock_guard lock(mutex_);
  if (producer_socket_ >= 0) send_message(producer_socket_, message);
}

}  // namespace dualpath
