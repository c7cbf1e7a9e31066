// Which virtual lane of an InfiniBand port sends next: InfiniBand Architecture Specification, volume 1, 7.6.9
// (VL arbitration). Two tables of (lane, weight) entries, each served in weighted round robin, a weight
// counting 64-byte units; and how much the high-priority table may send before the low-priority one gets an
// opportunity of one packet. Pure: no clock, no memory beyond itself, nothing that allocates.
#pragma once
#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "core/status.h"

namespace dualpath {

struct LaneWeight {
  uint8_t lane;
  uint8_t weight;  // 64-byte units; 0: the entry is passed over
};

struct ArbitrationTables {
  std::vector<LaneWeight> high;
  std::vector<LaneWeight> low;
  // Units of 4096 bytes; 0: a single packet; 255: no bound, the low-priority table may starve.
  uint8_t high_limit = 255;
};

// The paper's (section on traffic isolation): lane 2 carries KV-Cache, the limit is 240.
ArbitrationTables default_arbitration();

class VlArbiter {
 public:
  static constexpr uint32_t kLanes = 15;  // data lanes; lane 15 is for management
  static constexpr uint32_t kMaxEntries = 64;
  static constexpr uint32_t kPacketBytes = 4096;
  static constexpr uint32_t kWeightBytes = 64;
  static constexpr uint32_t kLimitBytes = 4096;
  static constexpr uint8_t kNoLimit = 255;
  // Of each lane its first packet's bytes, 0: nothing waits there.
  using Heads = std::array<uint32_t, kLanes>;

  // INVALID_ARGUMENT for tables too long and lanes out of range.
  static Status check(const ArbitrationTables& tables);
  explicit VlArbiter(const ArbitrationTables& tables);  // that have been checked

  // The lane whose first packet is sent now, and is counted as sent. kLanes when no lane that a table names
  // has one.
  uint32_t next(const Heads& heads);
  // Whether a table gives the lane anything.
  bool serves(uint32_t lane) const { return high_.serves(lane) || low_.serves(lane); }

 private:
  class Table {
   public:
    explicit Table(const std::vector<LaneWeight>& entries);
    bool serves(uint32_t lane) const { return (lanes_ >> lane & 1) != 0; }
    bool ready(const Heads& heads) const;
    uint32_t take(const Heads& heads);  // when ready

   private:
    std::array<LaneWeight, kMaxEntries> entries_{};
    uint32_t count_ = 0;
    uint32_t lanes_ = 0;  // bit l: an entry of lane l has a weight
    uint32_t at_ = 0;
    int32_t left_ = 0;  // of the weight of entry at_
  };

  bool high_may_send() const;

  Table high_;
  Table low_;
  uint8_t high_limit_;
  uint64_t high_bytes_ = 0;  // since the low-priority table's last opportunity
};

}  // namespace dualpath
