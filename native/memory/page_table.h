// From an engine's own page tables to the entries that name blocks: what a request's pages are, checked.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "core/status.h"
#include "memory/geometry.h"

namespace dualpath {

// Blocks [first_block, first_block + blocks) of a sequence, of which only `tokens` will be touched, and of
// windowed planes only what a query at window_end sees.
struct BlockSpan {
  uint32_t first_block;
  uint32_t blocks;
  TokenRange tokens;
  uint32_t window_end;
};

class PageTableReader {
 public:
  // Writes blocks * entries_per_block() entries. tables[t][0] is the page, of table t, that holds the first
  // token of first_block. Pages without a token to touch are not looked at, and may be missing at the end.
  // INVALID_ARGUMENT, with nothing in flight yet, for tables too short, pages out of range and pages named
  // twice.
  Status read(const Geometry& geometry, const BlockSpan& span,
              const std::vector<std::span<const uint32_t>>& tables, uint32_t* entries);

 private:
  Status check(const Geometry& geometry, const BlockSpan& span,
               const std::vector<std::span<const uint32_t>>& tables);
  std::vector<uint64_t> taken_;       // bits of a page, of all pools; clear between two calls
  std::vector<uint64_t> first_page_;  // of each pool, in taken_
};

}  // namespace dualpath
