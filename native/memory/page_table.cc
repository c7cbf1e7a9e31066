#include "memory/page_table.h"

#include <algorithm>
#include <string>

namespace dualpath {
namespace {

Status invalid(std::string message) { return Status::error("INVALID_ARGUMENT", std::move(message)); }

struct Needed {
  uint64_t begin;  // in the engine's page table
  uint64_t end;
};

// Which pages of a table hold a token that is touched.
Needed needed(const Geometry& geometry, const Geometry::Table& table, const BlockSpan& span) {
  const TokenRange seen = Geometry::visible(table.window_tokens, span.tokens, span.window_end);
  if (seen.begin >= seen.end) return {0, 0};
  const uint64_t first =
      static_cast<uint64_t>(span.first_block) * geometry.block_tokens() / table.page_tokens;
  return {seen.begin / table.page_tokens - first, (seen.end - 1) / table.page_tokens + 1 - first};
}

std::string name_of(const Geometry::Table& table) {
  return table.name.empty() ? "the block table" : "the block table of '" + table.name + "'";
}

}  // namespace

Status PageTableReader::check(const Geometry& geometry, const BlockSpan& span,
                              const std::vector<std::span<const uint32_t>>& tables) {
  for (size_t t = 0; t < tables.size(); t++) {
    const Geometry::Table& table = geometry.tables()[t];
    const Needed pages = needed(geometry, table, span);
    if (pages.end > tables[t].size()) {
      return invalid(name_of(table) + " has " + std::to_string(tables[t].size()) + " entries, " +
                     std::to_string(pages.end) + " pages of " + std::to_string(table.page_tokens) +
                     " tokens are needed from block " + std::to_string(span.first_block) +
                     " on; name the page of each");
    }
    for (uint64_t i = pages.begin; i < pages.end; i++) {
      const uint32_t page = tables[t][i];
      if (page >= table.pages) {
        return invalid("entry " + std::to_string(i) + " of " + name_of(table) + " is " +
                       std::to_string(page) + "; there are pages 0 to " + std::to_string(table.pages - 1));
      }
      const uint64_t bit = first_page_[table.pool] + page;
      if ((taken_[bit / 64] >> bit % 64 & 1) != 0) {
        return invalid("entry " + std::to_string(i) + " of " + name_of(table) + " is page " +
                       std::to_string(page) + ", which another entry names already; a page holds one thing");
      }
      taken_[bit / 64] |= uint64_t{1} << bit % 64;
    }
  }
  return {};
}

Status PageTableReader::read(const Geometry& geometry, const BlockSpan& span,
                             const std::vector<std::span<const uint32_t>>& tables, uint32_t* entries) {
  if (tables.size() != geometry.tables().size()) {
    return invalid(std::to_string(tables.size()) + " block tables given, the geometry has " +
                   std::to_string(geometry.tables().size()) + "; pass one for each");
  }
  first_page_.assign(tables.size(), 0);
  uint64_t bits = 0;
  for (size_t t = 0; t < tables.size(); t++) {
    const Geometry::Table& table = geometry.tables()[t];
    if (table.pool != t) continue;  // in the pool of one before it
    first_page_[t] = bits;
    bits += table.pages;
  }
  if (taken_.size() < (bits + 63) / 64) taken_.resize((bits + 63) / 64, 0);
  const Status status = check(geometry, span, tables);
  for (size_t t = 0; t < tables.size(); t++) {
    const Geometry::Table& table = geometry.tables()[t];
    const Needed pages = needed(geometry, table, span);
    for (uint64_t i = pages.begin; i < std::min<uint64_t>(pages.end, tables[t].size()); i++) {
      const uint64_t bit = first_page_[table.pool] + tables[t][i];
      if (tables[t][i] < table.pages) taken_[bit / 64] &= ~(uint64_t{1} << bit % 64);
    }
    if (!status.ok()) continue;
    for (uint32_t b = 0; b < span.blocks; b++) {
      uint32_t* out = entries + static_cast<uint64_t>(b) * geometry.entries_per_block() + table.first_entry;
      for (uint32_t j = 0; j < table.entries; j++) {
        const uint64_t block = static_cast<uint64_t>(span.first_block) + b;
        const uint64_t i = table.blocks_per_page == 1
                               ? static_cast<uint64_t>(b) * table.entries + j
                               : block / table.blocks_per_page - span.first_block / table.blocks_per_page;
        const bool touched = i >= pages.begin && i < pages.end;
        out[j] =
            touched
                ? static_cast<uint32_t>(tables[t][i] * table.blocks_per_page + block % table.blocks_per_page)
                : UINT32_MAX;  // no page: whoever touches it all the same is refused
      }
    }
  }
  return status;
}

}  // namespace dualpath
