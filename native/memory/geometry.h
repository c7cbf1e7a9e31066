// Where a token's KV lies in a region: slots of block_tokens tokens, for every layer a list of planes.
// Full Blocks in a buffer, Layer Blocks in HBM and an engine's own paged memory are all geometries of
// the same shape; copying between them needs no layout conversion as long as shapes agree.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "core/status.h"
#include "memory/arena.h"

namespace dualpath {

// Part of a layer's KV that is contiguous per token, e.g. K, V or the MLA latent.
struct Plane {
  uint64_t offset_bytes;  // of token 0, from the layer's place in the slot
  uint32_t bytes_per_token;
  uint32_t token_stride_bytes;
  uint32_t window_tokens;  // 0: every token is visible to later ones
};

struct LayerPlaces {
  uint64_t offset_bytes;  // of the layer, from the start of slot 0
  std::vector<Plane> planes;
};

struct GeometryOptions {
  std::shared_ptr<Arena> arena;
  // Memory of more than one arena: slots [k * slots_per_arena, (k + 1) * slots_per_arena) lie in arena k,
  // of `arena` followed by these.
  std::vector<std::shared_ptr<Arena>> more_arenas;
  uint32_t slots_per_arena = 0;  // 0: all
  uint64_t offset_bytes = 0;     // of each arena's first slot in it
  uint64_t slot_stride_bytes = 0;
  uint32_t slots = 0;
  uint32_t block_tokens = 0;
  std::vector<LayerPlaces> layers;
};

struct TokenRange {
  uint32_t begin;
  uint32_t end;
};

class Geometry {
 public:
  static constexpr uint32_t kMaxLayers = 1024;
  static constexpr uint32_t kMaxPlanes = 256;

  // INVALID_ARGUMENT when a slot, layer or plane would lie outside its arena.
  static Status create(GeometryOptions options, std::shared_ptr<const Geometry>* out);

  uint32_t slots() const { return options_.slots; }
  uint32_t block_tokens() const { return options_.block_tokens; }
  uint32_t layers() const { return static_cast<uint32_t>(options_.layers.size()); }

  std::byte* slot(uint32_t index) const {
    if (bases_.size() == 1) return bases_[0] + index * options_.slot_stride_bytes;
    return bases_[index / options_.slots_per_arena] +
           index % options_.slots_per_arena * options_.slot_stride_bytes;
  }
  // Whether every slot has `bytes` bytes, from an address that is a multiple of alignment.
  bool slots_hold(uint64_t bytes, uint64_t alignment) const;
  template <typename Visit>
  void for_each_arena(Visit visit) const {
    visit(options_.arena);
    for (const auto& arena : options_.more_arenas) visit(arena);
  }
  uint64_t slot_stride_bytes() const { return options_.slot_stride_bytes; }
  std::byte* at(uint32_t slot_index, uint32_t layer, const Plane& plane, uint32_t token) const {
    return slot(slot_index) + options_.layers[layer].offset_bytes + plane.offset_bytes +
           static_cast<uint64_t>(token) * plane.token_stride_bytes;
  }
  const std::vector<Plane>& planes(uint32_t layer) const { return options_.layers[layer].planes; }

  // Same layers, block_tokens, planes and windows: blocks can be copied between the two.
  bool same_shape(const Geometry& other) const;

  // The part of `range` that a query at position window_end can see through this plane.
  static TokenRange visible(const Plane& plane, TokenRange range, uint32_t window_end) {
    if (plane.window_tokens != 0 && window_end >= plane.window_tokens) {
      const uint32_t first = window_end - plane.window_tokens + 1;
      if (first > range.begin) range.begin = first < range.end ? first : range.end;
    }
    return range;
  }

 private:
  explicit Geometry(GeometryOptions options);
  GeometryOptions options_;
  std::vector<std::byte*> bases_;  // of each arena's first slot
};

// One block of one layer, from a slot to a slot. `block` is the block's position in its sequence;
// only tokens of `range` (positions in the sequence) move. Returns the bytes moved.
uint64_t copy_block(const Geometry& from, uint32_t from_slot, const Geometry& to, uint32_t to_slot,
                    uint32_t layer, uint32_t block, TokenRange range, uint32_t window_end);

}  // namespace dualpath
