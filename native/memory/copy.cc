// The inner loops of every move between memories of this host.
#include <string.h>

#include <algorithm>

#include "memory/geometry.h"

namespace dualpath {
namespace {

struct Rows {
  std::byte* at;
  uint64_t stride;
};

template <size_t kBytes>
void copy_fixed(Rows to, Rows from, uint32_t rows) {
  for (uint32_t i = 0; i < rows; i++) memcpy(to.at + i * to.stride, from.at + i * from.stride, kBytes);
}

constexpr size_t kLine = 64;
constexpr size_t kShortRow = 4096;

// Sizes that heads have are copied in line: a call for each would cost as much as the bytes. So are single
// short rows: what memcpy prepares for long copies costs a row of a page of one token half its speed.
void copy_rows(Rows to, Rows from, size_t bytes, uint32_t rows) {
  if (rows == 1 && bytes <= kShortRow && bytes % kLine == 0) {
    for (size_t at = 0; at < bytes; at += kLine) memcpy(to.at + at, from.at + at, kLine);
    return;
  }
  if (rows == 1 || (to.stride == bytes && from.stride == bytes)) {
    memcpy(to.at, from.at, bytes * rows);
    return;
  }
  switch (bytes) {
    case 64:
      return copy_fixed<64>(to, from, rows);
    case 128:
      return copy_fixed<128>(to, from, rows);
    case 256:
      return copy_fixed<256>(to, from, rows);
    default:
      for (uint32_t i = 0; i < rows; i++) memcpy(to.at + i * to.stride, from.at + i * from.stride, bytes);
  }
}

}  // namespace

bool copy_block(const Geometry& from, const uint32_t* from_entries, const Geometry& to,
                const uint32_t* to_entries, uint32_t layer, uint32_t block, TokenRange range,
                uint32_t window_end, uint64_t* bytes) {
  const uint32_t block_tokens = from.block_tokens();
  const uint64_t first = static_cast<uint64_t>(block) * block_tokens;
  const uint64_t last = first + block_tokens;
  if (range.begin >= last || range.end <= first) return true;
  const TokenRange within{static_cast<uint32_t>(std::max<uint64_t>(range.begin, first)),
                          static_cast<uint32_t>(std::min<uint64_t>(range.end, last))};
  const auto& planes = from.planes(layer);
  for (uint32_t p = 0; p < planes.size(); p++) {
    const TokenRange seen = Geometry::visible(planes[p], within, window_end);
    const Strips sources = from.strips(layer, p);
    const Strips targets = to.strips(layer, p);
    uint32_t token = static_cast<uint32_t>(seen.begin - first);
    const uint32_t end = static_cast<uint32_t>(seen.end - first);
    while (token < end) {
      Place source;
      Place target;
      if (!from.find(from_entries, layer, p, token, &source)) return false;
      if (!to.find(to_entries, layer, p, token, &target)) return false;
      const uint32_t rows = std::min({end - token, source.tokens, target.tokens});
      // The parts of both sides side by side: each piece lies together in both.
      uint32_t s = 0;
      uint32_t t = 0;
      uint32_t of_source = 0;
      uint32_t of_target = 0;
      while (s < sources.count) {
        const Strip& a = sources.data[s];
        const Strip& b = targets.data[t];
        const uint32_t piece = std::min(a.bytes - of_source, b.bytes - of_target);
        copy_rows({to.address(b, target) + of_target, b.token_stride},
                  {from.address(a, source) + of_source, a.token_stride}, piece, rows);
        if ((of_source += piece) == a.bytes) of_source = 0, s++;
        if ((of_target += piece) == b.bytes) of_target = 0, t++;
      }
      token += rows;
    }
    *bytes += static_cast<uint64_t>(planes[p].bytes_per_token) * (end - (seen.begin - first));
  }
  return true;
}

}  // namespace dualpath
