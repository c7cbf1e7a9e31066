// Which bytes of a block go where: the loop that every way of copying has in common.
#pragma once
#include <algorithm>
#include <cstdint>

#include "memory/geometry.h"

namespace dualpath {

// Rows of a piece that lies together in both memories, token after token.
struct PieceRows {
  std::byte* to;
  std::byte* from;
  uint64_t to_stride, from_stride;
  uint32_t bytes;
  uint32_t rows;
};

// As copy_block() (memory/geometry.h), with visit(rows) -> bool in place of the copying; false ends it. False
// when an entry is no page or a visit said so.
template <typename Visit>
bool walk_block(const Geometry& from, const uint32_t* from_entries, const Geometry& to,
                const uint32_t* to_entries, uint32_t layer, uint32_t block, TokenRange range,
                uint32_t window_end, uint64_t* bytes, Visit visit) {
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
        if (!visit(PieceRows{to.address(b, target) + of_target, from.address(a, source) + of_source,
                             b.token_stride, a.token_stride, piece, rows})) {
          return false;
        }
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
