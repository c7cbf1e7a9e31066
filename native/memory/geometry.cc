#include "memory/geometry.h"

#include <string.h>

#include <algorithm>
#include <string>

namespace dualpath {
namespace {

Status invalid(std::string message) { return Status::error("INVALID_ARGUMENT", "geometry: " + message); }

// Bytes from the slot's start to one past the plane's last byte; false on overflow.
bool plane_end(const LayerPlaces& layer, const Plane& plane, uint32_t block_tokens, uint64_t* end) {
  uint64_t last;
  uint64_t sum;
  return !__builtin_mul_overflow(static_cast<uint64_t>(block_tokens - 1), plane.token_stride_bytes, &last) &&
         !__builtin_add_overflow(last, plane.bytes_per_token, &sum) &&
         !__builtin_add_overflow(sum, plane.offset_bytes, &sum) &&
         !__builtin_add_overflow(sum, layer.offset_bytes, end);
}

}  // namespace

Status Geometry::create(GeometryOptions options, std::shared_ptr<const Geometry>* out) {
  if (options.arena == nullptr) return invalid("no arena");
  if (options.slots == 0 || options.block_tokens == 0)
    return invalid("slots and block_tokens must be at least 1");
  if (options.layers.empty() || options.layers.size() > kMaxLayers) {
    return invalid(std::to_string(options.layers.size()) + " layers, 1 to " + std::to_string(kMaxLayers) +
                   " allowed");
  }
  uint64_t end = 0;
  for (const LayerPlaces& layer : options.layers) {
    if (layer.planes.empty() || layer.planes.size() > kMaxPlanes) {
      return invalid(std::to_string(layer.planes.size()) + " planes in a layer, 1 to " +
                     std::to_string(kMaxPlanes) + " allowed");
    }
    for (const Plane& plane : layer.planes) {
      if (plane.bytes_per_token == 0 || plane.token_stride_bytes < plane.bytes_per_token) {
        return invalid("a plane of " + std::to_string(plane.bytes_per_token) + " bytes a token with stride " +
                       std::to_string(plane.token_stride_bytes) + "; the stride must be at least the size");
      }
      uint64_t this_end;
      if (!plane_end(layer, plane, options.block_tokens, &this_end)) return invalid("sizes overflow 64 bits");
      end = std::max(end, this_end);
    }
  }
  if (options.slots_per_arena == 0) options.slots_per_arena = options.slots;
  const uint64_t arenas =
      (static_cast<uint64_t>(options.slots) + options.slots_per_arena - 1) / options.slots_per_arena;
  if (arenas != options.more_arenas.size() + 1) {
    return invalid(std::to_string(options.slots) + " slots, " + std::to_string(options.slots_per_arena) +
                   " an arena: " + std::to_string(arenas) + " arenas are needed, " +
                   std::to_string(options.more_arenas.size() + 1) + " given");
  }
  uint64_t smallest = options.arena->bytes();
  for (const auto& arena : options.more_arenas) {
    if (arena == nullptr) return invalid("no arena");
    smallest = std::min<uint64_t>(smallest, arena->bytes());
  }
  const uint64_t most = std::min(options.slots, options.slots_per_arena);
  uint64_t span;
  if (__builtin_mul_overflow(most - 1, options.slot_stride_bytes, &span) ||
      __builtin_add_overflow(span, end, &span) || __builtin_add_overflow(span, options.offset_bytes, &span) ||
      span > smallest) {
    return invalid(std::to_string(options.slots) + " slots with stride " +
                   std::to_string(options.slot_stride_bytes) + " do not fit the " + std::to_string(smallest) +
                   " bytes of arena '" + options.arena->name() + "'; use fewer slots or a larger arena");
  }
  out->reset(new Geometry(std::move(options)));
  return {};
}

Geometry::Geometry(GeometryOptions options) : options_(std::move(options)) {
  bases_.push_back(options_.arena->base() + options_.offset_bytes);
  for (const auto& arena : options_.more_arenas) bases_.push_back(arena->base() + options_.offset_bytes);
}

bool Geometry::slots_hold(uint64_t bytes, uint64_t alignment) const {
  if (options_.slot_stride_bytes < bytes || options_.slot_stride_bytes % alignment != 0) return false;
  for (size_t k = 0; k < bases_.size(); k++) {
    const Arena& arena = k == 0 ? *options_.arena : *options_.more_arenas[k - 1];
    const uint64_t first = k * options_.slots_per_arena;
    const uint64_t count = std::min<uint64_t>(options_.slots_per_arena, options_.slots - first);
    const uint64_t last = options_.offset_bytes + (count - 1) * options_.slot_stride_bytes;
    if (last > arena.bytes() || bytes > arena.bytes() - last) return false;
    if (reinterpret_cast<uintptr_t>(bases_[k]) % alignment != 0) return false;
  }
  return true;
}

bool Geometry::same_shape(const Geometry& other) const {
  if (this == &other) return true;
  if (block_tokens() != other.block_tokens() || layers() != other.layers()) return false;
  for (uint32_t l = 0; l < layers(); l++) {
    const auto& a = planes(l);
    const auto& b = other.planes(l);
    if (a.size() != b.size()) return false;
    for (size_t p = 0; p < a.size(); p++) {
      if (a[p].bytes_per_token != b[p].bytes_per_token || a[p].window_tokens != b[p].window_tokens)
        return false;
    }
  }
  return true;
}

uint64_t copy_block(const Geometry& from, uint32_t from_slot, const Geometry& to, uint32_t to_slot,
                    uint32_t layer, uint32_t block, TokenRange range, uint32_t window_end) {
  const uint32_t block_tokens = from.block_tokens();
  const uint64_t first = static_cast<uint64_t>(block) * block_tokens;
  const uint64_t last = first + block_tokens;
  if (range.begin >= last || range.end <= first) return 0;
  const TokenRange within{static_cast<uint32_t>(std::max<uint64_t>(range.begin, first)),
                          static_cast<uint32_t>(std::min<uint64_t>(range.end, last))};
  const auto& from_planes = from.planes(layer);
  const auto& to_planes = to.planes(layer);
  uint64_t moved = 0;
  for (size_t p = 0; p < from_planes.size(); p++) {
    const Plane& source = from_planes[p];
    const Plane& target = to_planes[p];
    const TokenRange seen = Geometry::visible(source, within, window_end);
    if (seen.begin >= seen.end) continue;
    const uint32_t token = static_cast<uint32_t>(seen.begin - first);
    const uint32_t count = seen.end - seen.begin;
    const size_t row = source.bytes_per_token;
    const std::byte* src = from.at(from_slot, layer, source, token);
    std::byte* dst = to.at(to_slot, layer, target, token);
    if (source.token_stride_bytes == row && target.token_stride_bytes == row) {
      memcpy(dst, src, row * count);
    } else {
      for (uint32_t i = 0; i < count; i++) {
        memcpy(dst + static_cast<size_t>(i) * target.token_stride_bytes,
               src + static_cast<size_t>(i) * source.token_stride_bytes, row);
      }
    }
    moved += static_cast<uint64_t>(row) * count;
  }
  return moved;
}

}  // namespace dualpath
