// Which way a copy between memories of this host goes: through the compute NIC, as the paper has it, by
// memcpy, or by the driver of the device whose memory it is. A decision apart from its effects.
#pragma once
#include <cstddef>
#include <cstdint>

namespace dualpath {

enum class CopyWay : uint8_t { kNic, kMemcpy, kCuda };
inline constexpr size_t kCopyWays = 3;
inline constexpr const char* kCopyWayNames[kCopyWays] = {"nic", "memcpy", "cuda"};

// kAuto: the NIC where it can, else what the memory allows. kNic: nothing else. kPlain: never the NIC.
enum class CopyWish : uint8_t { kAuto, kNic, kPlain };

// Why the NIC does not carry a copy that it might have carried.
enum class NicRefusal : uint8_t { kNone, kNotWanted, kNotOpen, kNotRegistered, kBroken };
inline constexpr size_t kNicRefusals = 5;
inline constexpr const char* kNicRefusalNames[kNicRefusals] = {"none", "notWanted", "notOpen",
                                                               "notRegistered", "broken"};

struct CopyFacts {
  CopyWish wish;
  bool device_memory;  // of either end: the CPU does not reach it
  NicRefusal nic;      // why it cannot, kNone where it can
};

struct CopyChoice {
  CopyWay way;
  NicRefusal refusal;
  bool allowed;  // false: the wish forbids the way that is left
};

constexpr CopyChoice choose_copy_way(const CopyFacts& facts) {
  const CopyWay plain = facts.device_memory ? CopyWay::kCuda : CopyWay::kMemcpy;
  if (facts.wish == CopyWish::kPlain) return {plain, NicRefusal::kNotWanted, true};
  if (facts.nic == NicRefusal::kNone) return {CopyWay::kNic, facts.nic, true};
  return {plain, facts.nic, facts.wish == CopyWish::kAuto};
}

}  // namespace dualpath
