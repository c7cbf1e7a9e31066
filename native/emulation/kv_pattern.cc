#include "emulation/kv_pattern.h"

#include <string.h>

#include <algorithm>

namespace dualpath::emulation {
namespace {

constexpr uint64_t kStep = 0x9e3779b97f4a7c15u;

// The finaliser of splitmix64 (Steele, Lea, Flood, OOPSLA 2014).
inline uint64_t mix(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

inline uint64_t row_seed(uint64_t token_seed, uint32_t layer, size_t plane) {
  return mix(token_seed + (static_cast<uint64_t>(layer) * Geometry::kMaxPlanes + plane + 1) * kStep);
}

// Additions, shifts and xors only: the compiler makes vectors of it on any machine.
inline uint64_t word(uint64_t seed, uint64_t j) {
  const uint64_t x = seed + j * kStep;
  return x ^ (x >> 29);
}

void write_row(std::byte* row, size_t bytes, uint64_t seed) {
  const size_t words = bytes / 8;
  for (size_t j = 0; j < words; j++) {
    const uint64_t value = word(seed, j);
    memcpy(row + j * 8, &value, 8);
  }
  if (bytes % 8 != 0) {
    const uint64_t value = word(seed, words);
    memcpy(row + words * 8, &value, bytes % 8);
  }
}

uint64_t count_mismatches(const std::byte* row, size_t bytes, uint64_t seed) {
  uint64_t wrong = 0;
  for (size_t i = 0; i < bytes; i++) {
    const uint64_t value = word(seed, i / 8);
    if (static_cast<uint8_t>(row[i]) != static_cast<uint8_t>(value >> (8 * (i % 8)))) wrong++;
  }
  return wrong;
}

uint64_t check_row(const std::byte* row, size_t bytes, uint64_t seed) {
  const size_t words = bytes / 8;
  uint64_t difference = 0;
  for (size_t j = 0; j < words; j++) {
    uint64_t value;
    memcpy(&value, row + j * 8, 8);
    difference |= value ^ word(seed, j);
  }
  if (bytes % 8 != 0) {
    uint64_t value = 0;
    const uint64_t expected = word(seed, words);
    uint64_t wanted = 0;
    memcpy(&value, row + words * 8, bytes % 8);
    memcpy(&wanted, &expected, bytes % 8);
    difference |= value ^ wanted;
  }
  return difference == 0 ? 0 : count_mismatches(row, bytes, seed);
}

// Calls visit(strips, place, seed) for every row of `range` that lies in the target.
template <typename Visit>
void for_each_row(const PatternTarget& target, uint32_t layer, TokenRange range, uint32_t window_end,
                  const uint64_t* seeds, Visit visit) {
  const Geometry& geometry = *target.geometry;
  const uint32_t block_tokens = geometry.block_tokens();
  const auto& planes = geometry.planes(layer);
  for (uint32_t p = 0; p < planes.size(); p++) {
    const TokenRange seen = Geometry::visible(planes[p], range, window_end);
    for (uint32_t token = seen.begin; token < seen.end; token++) {
      const uint64_t index = token / block_tokens - target.first_block;
      if (index >= target.slot_count) continue;
      const uint32_t* entries = target.slots + index * geometry.entries_per_block();
      Place place;
      if (!geometry.find(entries, layer, p, token % block_tokens, &place)) continue;
      visit(geometry.strips(layer, p), place, planes[p].bytes_per_token, row_seed(seeds[token], layer, p));
    }
  }
}

// A row that lies in several parts, put together and taken apart.
template <typename Move>
void for_each_part(const Geometry& geometry, Strips strips, const Place& place, std::byte* row, Move move) {
  for (uint32_t i = 0; i < strips.count; i++) {
    move(geometry.address(strips.data[i], place), row, strips.data[i].bytes);
    row += strips.data[i].bytes;
  }
}

}  // namespace

std::vector<uint64_t> kv_seeds(const uint32_t* tokens, size_t count) {
  std::vector<uint64_t> seeds(count);
  uint64_t state = 0x6475616c70617468u;
  for (size_t i = 0; i < count; i++) {
    state = mix(state + kStep + tokens[i]);
    seeds[i] = state;
  }
  return seeds;
}

void write_pattern(const PatternTarget& target, uint32_t layer, TokenRange range, const uint64_t* seeds) {
  std::vector<std::byte> whole;
  const Geometry& geometry = *target.geometry;
  for_each_row(target, layer, range, 0, seeds,
               [&](Strips strips, const Place& place, size_t bytes, uint64_t seed) {
                 if (strips.count == 1) return write_row(geometry.address(*strips.data, place), bytes, seed);
                 whole.resize(bytes);
                 write_row(whole.data(), bytes, seed);
                 for_each_part(geometry, strips, place, whole.data(),
                               [](std::byte* part, std::byte* row, size_t n) { memcpy(part, row, n); });
               });
}

PatternCheck check_pattern(const PatternTarget& target, uint32_t layer, TokenRange range, uint32_t window_end,
                           const uint64_t* seeds) {
  PatternCheck result;
  std::vector<std::byte> whole;
  const Geometry& geometry = *target.geometry;
  for_each_row(target, layer, range, window_end, seeds,
               [&](Strips strips, const Place& place, size_t bytes, uint64_t seed) {
                 result.checked_bytes += bytes;
                 const std::byte* row = geometry.address(*strips.data, place);
                 if (strips.count > 1) {
                   whole.resize(bytes);
                   for_each_part(geometry, strips, place, whole.data(),
                                 [](std::byte* part, std::byte* copy, size_t n) { memcpy(copy, part, n); });
                   row = whole.data();
                 }
                 result.mismatched_bytes += check_row(row, bytes, seed);
               });
  return result;
}

}  // namespace dualpath::emulation
