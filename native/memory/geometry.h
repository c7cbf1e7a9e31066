// Where a token's KV lies in memory: for every layer a list of planes, a block of tokens at a time. Full
// Blocks in a buffer, Layer Blocks in HBM and an engine's own paged memory are all geometries of the same
// shape; copying between them needs no layout conversion as long as shapes agree.
//
// A block is named by one slot number, or in paged memory by as many entries as it has pages in every page
// table of the engine. Lists of blocks in the slot table have entries_per_block() entries a block.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/status.h"
#include "memory/arena.h"
#include "memory/region.h"

namespace dualpath {

// Part of a layer's KV, e.g. K, V or the MLA latent; contiguous per token except in paged memory.
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

// A run of a token's bytes that lies together in an engine's pages: the whole row (NHD), a head of it (HND),
// the values or the scales (indexer).
struct PagePart {
  std::shared_ptr<Region> region;
  uint64_t offset_bytes;  // of token 0 of page 0
  uint64_t page_stride_bytes;
  uint64_t token_stride_bytes;
  uint32_t bytes;
};

struct PagedPlane {
  uint32_t table;  // index of the page table its pages are found by
  uint32_t window_tokens;
  std::vector<PagePart> parts;  // in the order of the token's bytes
};

// The pages of a KV group; page_tokens is a multiple of the block's tokens or divides them.
struct PageTable {
  std::string name;
  uint32_t pages;
  uint32_t page_tokens;
};

struct PagedOptions {
  uint32_t block_tokens = 0;
  std::vector<PageTable> tables;
  std::vector<std::vector<PagedPlane>> layers;
};

struct TokenRange {
  uint32_t begin;
  uint32_t end;
};

// Part p of a plane as it is found by address: base + page * page_stride + token * token_stride.
struct Strip {
  std::byte* base;
  uint64_t page_stride;
  uint64_t token_stride;
  uint32_t bytes;
};

struct Strips {
  const Strip* data;
  uint32_t count;
};

struct Place {
  uint64_t page;
  uint32_t token;   // in the page
  uint32_t tokens;  // to the end of the page or of the block
};

class Geometry {
 public:
  static constexpr uint32_t kMaxLayers = 1024;
  static constexpr uint32_t kMaxPlanes = 256;
  static constexpr uint32_t kMaxTables = 64;
  static constexpr uint32_t kMaxStrips = 1 << 14;
  static constexpr uint32_t kMaxEntriesPerBlock = 1 << 16;

  // A page table as blocks use it. A page of k blocks makes k entries of each page; a block of k pages has k
  // entries.
  struct Table {
    std::string name;
    uint32_t pages;
    uint32_t page_tokens;
    uint32_t entries;          // a block
    uint32_t blocks_per_page;  // 1 when a block is a page or more
    uint32_t first_entry;      // in a block's entries
    uint32_t window_tokens;    // of all its planes, 0 when one has none
    uint32_t pool;             // tables of one pool share memory: a page belongs to one of them at a time
  };

  // INVALID_ARGUMENT when a slot, layer or plane would lie outside its arena.
  static Status create(GeometryOptions options, std::shared_ptr<const Geometry>* out);
  // INVALID_ARGUMENT also when two places share a byte.
  static Status create_paged(const PagedOptions& options, std::shared_ptr<const Geometry>* out);

  uint32_t slots() const { return tables_[0].pages * tables_[0].blocks_per_page; }
  uint32_t block_tokens() const { return block_tokens_; }
  uint32_t layers() const { return static_cast<uint32_t>(layers_.size()); }
  uint32_t entries_per_block() const { return entries_per_block_; }
  const std::vector<Table>& tables() const { return tables_; }
  bool paged() const { return bases_.empty(); }
  // Whose memory it is; nullptr: the CPU reaches it. Otherwise slot(), at() and address() are addresses
  // there.
  const std::shared_ptr<DeviceMemory>& device() const { return device_; }

  // Not of paged memory.
  std::byte* slot(uint32_t index) const {
    if (bases_.size() == 1) return bases_[0] + index * slot_stride_bytes_;
    return bases_[index / slots_per_arena_] + index % slots_per_arena_ * slot_stride_bytes_;
  }
  // Whether every slot has `bytes` bytes, from an address that is a multiple of alignment.
  bool slots_hold(uint64_t bytes, uint64_t alignment) const;
  // Of slots.
  template <typename Visit>
  void for_each_arena(Visit visit) const {
    for (const auto& arena : arenas_) visit(arena);
  }
  // Of any memory: visit(name, base, bytes); a range may come more than once.
  template <typename Visit>
  void for_each_range(Visit visit) const {
    for (const auto& arena : arenas_) visit(arena->name(), arena->base(), arena->bytes());
    for (const auto& region : regions_) visit(region->name(), region->base(), region->bytes());
  }
  // Of paged memory; a region may come more than once.
  template <typename Visit>
  void for_each_region(Visit visit) const {
    for (const auto& region : regions_) visit(region);
  }
  // What slots were made of, to be told to a peer.
  GeometryOptions options() const;
  uint64_t slot_stride_bytes() const { return slot_stride_bytes_; }
  std::byte* at(uint32_t slot_index, uint32_t layer, const Plane& plane, uint32_t token) const {
    return slot(slot_index) + layers_[layer].offset_bytes + plane.offset_bytes +
           static_cast<uint64_t>(token) * plane.token_stride_bytes;
  }
  const std::vector<Plane>& planes(uint32_t layer) const { return layers_[layer].planes; }

  // Of any memory. False when the entry that names the token's page is no page.
  bool find(const uint32_t* entries, uint32_t layer, uint32_t plane, uint32_t token, Place* place) const {
    const Table& table = tables_[table_of_[first_plane_[layer] + plane]];
    const uint32_t index = table.first_entry + (table.entries == 1 ? 0 : token / table.page_tokens);
    const uint32_t entry = *static_cast<const volatile uint32_t*>(entries + index);  // once: it is shared
    if (entry >= static_cast<uint64_t>(table.pages) * table.blocks_per_page) return false;
    if (table.entries > 1) {
      const uint32_t within = token % table.page_tokens;
      *place = {entry, within, table.page_tokens - within};
    } else if (table.blocks_per_page > 1) {
      *place = {entry / table.blocks_per_page, entry % table.blocks_per_page * block_tokens_ + token,
                block_tokens_ - token};
    } else {
      *place = {entry, token, block_tokens_ - token};
    }
    return true;
  }
  Strips strips(uint32_t layer, uint32_t plane) const {
    const uint32_t index = first_plane_[layer] + plane;
    return {strips_.data() + first_strip_[index], first_strip_[index + 1] - first_strip_[index]};
  }
  std::byte* address(const Strip& strip, const Place& place) const {
    if (bases_.size() > 1) {
      return slot(static_cast<uint32_t>(place.page)) + (strip.base - bases_[0]) +
             place.token * strip.token_stride;
    }
    return strip.base + place.page * strip.page_stride + place.token * strip.token_stride;
  }

  // Same layers, block_tokens, planes and windows: blocks can be copied between the two.
  bool same_shape(const Geometry& other) const;

  // The part of `range` that a query at position window_end can see through a plane of such a window.
  static TokenRange visible(uint32_t window_tokens, TokenRange range, uint32_t window_end) {
    if (window_tokens != 0 && window_end >= window_tokens) {
      const uint32_t first = window_end - window_tokens + 1;
      if (first > range.begin) range.begin = first < range.end ? first : range.end;
    }
    return range;
  }
  static TokenRange visible(const Plane& plane, TokenRange range, uint32_t window_end) {
    return visible(plane.window_tokens, range, window_end);
  }

 private:
  Geometry() = default;
  void adopt_slots(GeometryOptions options);
  void index_slots();
  void index_pages(const PagedOptions& options);
  Status place_tables(const PagedOptions& options);

  std::shared_ptr<DeviceMemory> device_;
  uint32_t block_tokens_ = 0;
  uint32_t entries_per_block_ = 1;
  std::vector<LayerPlaces> layers_;
  std::vector<Table> tables_;
  std::vector<uint32_t> first_plane_;  // of each layer, in the two below
  std::vector<uint32_t> table_of_;
  std::vector<uint32_t> first_strip_;  // one more than there are planes
  std::vector<Strip> strips_;

  // Slots only.
  uint64_t offset_bytes_ = 0;
  uint64_t slot_stride_bytes_ = 0;
  uint32_t slots_per_arena_ = 0;
  std::vector<std::byte*> bases_;  // of each arena's first slot
  std::vector<std::shared_ptr<Arena>> arenas_;
  // Pages only.
  std::vector<std::shared_ptr<Region>> regions_;
};

// One block of one layer, between memories that the CPU reaches. Each side's entries name it; `block` is its
// position in its sequence; only tokens of `range` (positions in the sequence) move. Adds the bytes moved to
// *bytes. False when an entry is no page: what came before it has moved.
bool copy_block(const Geometry& from, const uint32_t* from_entries, const Geometry& to,
                const uint32_t* to_entries, uint32_t layer, uint32_t block, TokenRange range,
                uint32_t window_end, uint64_t* bytes);

}  // namespace dualpath
