// The inner loops of every move between memories of this host.
#include <string.h>

#include "memory/geometry.h"
#include "memory/walk.h"

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
  return walk_block(
      from, from_entries, to, to_entries, layer, block, range, window_end, bytes, [](const PieceRows& piece) {
        copy_rows({piece.to, piece.to_stride}, {piece.from, piece.from_stride}, piece.bytes, piece.rows);
        return true;
      });
}

}  // namespace dualpath
