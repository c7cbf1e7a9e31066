// Gives a shared door to other processes: one producer, which submits and takes the records, and observers,
// who map it read-only. dualpath_ring.h says what is exchanged. One thread a server, asleep when nobody
// speaks.
#pragma once
#include <sys/types.h>

#include <array>
#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "core/live.h"
#include "core/status.h"
#include "store/posix.h"
#include "transfer/engine.h"

namespace dualpath {

struct DoorServerOptions {
  std::string path;
  std::shared_ptr<TransferEngine> engine;  // of a shared door
  std::function<void()> ring_reactor;
  std::function<void()>
      changed;  // somebody came or went, or there is memory to take: from the server's thread
};

class DoorServer {
 public:
  static constexpr size_t kMaxClients = 16;
  static constexpr size_t kMaxOffers = 16;  // of memory, not taken yet

  // Memory that the producer owns and hands over.
  struct Offer {
    uint32_t tag = 0;
    size_t bytes = 0;
    store::ScopedFd fd;
  };
  struct State {
    pid_t producer = 0;  // 0: none
    uint32_t observers = 0;
    uint64_t producers_seen = 0;
    uint64_t refused = 0;  // connections and packets
  };

  // INVALID_ARGUMENT for a path that cannot be one, or where something lives; STORAGE_IO otherwise.
  static Status listen(DoorServerOptions options, std::unique_ptr<DoorServer>* out);
  ~DoorServer();
  DoorServer(const DoorServer&) = delete;
  DoorServer& operator=(const DoorServer&) = delete;

  // Ends the thread and every connection; the socket's file goes. Processes that have the door keep their
  // mapping of it. Idempotent.
  void stop();

  const std::string& path() const { return options_.path; }
  State state();
  // False when there is none.
  bool take_offer(Offer* out);
  // What became of memory that the present producer offered.
  void answer(uint32_t tag, dp_door_status status, uint32_t geometry);

 private:
  struct Client {
    store::ScopedFd socket;
    pid_t pid = 0;
    uint32_t role = 0;  // 0: has not said hello
  };

  explicit DoorServer(DoorServerOptions options) : options_(std::move(options)) {}
  Status bind_socket();
  void run();
  void accept_client();
  bool hear(Client& client);
  bool greet(Client& client, const dp_message& hello);
  bool welcome(const Client& client);
  void take_memory(const Client& client, const dp_message& message, store::ScopedFd fd);
  void drop(Client& client);
  void count_refused();

  const DoorServerOptions options_;
  store::ScopedFd listener_;
  store::ScopedFd stop_bell_;
  std::array<Client, kMaxClients> clients_;  // the thread's own, but for the producer's socket
  std::mutex mutex_;                         // guards what follows, and the producer's socket
  State state_;
  int producer_socket_ = -1;
  std::vector<Offer> offers_;
  std::atomic<bool> stopping_{false};
  std::thread thread_;
  Live<LiveKind::kDoorServer> live_;
};

}  // namespace dualpath
