#include "memory/overlap.h"

#include <optional>

namespace dualpath {
namespace {

uint64_t modulo(int64_t value, uint64_t unit) {
  const int64_t rest = value % static_cast<int64_t>(unit);
  return static_cast<uint64_t>(rest < 0 ? rest + static_cast<int64_t>(unit) : rest);
}

int64_t distance(const StridedPlace& a, const StridedPlace& b) {
  return static_cast<int64_t>(b.begin - a.begin);
}

// Rows of page p of a, and of b's page that begins `delta` bytes after it.
bool rows_apart(const StridedPlace& a, const StridedPlace& b, int64_t delta) {
  if (delta >= static_cast<int64_t>(a.page_extent()) || delta + static_cast<int64_t>(b.page_extent()) <= 0)
    return true;
  const uint64_t stride = a.page_tokens > 1 ? a.token_stride : b.token_stride;
  if (a.page_tokens > 1 && b.page_tokens > 1 && a.token_stride != b.token_stride) return false;
  if (stride == 0) return false;
  const uint64_t rest = modulo(delta, stride);
  return rest >= a.bytes && rest + b.bytes <= stride;
}

// How far after a's page the page of b begins that alone can meet it; nothing when several can.
std::optional<int64_t> lone_page(const StridedPlace& a, const StridedPlace& b) {
  if (a.pages == 1 && b.pages == 1) return distance(a, b);
  const uint64_t stride = a.pages > 1 ? a.page_stride : b.page_stride;
  if (a.pages > 1 && b.pages > 1 && a.page_stride != b.page_stride) return std::nullopt;
  if (a.page_extent() > stride || b.page_extent() > stride) return std::nullopt;
  const uint64_t rest = modulo(distance(a, b), stride);
  if (rest + b.page_extent() <= stride) return static_cast<int64_t>(rest);
  if (a.page_extent() <= rest) return static_cast<int64_t>(rest) - static_cast<int64_t>(stride);
  return std::nullopt;
}

}  // namespace

bool rows_are_disjoint(const StridedPlace& place) {
  if (place.page_tokens > 1 && place.token_stride < place.bytes) return false;
  if (place.pages == 1 || place.page_stride >= place.page_extent()) return true;
  return place.page_stride >= place.bytes &&
         (place.page_tokens == 1 ||
          place.token_stride >= (place.pages - 1) * place.page_stride + place.bytes);
}

bool places_are_disjoint(const StridedPlace& a, const StridedPlace& b) {
  if (a.end() <= b.begin || b.end() <= a.begin) return true;
  const std::optional<int64_t> delta = lone_page(a, b);
  return delta.has_value() && rows_apart(a, b, *delta);
}

bool share_pages_only(const StridedPlace& a, const StridedPlace& b) {
  if (a.pages != b.pages) return false;
  const std::optional<int64_t> delta = lone_page(a, b);
  return delta.has_value() && *delta == distance(a, b);
}

}  // namespace dualpath
