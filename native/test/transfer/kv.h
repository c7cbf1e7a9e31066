// Emulated KV in a test's geometries: written, then looked for where it should have gone.
#pragma once
#include <gtest/gtest.h>

#include <numeric>
#include <vector>

#include "emulation/kv_pattern.h"
#include "test/memory/shapes.h"

namespace dualpath::test {

inline std::vector<uint64_t> seeds_of(uint32_t tokens, uint32_t salt = 1) {
  std::vector<uint32_t> ids(tokens);
  std::iota(ids.begin(), ids.end(), salt * 1000);
  return emulation::kv_seeds(ids.data(), ids.size());
}

inline void write_kv(const Geometry& geometry, const std::vector<uint32_t>& slots, TokenRange range,
                     const std::vector<uint64_t>& seeds) {
  const emulation::PatternTarget target{&geometry, slots.data(), static_cast<uint32_t>(slots.size()), 0};
  for (uint32_t l = 0; l < geometry.layers(); l++) {
    emulation::write_pattern(target, l, range, seeds.data());
  }
}

// Bytes of one layer that are wrong, and those looked at.
inline emulation::PatternCheck check_layer(const Geometry& geometry, const std::vector<uint32_t>& slots,
                                           uint32_t layer, TokenRange range,
                                           const std::vector<uint64_t>& seeds, uint32_t window_end = 0) {
  const emulation::PatternTarget target{&geometry, slots.data(), static_cast<uint32_t>(slots.size()), 0};
  return emulation::check_pattern(target, layer, range, window_end, seeds.data());
}

inline emulation::PatternCheck check_kv(const Geometry& geometry, const std::vector<uint32_t>& slots,
                                        TokenRange range, const std::vector<uint64_t>& seeds,
                                        uint32_t window_end = 0) {
  emulation::PatternCheck total;
  for (uint32_t l = 0; l < geometry.layers(); l++) {
    const auto layer = check_layer(geometry, slots, l, range, seeds, window_end);
    total.checked_bytes += layer.checked_bytes;
    total.mismatched_bytes += layer.mismatched_bytes;
  }
  return total;
}

// All of `range` is right, and there is something to be right.
inline void expect_kv(const Geometry& geometry, const std::vector<uint32_t>& slots, TokenRange range,
                      const std::vector<uint64_t>& seeds, uint32_t window_end = 0) {
  const auto check = check_kv(geometry, slots, range, seeds, window_end);
  EXPECT_GT(check.checked_bytes, 0u);
  EXPECT_EQ(check.mismatched_bytes, 0u) << "of " << check.checked_bytes;
}

// The memory is as exact_arena() left it.
inline bool untouched(const std::byte* begin, size_t bytes) {
  for (size_t i = 0; i < bytes; i++) {
    if (begin[i] != std::byte{0xee}) return false;
  }
  return true;
}

}  // namespace dualpath::test
