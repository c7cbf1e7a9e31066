// Emulated KV: bytes that depend on the token, everything before it, the layer, the plane and the
// offset, so that any byte in a wrong place, or any wrong byte, is seen. For tests, replays and
// benchmarks; product code never needs it.
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

#include "memory/geometry.h"

namespace dualpath::emulation {

// One 64-bit seed a token, each depending on all tokens before it (as real KV does).
std::vector<uint64_t> kv_seeds(const uint32_t* tokens, size_t count);

struct PatternTarget {
  const Geometry* geometry;
  const uint32_t* slots;  // entries_per_block() of the geometry name block first_block + i
  uint32_t slot_count;    // blocks
  uint32_t first_block;
};

// Writes the emulated KV of tokens [range.begin, range.end) of one layer. seeds is indexed by token.
void write_pattern(const PatternTarget& target, uint32_t layer, TokenRange range, const uint64_t* seeds);

struct PatternCheck {
  uint64_t checked_bytes = 0;
  uint64_t mismatched_bytes = 0;
};

// Compares; windowed planes are checked only where a query at window_end sees them (0: everywhere).
PatternCheck check_pattern(const PatternTarget& target, uint32_t layer, TokenRange range, uint32_t window_end,
                           const uint64_t* seeds);

}  // namespace dualpath::emulation
