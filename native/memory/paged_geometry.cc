// Geometries of an engine's paged memory: checked as a whole before anything is moved by them.
#include <algorithm>
#include <numeric>
#include <string>

#include "memory/geometry.h"
#include "memory/overlap.h"

namespace dualpath {
namespace {

Status invalid(std::string message) { return Status::error("INVALID_ARGUMENT", "geometry: " + message); }

// A part of a plane and whose it is, for messages.
struct PlacedPart {
  StridedPlace place;
  uint32_t layer;
  uint32_t plane;
  uint32_t part;
  uint32_t table;
};

std::string name_of(const PlacedPart& part) {
  return "part " + std::to_string(part.part) + " of plane " + std::to_string(part.plane) + " of layer " +
         std::to_string(part.layer);
}

Status check_table(const PageTable& table, uint32_t block_tokens) {
  if (table.pages == 0 || table.page_tokens == 0)
    return invalid("page table '" + table.name + "': pages and page_tokens must be at least 1");
  if (table.page_tokens % block_tokens != 0 && block_tokens % table.page_tokens != 0) {
    return invalid("page table '" + table.name + "': pages of " + std::to_string(table.page_tokens) +
                   " tokens and blocks of " + std::to_string(block_tokens) +
                   "; one must be a multiple of the other: choose block_tokens to suit the engine's pages");
  }
  const uint64_t blocks_per_page = std::max<uint32_t>(1, table.page_tokens / block_tokens);
  if (table.pages * blocks_per_page > UINT32_MAX - 1)
    return invalid("page table '" + table.name + "': more blocks than 32 bits can number");
  return {};
}

Status check_part(const PagePart& part, const PlacedPart& placed) {
  const StridedPlace& place = placed.place;
  if (part.region == nullptr) return invalid(name_of(placed) + ": no memory");
  if (part.bytes == 0) return invalid(name_of(placed) + ": 0 bytes a token");
  uint64_t pages;
  uint64_t tokens;
  uint64_t end;
  if (__builtin_mul_overflow(place.pages - 1, place.page_stride, &pages) ||
      __builtin_mul_overflow(place.page_tokens - 1, place.token_stride, &tokens) ||
      __builtin_add_overflow(pages, tokens, &end) || __builtin_add_overflow(end, part.bytes, &end) ||
      __builtin_add_overflow(end, part.offset_bytes, &end)) {
    return invalid(name_of(placed) + ": sizes overflow 64 bits");
  }
  if (end > part.region->bytes()) {
    return invalid(name_of(placed) + ": " + std::to_string(place.pages) + " pages of " +
                   std::to_string(place.page_tokens) + " tokens with strides " +
                   std::to_string(place.page_stride) + " and " + std::to_string(place.token_stride) +
                   " from byte " + std::to_string(part.offset_bytes) + " on end at byte " +
                   std::to_string(end) + ", memory '" + part.region->name() + "' has " +
                   std::to_string(part.region->bytes()) + "; check shape, strides and offset");
  }
  if (!rows_are_disjoint(place)) {
    return invalid(name_of(placed) + ": rows of " + std::to_string(part.bytes) + " bytes with strides " +
                   std::to_string(place.page_stride) + " (page) and " + std::to_string(place.token_stride) +
                   " (token) overlap; check the strides");
  }
  return {};
}

// Every part of every plane, checked by itself.
Status place_parts(const PagedOptions& options, std::vector<PlacedPart>* out) {
  for (uint32_t l = 0; l < options.layers.size(); l++) {
    const auto& planes = options.layers[l];
    if (planes.empty() || planes.size() > Geometry::kMaxPlanes) {
      return invalid(std::to_string(planes.size()) + " planes in layer " + std::to_string(l) + ", 1 to " +
                     std::to_string(Geometry::kMaxPlanes) + " allowed");
    }
    for (uint32_t p = 0; p < planes.size(); p++) {
      if (planes[p].table >= options.tables.size())
        return invalid("plane " + std::to_string(p) + " of layer " + std::to_string(l) + ": no page table " +
                       std::to_string(planes[p].table));
      if (planes[p].parts.empty())
        return invalid("plane " + std::to_string(p) + " of layer " + std::to_string(l) + ": no parts");
      const PageTable& table = options.tables[planes[p].table];
      for (uint32_t i = 0; i < planes[p].parts.size(); i++) {
        const PagePart& part = planes[p].parts[i];
        const auto& first = options.layers[0][0].parts[0].region;
        if (part.region != nullptr && first != nullptr && part.region->device() != first->device()) {
          return invalid("memory '" + first->name() + "' and memory '" + part.region->name() +
                         "' are not of one device; use memory of one");
        }
        const uint64_t base = part.region == nullptr ? 0 : reinterpret_cast<uint64_t>(part.region->base());
        const PlacedPart placed{{base + part.offset_bytes, part.page_stride_bytes, part.token_stride_bytes,
                                 table.pages, table.page_tokens, part.bytes},
                                l,
                                p,
                                i,
                                planes[p].table};
        const Status status = check_part(part, placed);
        if (!status.ok()) return status;
        out->push_back(placed);
        if (out->size() > Geometry::kMaxStrips)
          return invalid("more than " + std::to_string(Geometry::kMaxStrips) + " parts of planes");
      }
    }
  }
  return {};
}

// No two share a byte; tables whose memory is shared page by page become one pool.
Status check_overlaps(std::vector<PlacedPart> parts, std::vector<uint32_t>* pools) {
  std::sort(parts.begin(), parts.end(),
            [](const PlacedPart& a, const PlacedPart& b) { return a.place.begin < b.place.begin; });
  for (size_t i = 0; i < parts.size(); i++) {
    for (size_t j = i + 1; j < parts.size() && parts[j].place.begin < parts[i].place.end(); j++) {
      const PlacedPart& a = parts[i];
      const PlacedPart& b = parts[j];
      if (places_are_disjoint(a.place, b.place)) continue;
      if (a.table == b.table || !share_pages_only(a.place, b.place)) {
        return invalid(name_of(a) + " and " + name_of(b) +
                       " share bytes; check their memory, offsets and strides");
      }
      const uint32_t from = (*pools)[b.table];
      std::replace(pools->begin(), pools->end(), from, (*pools)[a.table]);
    }
  }
  return {};
}

}  // namespace

Status Geometry::create_paged(const PagedOptions& options, std::shared_ptr<const Geometry>* out) {
  if (options.block_tokens == 0) return invalid("block_tokens must be at least 1");
  if (options.layers.empty() || options.layers.size() > kMaxLayers) {
    return invalid(std::to_string(options.layers.size()) + " layers, 1 to " + std::to_string(kMaxLayers) +
                   " allowed");
  }
  if (options.tables.empty() || options.tables.size() > kMaxTables) {
    return invalid(std::to_string(options.tables.size()) + " page tables, 1 to " +
                   std::to_string(kMaxTables) + " allowed");
  }
  for (const PageTable& table : options.tables) {
    const Status status = check_table(table, options.block_tokens);
    if (!status.ok()) return status;
  }
  std::vector<PlacedPart> parts;
  Status status = place_parts(options, &parts);
  if (!status.ok()) return status;
  std::vector<uint32_t> pools(options.tables.size());
  std::iota(pools.begin(), pools.end(), 0);
  status = check_overlaps(std::move(parts), &pools);
  if (!status.ok()) return status;
  auto geometry = std::shared_ptr<Geometry>(new Geometry());
  geometry->block_tokens_ = options.block_tokens;
  geometry->device_ = options.layers[0][0].parts[0].region->device();
  status = geometry->place_tables(options);
  if (!status.ok()) return status;
  for (size_t t = 0; t < pools.size(); t++) geometry->tables_[t].pool = pools[t];
  geometry->index_pages(options);
  *out = std::move(geometry);
  return {};
}

Status Geometry::place_tables(const PagedOptions& options) {
  uint64_t first = 0;
  for (const PageTable& table : options.tables) {
    const uint32_t entries = std::max<uint32_t>(1, block_tokens_ / table.page_tokens);
    const uint32_t blocks = std::max<uint32_t>(1, table.page_tokens / block_tokens_);
    tables_.push_back(
        {table.name, table.pages, table.page_tokens, entries, blocks, static_cast<uint32_t>(first), 0, 0});
    first += entries;
  }
  if (first > kMaxEntriesPerBlock) {
    return invalid(std::to_string(first) + " pages a block in all page tables, at most " +
                   std::to_string(kMaxEntriesPerBlock) + " are possible; choose fewer block_tokens");
  }
  entries_per_block_ = static_cast<uint32_t>(first);
  return {};
}

void Geometry::index_pages(const PagedOptions& options) {
  std::vector<bool> unlimited(tables_.size(), false);
  for (const auto& planes : options.layers) {
    first_plane_.push_back(static_cast<uint32_t>(table_of_.size()));
    layers_.push_back({});
    for (const PagedPlane& plane : planes) {
      first_strip_.push_back(static_cast<uint32_t>(strips_.size()));
      table_of_.push_back(plane.table);
      uint32_t bytes = 0;
      for (const PagePart& part : plane.parts) {
        bytes += part.bytes;
        strips_.push_back({part.region->base() + part.offset_bytes, part.page_stride_bytes,
                           part.token_stride_bytes, part.bytes});
        if (regions_.empty() || regions_.back() != part.region) regions_.push_back(part.region);
      }
      layers_.back().planes.push_back({0, bytes, 0, plane.window_tokens});
      if (plane.window_tokens == 0) unlimited[plane.table] = true;
      Table& table = tables_[plane.table];
      table.window_tokens = unlimited[plane.table] ? 0 : std::max(table.window_tokens, plane.window_tokens);
    }
  }
  first_strip_.push_back(static_cast<uint32_t>(strips_.size()));
}

}  // namespace dualpath
