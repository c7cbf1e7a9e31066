#include "core/vl_arbiter.h"

namespace dualpath {

ArbitrationTables default_arbitration() {
  return {{{0, 192}, {1, 192}, {2, 0}, {3, 192}}, {{0, 192}, {1, 192}, {2, 64}, {3, 192}}, 240};
}

Status VlArbiter::check(const ArbitrationTables& tables) {
  for (const auto* table : {&tables.high, &tables.low}) {
    const std::string name = table == &tables.high ? "high-priority" : "low-priority";
    if (table->size() > kMaxEntries) {
      return Status::error("INVALID_ARGUMENT", name + " table of " + std::to_string(table->size()) +
                                                   " entries: at most " + std::to_string(kMaxEntries) +
                                                   " are possible; join entries of one lane");
    }
    for (const LaneWeight& entry : *table) {
      if (entry.lane < kLanes) continue;
      return Status::error("INVALID_ARGUMENT", name + " table names virtual lane " +
                                                   std::to_string(entry.lane) + ": 0 to " +
                                                   std::to_string(kLanes - 1) + " carry data");
    }
  }
  return {};
}

VlArbiter::VlArbiter(const ArbitrationTables& tables)
    : high_(tables.high), low_(tables.low), high_limit_(tables.high_limit) {}

VlArbiter::Table::Table(const std::vector<LaneWeight>& entries) {
  for (const LaneWeight& entry : entries) {
    if (entry.weight == 0) continue;
    entries_[count_++] = entry;
    lanes_ |= 1u << entry.lane;
  }
  if (count_ != 0) left_ = entries_[0].weight;
}

bool VlArbiter::Table::ready(const Heads& heads) const {
  for (uint32_t i = 0; i < count_; i++) {
    if (heads[entries_[i].lane] != 0) return true;
  }
  return false;
}

// An entry sends as long as something of its weight is left; the last packet may take more than that. What is
// left is not kept for the next round.
uint32_t VlArbiter::Table::take(const Heads& heads) {
  while (left_ <= 0 || heads[entries_[at_].lane] == 0) {
    at_ = at_ + 1 == count_ ? 0 : at_ + 1;
    left_ = entries_[at_].weight;
  }
  const uint32_t lane = entries_[at_].lane;
  left_ -= static_cast<int32_t>((heads[lane] + kWeightBytes - 1) / kWeightBytes);
  return lane;
}

bool VlArbiter::high_may_send() const {
  if (high_limit_ == kNoLimit) return true;
  if (high_limit_ == 0) return high_bytes_ == 0;
  return high_bytes_ < uint64_t{high_limit_} * kLimitBytes;
}

uint32_t VlArbiter::next(const Heads& heads) {
  const bool high = high_.ready(heads);
  if (!high || !high_may_send()) {
    high_bytes_ = 0;  // the opportunity, taken or not
    if (low_.ready(heads)) return low_.take(heads);
    if (!high) return kLanes;
  }
  const uint32_t lane = high_.take(heads);
  high_bytes_ += heads[lane];
  return lane;
}

}  // namespace dualpath
