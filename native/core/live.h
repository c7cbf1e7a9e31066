// How many objects of each kind live in this process, whoever holds them: what tests of ended threads look
// at, since Node itself does not free everything at exit and hides our leaks from a leak checker.
#pragma once
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace dualpath {

enum class LiveKind : size_t {
  kArena,
  kDoor,
  kDoorServer,
  kEngine,
  kReactor,
  kSharedTransport,
  kStore,
  kStream,
  kVerbsTransport
};
inline constexpr std::array<const char*, 9> kLiveNames{"arenas",  "doors",    "doorServers",
                                                       "engines", "reactors", "sharedTransports",
                                                       "stores",  "streams",  "verbsTransports"};

inline std::atomic<int64_t>& live_count(LiveKind kind) {
  static std::array<std::atomic<int64_t>, kLiveNames.size()> counts{};
  return counts[static_cast<size_t>(kind)];
}

// A member of what is counted.
template <LiveKind kind>
class Live {
 public:
  Live() { live_count(kind).fetch_add(1, std::memory_order_relaxed); }
  ~Live() { live_count(kind).fetch_sub(1, std::memory_order_relaxed); }
  Live(const Live&) = delete;
  Live& operator=(const Live&) = delete;
};

}  // namespace dualpath
