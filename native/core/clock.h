// Time as the data path sees it: CLOCK_MONOTONIC in nanoseconds.
#pragma once
#include <time.h>

#include <cstdint>

namespace dualpath {

inline uint64_t now_ns() {
  timespec ts;
  clock_gettime(CLOCK_MONOTONIC, &ts);
  return static_cast<uint64_t>(ts.tv_sec) * 1'000'000'000u + static_cast<uint64_t>(ts.tv_nsec);
}

inline constexpr uint64_t kNever = UINT64_MAX;

}  // namespace dualpath
