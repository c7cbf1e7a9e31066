// Memory and geometries for tests: exactly sized allocations, so that AddressSanitizer sees a byte too far,
// and the layouts that engines use.
#pragma once
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "memory/geometry.h"

namespace dualpath::test {

// An arena over `bytes` bytes of its own, page aligned, every one of them 0xee.
inline std::shared_ptr<Arena> exact_arena(size_t bytes) {
  struct Owned {
    std::unique_ptr<std::byte, decltype(&std::free)> memory{nullptr, &std::free};
    std::shared_ptr<Arena> arena;
  };
  auto owned = std::make_shared<Owned>();
  void* base = nullptr;
  if (posix_memalign(&base, Arena::kAlignment, bytes) != 0) std::abort();
  owned->memory.reset(static_cast<std::byte*>(base));
  std::fill_n(owned->memory.get(), bytes, std::byte{0xee});
  owned->arena = Arena::adopt("test", owned->memory.get(), bytes, ArenaKind::kHost);
  return std::shared_ptr<Arena>(owned, owned->arena.get());
}

// The memory of a geometry below, to the end of its last plane.
inline std::span<std::byte> memory_of(const Geometry& geometry) {
  std::byte* const base = geometry.slot(0);
  size_t bytes = 0;
  for (uint32_t l = 0; l < geometry.layers(); l++) {
    for (const Plane& plane : geometry.planes(l)) {
      const std::byte* last = geometry.at(geometry.slots() - 1, l, plane, geometry.block_tokens() - 1);
      bytes = std::max(bytes, static_cast<size_t>(last - base) + plane.bytes_per_token);
    }
  }
  return {base, bytes};
}

struct PlaneShape {
  uint32_t bytes_per_token;
  uint32_t window_tokens = 0;
};

struct Shape {
  uint32_t block_tokens = 16;
  std::vector<std::vector<PlaneShape>> layers;

  uint64_t layer_bytes(size_t layer) const {
    uint64_t bytes = 0;
    for (const PlaneShape& plane : layers[layer]) bytes += uint64_t{plane.bytes_per_token} * block_tokens;
    return bytes;
  }
  uint64_t block_bytes() const {
    uint64_t bytes = 0;
    for (size_t l = 0; l < layers.size(); l++) bytes += layer_bytes(l);
    return bytes;
  }
  std::vector<uint64_t> all_layer_bytes() const {
    std::vector<uint64_t> bytes;
    for (size_t l = 0; l < layers.size(); l++) bytes.push_back(layer_bytes(l));
    return bytes;
  }
};

inline Shape uniform_shape(size_t layers, uint32_t block_tokens, std::vector<PlaneShape> planes) {
  return {block_tokens, std::vector<std::vector<PlaneShape>>(layers, std::move(planes))};
}

inline std::shared_ptr<const Geometry> make_geometry(GeometryOptions options, uint64_t arena_bytes) {
  options.arena = exact_arena(arena_bytes);
  std::shared_ptr<const Geometry> geometry;
  const Status status = Geometry::create(std::move(options), &geometry);
  EXPECT_TRUE(status.ok()) << status.message;
  return geometry;
}

// The planes of a layer one after the other, each [tokens, bytes_per_token].
inline std::vector<Plane> stacked_planes(const std::vector<PlaneShape>& planes, uint32_t block_tokens) {
  std::vector<Plane> places;
  uint64_t offset = 0;
  for (const PlaneShape& plane : planes) {
    places.push_back({offset, plane.bytes_per_token, plane.bytes_per_token, plane.window_tokens});
    offset += uint64_t{plane.bytes_per_token} * block_tokens;
  }
  return places;
}

// Full Blocks with room for the block file's header, strides of whole pages: what READ and WRITE need.
inline std::shared_ptr<const Geometry> full_blocks(const Shape& shape, uint32_t slots,
                                                   uint64_t header_bytes = 4096) {
  GeometryOptions options;
  options.slots = slots;
  options.block_tokens = shape.block_tokens;
  uint64_t offset = header_bytes;
  for (size_t l = 0; l < shape.layers.size(); l++) {
    options.layers.push_back({offset, stacked_planes(shape.layers[l], shape.block_tokens)});
    offset += shape.layer_bytes(l);
  }
  options.slot_stride_bytes = (offset + 4095) / 4096 * 4096;
  return make_geometry(options, options.slot_stride_bytes * slots);
}

// Layer Blocks of `window` layers: layer l lies where layer l mod window lies. Layers of one size.
inline std::shared_ptr<const Geometry> staging(const Shape& shape, uint32_t slots, uint32_t window) {
  GeometryOptions options;
  options.slots = slots;
  options.block_tokens = shape.block_tokens;
  options.slot_stride_bytes = shape.layer_bytes(0);
  for (size_t l = 0; l < shape.layers.size(); l++) {
    options.layers.push_back(
        {l % window * slots * shape.layer_bytes(0), stacked_planes(shape.layers[l], shape.block_tokens)});
  }
  return make_geometry(options, window * slots * shape.layer_bytes(0));
}

// As vLLM's HND cache: a tensor a layer, [blocks, planes (heads), tokens, bytes].
inline std::shared_ptr<const Geometry> tensor_per_layer(const Shape& shape, uint32_t slots) {
  return staging(shape, slots, static_cast<uint32_t>(shape.layers.size()));
}

// As an NHD cache with K and V side by side: a token's planes lie together, so every row has a stride.
inline std::shared_ptr<const Geometry> interleaved(const Shape& shape, uint32_t slots, uint32_t gap_bytes) {
  GeometryOptions options;
  options.slots = slots;
  options.block_tokens = shape.block_tokens;
  uint64_t offset = 0;
  for (const auto& planes : shape.layers) {
    uint32_t row = gap_bytes;
    for (const PlaneShape& plane : planes) row += plane.bytes_per_token;
    LayerPlaces places{offset, {}};
    uint64_t within = 0;
    for (const PlaneShape& plane : planes) {
      places.planes.push_back({within, plane.bytes_per_token, row, plane.window_tokens});
      within += plane.bytes_per_token;
    }
    offset += uint64_t{row} * shape.block_tokens;
    options.layers.push_back(std::move(places));
  }
  options.slot_stride_bytes = offset;
  return make_geometry(options, offset * slots);
}

}  // namespace dualpath::test
