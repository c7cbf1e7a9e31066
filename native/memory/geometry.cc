#include "memory/geometry.h"

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
    if (arena->device() != options.arena->device()) {
      return invalid("arenas '" + options.arena->name() + "' and '" + arena->name() +
                     "' are not of one device; use memory of one");
    }
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
  auto geometry = std::shared_ptr<Geometry>(new Geometry());
  geometry->adopt_slots(std::move(options));
  geometry->index_slots();
  *out = std::move(geometry);
  return {};
}

void Geometry::adopt_slots(GeometryOptions options) {
  block_tokens_ = options.block_tokens;
  layers_ = std::move(options.layers);
  offset_bytes_ = options.offset_bytes;
  slot_stride_bytes_ = options.slot_stride_bytes;
  slots_per_arena_ = options.slots_per_arena;
  device_ = options.arena->device();
  arenas_.push_back(std::move(options.arena));
  for (auto& arena : options.more_arenas) arenas_.push_back(std::move(arena));
  for (const auto& arena : arenas_) bases_.push_back(arena->base() + offset_bytes_);
  tables_.push_back({"", options.slots, block_tokens_, 1, 1, 0, 0, 0});
}

GeometryOptions Geometry::options() const {
  GeometryOptions options;
  options.arena = arenas_[0];
  options.more_arenas.assign(arenas_.begin() + 1, arenas_.end());
  options.slots_per_arena = slots_per_arena_;
  options.offset_bytes = offset_bytes_;
  options.slot_stride_bytes = slot_stride_bytes_;
  options.slots = slots();
  options.block_tokens = block_tokens_;
  options.layers = layers_;
  return options;
}

// Slots are pages of one table, each a block.
void Geometry::index_slots() {
  for (const LayerPlaces& layer : layers_) {
    first_plane_.push_back(static_cast<uint32_t>(table_of_.size()));
    for (const Plane& plane : layer.planes) {
      first_strip_.push_back(static_cast<uint32_t>(strips_.size()));
      table_of_.push_back(0);
      strips_.push_back({bases_[0] + layer.offset_bytes + plane.offset_bytes, slot_stride_bytes_,
                         plane.token_stride_bytes, plane.bytes_per_token});
    }
  }
  first_strip_.push_back(static_cast<uint32_t>(strips_.size()));
}

bool Geometry::slots_hold(uint64_t bytes, uint64_t alignment) const {
  if (paged() || slot_stride_bytes_ < bytes || slot_stride_bytes_ % alignment != 0) return false;
  for (size_t k = 0; k < bases_.size(); k++) {
    const uint64_t first = k * slots_per_arena_;
    const uint64_t count = std::min<uint64_t>(slots_per_arena_, slots() - first);
    const uint64_t last = offset_bytes_ + (count - 1) * slot_stride_bytes_;
    if (last > arenas_[k]->bytes() || bytes > arenas_[k]->bytes() - last) return false;
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

}  // namespace dualpath
