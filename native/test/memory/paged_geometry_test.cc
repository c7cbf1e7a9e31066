#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <numeric>

#include "test/memory/paged_shapes.h"

namespace dualpath::test {
namespace {

// A K and a V plane of 2 heads of 8 bytes, pages of 4 tokens, blocks of 8; [2, pages, 4, 2, 8] in one region.
PagedOptions small_options() {
  PagedOptions options;
  options.block_tokens = 8;
  options.tables = {{"kv", 6, 4}};
  const auto region = exact_region(2 * 6 * 4 * 16);
  options.layers = {{{0, 0, {{region, 0, 64, 16, 16}}}, {0, 0, {{region, 384, 64, 16, 16}}}}};
  return options;
}

Status create(const PagedOptions& options) {
  std::shared_ptr<const Geometry> geometry;
  return Geometry::create_paged(options, &geometry);
}

void expect_refused(const PagedOptions& options, const std::string& words) {
  const Status status = create(options);
  EXPECT_STREQ(status.code, "INVALID_ARGUMENT");
  EXPECT_NE(status.message.find(words), std::string::npos) << status.message << "\ndoes not say: " << words;
}

TEST(PagedGeometryTest, BlocksAreNamedByTheirPages) {
  const PagedOptions options = small_options();
  const auto geometry = make_paged(options);
  EXPECT_EQ(geometry->entries_per_block(), 2u);
  EXPECT_TRUE(geometry->paged());
  EXPECT_FALSE(geometry->slots_hold(1, 1)) << "storage is not read into it";
  const uint32_t entries[] = {5, 2};
  Place place;
  ASSERT_TRUE(geometry->find(entries, 0, 1, 6, &place));
  EXPECT_EQ(geometry->address(geometry->strips(0, 1).data[0], place),
            options.layers[0][1].parts[0].region->base() + 384 + 2 * 64 + 2 * 16);
  const uint32_t beyond[] = {5, 6};
  EXPECT_TRUE(geometry->find(beyond, 0, 1, 3, &place));
  EXPECT_FALSE(geometry->find(beyond, 0, 1, 4, &place));
}

TEST(PagedGeometryTest, APageMayHoldSeveralBlocks) {
  PagedOptions options = small_options();
  options.block_tokens = 2;
  const auto geometry = make_paged(options);
  EXPECT_EQ(geometry->entries_per_block(), 1u);
  EXPECT_EQ(geometry->slots(), 12u);
  const uint32_t entry = 7;  // the second half of page 3
  Place place;
  ASSERT_TRUE(geometry->find(&entry, 0, 0, 1, &place));
  EXPECT_EQ(geometry->address(geometry->strips(0, 0).data[0], place),
            options.layers[0][0].parts[0].region->base() + 3 * 64 + 3 * 16);
  const uint32_t beyond = 12;
  EXPECT_FALSE(geometry->find(&beyond, 0, 0, 0, &place));
}

TEST(PagedGeometryTest, RefusesWhatCannotBe) {
  for (const auto& [change, words] : std::initializer_list<std::pair<void (*)(PagedOptions&), const char*>>{
           {[](PagedOptions& o) { o.block_tokens = 0; }, "block_tokens must be at least 1"},
           {[](PagedOptions& o) { o.block_tokens = 6; }, "one must be a multiple of the other"},
           {[](PagedOptions& o) { o.tables.clear(); }, "0 page tables, 1 to 64 allowed"},
           {[](PagedOptions& o) { o.tables[0].pages = 0; }, "pages and page_tokens must be at least 1"},
           {[](PagedOptions& o) { o.tables[0].pages = 7; }, "end at byte 832, memory 'test' has 768"},
           {[](PagedOptions& o) { o.layers.clear(); }, "0 layers"},
           {[](PagedOptions& o) { o.layers[0].clear(); }, "0 planes in layer 0"},
           {[](PagedOptions& o) { o.layers[0][1].table = 1; }, "no page table 1"},
           {[](PagedOptions& o) { o.layers[0][1].parts.clear(); }, "no parts"},
           {[](PagedOptions& o) { o.layers[0][1].parts[0].bytes = 0; }, "0 bytes a token"},
           {[](PagedOptions& o) { o.layers[0][1].parts[0].region = nullptr; }, "no memory"},
           {[](PagedOptions& o) { o.layers[0][1].parts[0].offset_bytes = UINT64_MAX - 5; },
            "overflow 64 bits"},
           {[](PagedOptions& o) { o.layers[0][1].parts[0].page_stride_bytes = UINT64_MAX / 2; }, "overflow"},
           {[](PagedOptions& o) { o.layers[0][0].parts[0].token_stride_bytes = 15; },
            "overlap; check the strides"},
           {[](PagedOptions& o) { o.layers[0][0].parts[0].page_stride_bytes = 63; },
            "overlap; check the strides"},
           {[](PagedOptions& o) { o.layers[0][1].parts[0].offset_bytes = 368; },
            "part 0 of plane 0 of layer 0 and part 0 of plane 1 of layer 0 share bytes"},
           {[](PagedOptions& o) {
              o.tables[0].pages = UINT32_MAX;
              o.block_tokens = 1;
            },
            "32 bits"},
           {[](PagedOptions& o) { o.block_tokens = 1 << 19; }, "choose fewer block_tokens"}}) {
    PagedOptions options = small_options();
    change(options);
    expect_refused(options, words);
  }
}

TEST(PagedGeometryTest, GroupsMayShareMemoryByThePage) {
  // As an engine with one pool of pages for two groups: the same pages, each with a table of its own.
  PagedOptions options = small_options();
  options.tables.push_back({"other", 6, 4});
  const auto region = options.layers[0][0].parts[0].region;
  options.layers.push_back({{1, 0, {{region, 0, 64, 16, 16}}}, {1, 0, {{region, 384, 64, 16, 16}}}});
  const auto geometry = make_paged(options);
  EXPECT_EQ(geometry->tables()[0].pool, geometry->tables()[1].pool);
  EXPECT_EQ(geometry->entries_per_block(), 4u);
  // Not when a page of one meets two of the other.
  options.layers[1][0].parts[0].offset_bytes = 16;
  expect_refused(options, "share bytes");
  options.layers[1][0].parts[0].offset_bytes = 0;
  options.layers[1][0].table = 0;
  expect_refused(options, "share bytes");
}

// Whatever copy_block says that it does, byte by byte.
struct Side {
  PagedOptions options;
  std::shared_ptr<const Geometry> geometry;
  std::vector<uint32_t> entries;
};

class PagedCopyTest : public ::testing::Test {
 protected:
  std::vector<uint32_t> random_entries(const Geometry& geometry) {
    std::vector<uint32_t> entries;
    for (const Geometry::Table& table : geometry.tables()) {
      std::vector<uint32_t> all(static_cast<size_t>(table.pages) * table.blocks_per_page);
      std::iota(all.begin(), all.end(), 0);
      std::shuffle(all.begin(), all.end(), layouts_.random());
      entries.insert(entries.end(), all.begin(), all.begin() + table.entries);
    }
    return entries;
  }

  Side side(const PagedLayouts::Wanted& wanted) {
    Side made;
    made.options = layouts_.paged(wanted, 3);
    made.geometry = make_paged(made.options);
    made.entries = random_entries(*made.geometry);
    return made;
  }

  void fill(const PagedOptions& options) {
    for (const auto& planes : options.layers) {
      for (const PagedPlane& plane : planes) {
        const Region& region = *plane.parts[0].region;
        for (uint64_t i = 0; i < region.bytes(); i++)
          region.base()[i] = static_cast<std::byte>(layouts_.random()());
      }
    }
  }

  static std::vector<std::byte> contents(const PagedOptions& options) {
    std::vector<std::byte> all;
    for (const auto& planes : options.layers) {
      for (const PagedPlane& plane : planes) {
        const Region& region = *plane.parts[0].region;
        all.insert(all.end(), region.base(), region.base() + region.bytes());
      }
    }
    return all;
  }

  static void restore(const PagedOptions& options, const std::vector<std::byte>& all) {
    size_t at = 0;
    for (const auto& planes : options.layers) {
      for (const PagedPlane& plane : planes) {
        const Region& region = *plane.parts[0].region;
        memcpy(region.base(), all.data() + at, region.bytes());
        at += region.bytes();
      }
    }
  }

  PagedLayouts layouts_{20261129};
};

uint64_t transcribe(const Side& from, const Side& to, uint32_t layer, uint32_t block, TokenRange range,
                    uint32_t window_end) {
  uint64_t moved = 0;
  for (uint32_t i = 0; i < from.options.block_tokens; i++) {
    const uint64_t token = uint64_t{block} * from.options.block_tokens + i;
    if (token < range.begin || token >= range.end) continue;
    for (uint32_t p = 0; p < from.options.layers[layer].size(); p++) {
      const PagedPlane& plane = from.options.layers[layer][p];
      if (plane.window_tokens != 0 && token + plane.window_tokens <= window_end) continue;
      const uint32_t bytes = from.geometry->planes(layer)[p].bytes_per_token;
      for (uint32_t b = 0; b < bytes; b++) {
        *byte_of(to.options, to.entries.data(), layer, p, i, b) =
            *byte_of(from.options, from.entries.data(), layer, p, i, b);
      }
      moved += bytes;
    }
  }
  return moved;
}

TEST_F(PagedCopyTest, MovesWhatAPlainTranscriptionMoves) {
  for (int round = 0; round < 500; round++) {
    const PagedLayouts::Wanted wanted = layouts_.shape();
    const Side from = side(wanted);
    const Side to = side(wanted);
    ASSERT_TRUE(from.geometry->same_shape(*to.geometry));
    fill(from.options);
    fill(to.options);
    const std::vector<std::byte> before = contents(to.options);
    const uint32_t layer = layouts_.below(from.geometry->layers());
    const uint32_t block = layouts_.below(5);
    const uint32_t end = layouts_.below(7 * wanted.block_tokens);
    const TokenRange range{end == 0 ? 0 : layouts_.below(end), end};
    const uint32_t window_end = layouts_.below(2) * layouts_.below(7 * wanted.block_tokens);
    uint64_t moved = 0;
    ASSERT_TRUE(copy_block(*from.geometry, from.entries.data(), *to.geometry, to.entries.data(), layer, block,
                           range, window_end, &moved));
    const std::vector<std::byte> got = contents(to.options);
    restore(to.options, before);
    EXPECT_EQ(moved, transcribe(from, to, layer, block, range, window_end));
    ASSERT_EQ(got, contents(to.options)) << "round " << round;
  }
}

TEST_F(PagedCopyTest, FullBlocksAndPagesAreOfOneShape) {
  for (int round = 0; round < 100; round++) {
    const PagedLayouts::Wanted wanted = layouts_.shape();
    const Side pages = side(wanted);
    const Side back = side(wanted);
    const auto blocks = full_blocks(layouts_.plain(wanted), 2);
    ASSERT_TRUE(blocks->same_shape(*pages.geometry));
    fill(pages.options);
    const uint32_t slot = 1;
    const uint32_t tokens = wanted.block_tokens;
    for (uint32_t l = 0; l < blocks->layers(); l++) {
      uint64_t bytes = 0;
      ASSERT_TRUE(
          copy_block(*pages.geometry, pages.entries.data(), *blocks, &slot, l, 0, {0, tokens}, 0, &bytes));
      ASSERT_TRUE(
          copy_block(*blocks, &slot, *back.geometry, back.entries.data(), l, 0, {0, tokens}, 0, &bytes));
      for (uint32_t p = 0; p < blocks->planes(l).size(); p++) {
        const Plane& plane = blocks->planes(l)[p];
        for (uint32_t t = 0; t < tokens; t++) {
          for (uint32_t b = 0; b < plane.bytes_per_token; b++) {
            const std::byte byte = *byte_of(pages.options, pages.entries.data(), l, p, t, b);
            ASSERT_EQ(blocks->at(slot, l, plane, t)[b],
                      byte);  // token by token in the block, whatever the pages
            ASSERT_EQ(*byte_of(back.options, back.entries.data(), l, p, t, b), byte);
          }
        }
      }
    }
  }
}

TEST_F(PagedCopyTest, AnEntryThatIsNoPageMovesNothingPastIt) {
  const PagedOptions options = small_options();
  const auto geometry = make_paged(options);
  const auto blocks = full_blocks(uniform_shape(1, 8, {{16}, {16}}), 1);
  fill(options);
  const std::vector<std::byte> before = contents(options);
  const uint32_t slot = 0;
  const uint32_t entries[] = {UINT32_MAX, UINT32_MAX};
  uint64_t bytes = 0;
  EXPECT_FALSE(copy_block(*blocks, &slot, *geometry, entries, 0, 0, {0, 8}, 0, &bytes));
  EXPECT_EQ(bytes, 0u);
  EXPECT_EQ(contents(options), before);
  const uint32_t half[] = {UINT32_MAX, 3};  // what is not touched need not be there
  EXPECT_TRUE(copy_block(*blocks, &slot, *geometry, half, 0, 0, {4, 8}, 0, &bytes));
  EXPECT_EQ(bytes, 2u * 4 * 16);
}

}  // namespace
}  // namespace dualpath::test
