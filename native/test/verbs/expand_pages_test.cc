// An engine's pages as the source of writes: what a copy writes, whatever the layout, the chains and the
// ranges that the memory was registered in.
#include <algorithm>
#include <cstring>

#include "pair.h"
#include "test/memory/paged_shapes.h"

namespace dualpath::test {
namespace {

// Every region of the geometry in two registered ranges of any size.
std::unique_ptr<KeyedGeometry> keyed_in_halves(const std::shared_ptr<Device>& device,
                                               const std::shared_ptr<const Geometry>& geometry,
                                               std::mt19937_64& random,
                                               std::vector<std::unique_ptr<MemoryRegion>>* regions) {
  std::vector<KeyedRange> ranges;
  geometry->for_each_region([&](const std::shared_ptr<Region>& region) {
    const size_t cut = region->bytes() == 1 ? 1 : 1 + random() % (region->bytes() - 1);
    for (const auto& [at, bytes] : {std::pair{size_t{0}, cut}, std::pair{cut, region->bytes() - cut}}) {
      if (bytes == 0) continue;
      regions->emplace_back();
      ASSERT_TRUE(MemoryRegion::register_memory(device, "pages", region->base() + at, bytes,
                                                RegionAccess::kLocal, &regions->back())
                      .ok());
      const auto begin = reinterpret_cast<uint64_t>(region->base() + at);
      ranges.push_back({begin, begin + bytes, regions->back()->local_key()});
    }
  });
  std::sort(ranges.begin(), ranges.end(), [](const auto& a, const auto& b) { return a.begin < b.begin; });
  return std::make_unique<KeyedGeometry>(geometry, std::move(ranges));
}

// Entries that name a block's pages in every table; pages may be named twice, as only a source's may.
std::vector<uint32_t> any_entries(const Geometry& geometry, uint32_t blocks, std::mt19937_64& random) {
  std::vector<uint32_t> entries;
  for (uint32_t b = 0; b < blocks; b++) {
    for (const Geometry::Table& table : geometry.tables()) {
      for (uint32_t e = 0; e < table.entries; e++) {
        entries.push_back(static_cast<uint32_t>(random() % (uint64_t{table.pages} * table.blocks_per_page)));
      }
    }
  }
  return entries;
}

class ExpandPagesProperty : public ::testing::TestWithParam<uint64_t> {};

TEST_P(ExpandPagesProperty, WritesWhatACopyWrites) {
  PagedLayouts layouts(GetParam());
  std::mt19937_64& random = layouts.random();
  for (int round = 0; round < 20; round++) {
    Pair pair({.send_entries = 4 + layouts.below(40), .sges = 1 + layouts.below(6)}, {.seed = random()});
    const PagedLayouts::Wanted wanted = layouts.shape();
    const uint32_t blocks = 1 + layouts.below(5);
    const auto from = make_paged(layouts.paged(wanted, blocks));
    from->for_each_region([&](const std::shared_ptr<Region>& region) {
      for (size_t i = 0; i < region->bytes(); i++) region->base()[i] = static_cast<std::byte>(random());
    });
    const auto to = full_blocks(layouts.plain(wanted), blocks),
               expected = full_blocks(layouts.plain(wanted), blocks);
    std::vector<std::unique_ptr<MemoryRegion>> regions(1);
    const auto here = keyed_in_halves(pair.a.device, from, random, &regions);
    ASSERT_TRUE(MemoryRegion::register_arena(pair.b.device, to->options().arena, RegionAccess::kPeersWrite,
                                             &regions[0])
                    .ok());
    const KeyedGeometry there(to, std::vector<uint32_t>{regions[0]->remote_key()});
    const std::vector<uint32_t> entries = any_entries(*from, blocks, random);
    std::vector<uint32_t> slots(blocks);
    for (uint32_t i = 0; i < blocks; i++) slots[i] = i;
    std::shuffle(slots.begin(), slots.end(), random);
    const uint32_t all = (blocks + 1) * wanted.block_tokens;
    const uint32_t begin = layouts.below(all);
    const Part part{here.get(),       &there,
                    entries.data(),   slots.data(),
                    blocks,           layouts.below(static_cast<uint32_t>(wanted.layers.size())),
                    layouts.below(2), {begin, begin + layouts.below(all)},
                    layouts.below(60)};
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < blocks; i++) {
      ASSERT_TRUE(copy_block(*from, entries.data() + uint64_t{i} * from->entries_per_block(), *expected,
                             &slots[i], part.layer, part.first_block + i, part.tokens, part.window_end,
                             &bytes));
    }
    EXPECT_EQ(carry_out(pair, part), bytes);
    ASSERT_EQ(memcmp(memory_of(*to).data(), memory_of(*expected).data(), memory_of(*to).size()), 0);
  }
}

INSTANTIATE_TEST_SUITE_P(Seeds, ExpandPagesProperty, ::testing::Range<uint64_t>(1, 9));

TEST(ExpandPagesTest, APageThatIsNoneStopsAtItsTokens) {
  Pair pair;
  const auto region = exact_region(6 * 4 * 16);
  PagedOptions options;
  options.block_tokens = 8;
  options.tables = {{"kv", 6, 4}};
  options.layers = {{{0, 0, {{region, 0, 64, 16, 16}}}}};
  const auto from = make_paged(options);
  const auto to = full_blocks(uniform_shape(1, 8, {{16, 0}}), 2);
  const auto begin = reinterpret_cast<uint64_t>(region->base());
  const KeyedGeometry here(from, std::vector<KeyedRange>{{begin, begin + region->bytes(), 7}});
  const KeyedGeometry there(to, std::vector<uint32_t>{9});
  const uint32_t entries[] = {0, 1, 5, 6};
  const uint32_t slots[] = {0, 1};
  Chain chain(pair.a.queue_pair->chain_options());
  PartExpander expander;
  expander.begin({&here, &there, entries, slots, 2, 0, 0, {0, 16}, 0});
  EXPECT_EQ(expander.expand(chain), PartExpander::Result::kOutOfBounds);
  EXPECT_EQ(expander.block(), 1u);
  EXPECT_EQ(chain.bytes(), 3u * 64);
}

}  // namespace
}  // namespace dualpath::test
