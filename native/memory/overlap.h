// Whether strided places share bytes: what an engine says of its memory may be wrong, and then one plane's KV
// would silently overwrite another's.
#pragma once
#include <cstdint>

namespace dualpath {

// pages x page_tokens rows of `bytes` bytes, from address `begin` on.
struct StridedPlace {
  uint64_t begin;
  uint64_t page_stride;
  uint64_t token_stride;
  uint32_t pages;
  uint32_t page_tokens;
  uint32_t bytes;

  // Saturates; what lies in a region cannot.
  uint64_t page_extent() const { return (page_tokens - 1) * token_stride + bytes; }
  uint64_t end() const { return begin + (pages - 1) * page_stride + page_extent(); }
};

// Rows of one place among themselves. Strides must nest: rows within pages or pages within rows.
bool rows_are_disjoint(const StridedPlace& place);

// Rows of two places. Exact for places of one page stride whose pages do not interleave otherwise than row by
// row with one token stride, which is what tensors are; anything else that cannot be told apart counts as
// shared.
bool places_are_disjoint(const StridedPlace& a, const StridedPlace& b);

// Whether page p of one meets page p of the other and no other page: memory that KV groups share by the page.
bool share_pages_only(const StridedPlace& a, const StridedPlace& b);

}  // namespace dualpath
