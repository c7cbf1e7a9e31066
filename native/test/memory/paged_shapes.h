// Paged memory of random layouts, and a plain account of where each byte of it lies.
#pragma once
#include <random>

#include "test/memory/shapes.h"

namespace dualpath::test {

// A region over `bytes` bytes of its own that ends where they end; every one of them 0xee.
inline std::shared_ptr<Region> exact_region(size_t bytes) {
  const auto arena = exact_arena(bytes);
  const auto region = Region::of(arena);
  struct Kept {
    std::shared_ptr<Arena> arena;
    std::shared_ptr<Region> region;
  };
  auto kept = std::make_shared<Kept>(Kept{arena, region});
  return std::shared_ptr<Region>(kept, region.get());
}

inline std::shared_ptr<const Geometry> make_paged(const PagedOptions& options) {
  std::shared_ptr<const Geometry> geometry;
  const Status status = Geometry::create_paged(options, &geometry);
  EXPECT_TRUE(status.ok()) << status.message;
  return geometry;
}

// Layers of pages over one region, one after the other; of a token 64 bytes each of two heads, head by head
// (HND).
inline std::shared_ptr<const Geometry> hnd_pages(const std::shared_ptr<Region>& region, uint32_t layers,
                                                 uint32_t block_tokens, uint32_t pages,
                                                 uint32_t page_tokens) {
  const uint64_t page_bytes = uint64_t{page_tokens} * 128;
  PagedOptions options;
  options.block_tokens = block_tokens;
  options.tables = {{"kv", pages, page_tokens}};
  for (uint64_t l = 0; l < layers; l++) {
    const uint64_t layer = l * pages * page_bytes;
    options.layers.push_back(
        {{0,
          0,
          {{region, layer, page_bytes, 64, 64}, {region, layer + page_tokens * 64, page_bytes, 64, 64}}}});
  }
  return make_paged(options);
}

inline uint32_t table_entries(const PagedOptions& options, uint32_t table) {
  return std::max(1u, options.block_tokens / options.tables[table].page_tokens);
}

// Byte b of a token of a block, by the words of geometry.h and nothing else.
inline std::byte* byte_of(const PagedOptions& options, const uint32_t* entries, uint32_t layer,
                          uint32_t plane, uint32_t token, uint32_t b) {
  const PagedPlane& its = options.layers[layer][plane];
  uint32_t first = 0;
  for (uint32_t t = 0; t < its.table; t++) first += table_entries(options, t);
  const PageTable& table = options.tables[its.table];
  uint64_t page;
  uint64_t within;
  if (table.page_tokens <= options.block_tokens) {
    page = entries[first + token / table.page_tokens];
    within = token % table.page_tokens;
  } else {
    const uint32_t blocks = table.page_tokens / options.block_tokens;
    page = entries[first] / blocks;
    within = entries[first] % blocks * options.block_tokens + token;
  }
  for (const PagePart& part : its.parts) {
    if (b < part.bytes) {
      return part.region->base() + part.offset_bytes + page * part.page_stride_bytes +
             within * part.token_stride_bytes + b;
    }
    b -= part.bytes;
  }
  ADD_FAILURE() << "no such byte";
  return nullptr;
}

class PagedLayouts {
 public:
  explicit PagedLayouts(uint64_t seed) : random_(seed) {}

  uint32_t below(uint32_t limit) { return static_cast<uint32_t>(random_() % limit); }
  std::mt19937_64& random() { return random_; }

  // Heads of each plane; a plane has heads * head_bytes bytes a token.
  struct Wanted {
    uint32_t block_tokens;
    std::vector<std::vector<std::pair<uint32_t, uint32_t>>> layers;  // planes: (heads, head bytes)
    std::vector<uint32_t> windows;                                   // of each plane, by its index
  };

  Wanted shape() {
    Wanted wanted;
    wanted.block_tokens = 1u << below(5);
    if (below(2) == 0) wanted.block_tokens *= 3;
    const uint32_t planes = 1 + below(3);
    for (uint32_t p = 0; p < planes; p++) wanted.windows.push_back(below(3) == 0 ? 1 + below(20) : 0);
    for (uint32_t l = 1 + below(3); l > 0; l--) {
      wanted.layers.emplace_back();
      for (uint32_t p = 0; p < planes; p++)
        wanted.layers.back().push_back({1 + below(4), below(4) == 0 ? 64 : 1 + below(40)});
    }
    return wanted;
  }

  Shape plain(const Wanted& wanted) {
    Shape shape{wanted.block_tokens, {}};
    for (const auto& planes : wanted.layers) {
      shape.layers.emplace_back();
      for (size_t p = 0; p < planes.size(); p++)
        shape.layers.back().push_back({planes[p].first * planes[p].second, wanted.windows[p]});
    }
    return shape;
  }

  // Pages that divide the block or are a multiple of it; each plane in a table of its own or all in one; each
  // layer in memory of its own; NHD, HND or values and scales apart; gaps here and there.
  PagedOptions paged(const Wanted& wanted, uint32_t blocks) {
    PagedOptions options;
    options.block_tokens = wanted.block_tokens;
    const uint32_t planes = static_cast<uint32_t>(wanted.windows.size());
    const uint32_t tables = below(2) == 0 ? 1 : planes;
    for (uint32_t t = 0; t < tables; t++) {
      uint32_t page = wanted.block_tokens;
      if (below(3) == 0) page *= 1 + below(3);
      while (below(2) == 0 && page > 1 && page <= wanted.block_tokens) {
        page = page % 2 == 0 ? page / 2 : page % 3 == 0 ? page / 3 : page;
        if (page == 3) break;
      }
      const uint32_t pages = blocks * std::max(1u, wanted.block_tokens / page) + below(3);
      options.tables.push_back({std::to_string(t), pages, page});
    }
    for (const auto& layer : wanted.layers) {
      options.layers.emplace_back();
      for (uint32_t p = 0; p < planes; p++) {
        const uint32_t table = tables == 1 ? 0 : p;
        options.layers.back().push_back(
            place({table, wanted.windows[p], {}}, options.tables[table], layer[p].first, layer[p].second));
      }
    }
    return options;
  }

 private:
  PagedPlane place(PagedPlane plane, const PageTable& table, uint32_t heads, uint32_t head_bytes) {
    const uint64_t gap = below(2) * below(9);
    const uint64_t before = below(2) * below(33);
    const uint32_t row = heads * head_bytes;
    if (below(2) == 0) {  // token by token
      const uint64_t stride = row + gap;
      const uint64_t page = stride * table.page_tokens + below(2) * below(50);
      const auto region = exact_region(before + page * table.pages);
      plane.parts.push_back({region, before, page, stride, row});
      return plane;
    }
    const uint64_t of_head = uint64_t{head_bytes} * table.page_tokens + gap;  // head by head
    const uint64_t page = of_head * heads + below(2) * below(50);
    const auto region = exact_region(before + page * table.pages);
    for (uint32_t h = 0; h < heads; h++)
      plane.parts.push_back({region, before + h * of_head, page, head_bytes, head_bytes});
    return plane;
  }

  std::mt19937_64 random_;
};

}  // namespace dualpath::test
