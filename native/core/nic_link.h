// One direction of an emulated compute NIC's link: a rate, and traffic classes between which a VlArbiter
// decides packet by packet, as a NIC's port does. It emulates when bytes cross, not how: where they really go
// is the caller's business. Safe to use from several threads.
//
// Each lane is a queue of messages, cut into packets of at most 4096 bytes. The link's clock is virtual: what
// has crossed by a given time is worked out when somebody asks. A transfer has crossed when its lane has sent
// everything up to its position; how long that takes depends on what other classes queue meanwhile.
#pragma once
#include <array>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>

#include "core/status.h"
#include "core/vl_arbiter.h"

namespace dualpath {

inline constexpr uint32_t kTrafficClasses = 3;  // enum dp_traffic_class

struct NicLinkOptions {
  std::string name;
  uint64_t bytes_per_s = 0;  // 0: not limited, bytes are still counted
  ArbitrationTables arbitration = default_arbitration();
  // Of each traffic class: inference, kv, control. Classes of one lane are served in the order in which they
  // came: without isolation all have the same.
  std::array<uint8_t, kTrafficClasses> lanes = {1, 2, 3};
};

struct NicLinkStatistics {
  struct Class {
    uint64_t bytes = 0;      // that have crossed
    uint64_t transfers = 0;  // queued
  };
  std::array<Class, kTrafficClasses> classes;
  uint64_t bytes = 0;      // queued, of all classes
  uint64_t transfers = 0;  // queued
  uint64_t busy_ns = 0;
  uint64_t joined = 0;  // transfers that found the queue of messages full and became part of the one before
};

class NicLink {
 public:
  static constexpr uint32_t kMaxMessages = 4096;  // queued in a lane

  // INVALID_ARGUMENT for tables the arbiter refuses and a class whose lane no table serves.
  static Status create(const NicLinkOptions& options, std::shared_ptr<NicLink>* out);
  // Of one rate and the paper's tables.
  NicLink(std::string name, uint64_t bytes_per_s);

  // Queues a transfer; the position of its end in its class, for crossed() and forecast().
  uint64_t enqueue(uint32_t traffic_class, uint64_t bytes, uint64_t now);
  bool crossed(uint32_t traffic_class, uint64_t position, uint64_t now);
  // When it will have crossed if nothing more is queued: never too late, and exact if that holds.
  uint64_t forecast(uint32_t traffic_class, uint64_t position);
  // Whether another transfer of the class may be queued: it has work for no longer than lookahead. If not,
  // *when to ask again.
  bool accepts(uint32_t traffic_class, uint64_t now, uint64_t lookahead_ns, uint64_t* when);

  uint64_t duration_ns(uint64_t bytes) const;
  const std::string& name() const { return options_.name; }
  const NicLinkOptions& options() const { return options_; }
  // As of `now`, or of the latest time anybody asked about.
  NicLinkStatistics statistics(uint64_t now);
  uint64_t bytes();  // queued

 private:
  struct Message {
    uint64_t end;  // position in the lane
    uint8_t traffic_class;
  };
  struct Lane {
    std::unique_ptr<std::array<Message, kMaxMessages>> messages;  // nullptr: no class has this lane
    uint64_t tail = 0;                                            // messages ever queued
    uint64_t end = 0;                                             // bytes ever queued
  };
  // What sending changes: copied to look ahead.
  struct State {
    explicit State(const ArbitrationTables& tables) : arbiter(tables) {}
    VlArbiter arbiter;
    uint64_t clock = 0;                              // when the next packet can begin
    uint64_t remainder = 0;                          // of the clock, in 1 / rate
    std::array<uint64_t, VlArbiter::kLanes> head{};  // messages sent
    std::array<uint64_t, VlArbiter::kLanes> sent{};  // bytes, of the last packet too
    uint32_t last_lane = VlArbiter::kLanes;          // of the packet that ends at `clock`
    uint32_t last_bytes = 0;
    uint8_t last_class = 0;
  };

  explicit NicLink(const NicLinkOptions& options);
  bool send_next(State& state) const;
  void advance(uint64_t now);
  uint64_t forecast_lane(uint32_t lane, uint64_t position) const;
  // Bytes of the lane whose packets have ended by `now`, which advance() has been called with.
  uint64_t ended(uint32_t lane, uint64_t now) const;
  uint32_t lane_of(uint32_t traffic_class) const { return options_.lanes[traffic_class]; }

  const NicLinkOptions options_;
  std::mutex mutex_;
  State state_;
  std::array<Lane, VlArbiter::kLanes> lanes_;
  NicLinkStatistics statistics_;
};

}  // namespace dualpath
