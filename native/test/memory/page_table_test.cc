#include "memory/page_table.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "test/memory/paged_shapes.h"

namespace dualpath::test {
namespace {

using Tables = std::vector<std::vector<uint32_t>>;

class PageTableTest : public ::testing::Test {
 protected:
  // Blocks of 8 tokens; pages of 4 tokens, of 8, and of 16 with a window of 10 tokens.
  void SetUp() override {
    PagedOptions options;
    options.block_tokens = 8;
    options.tables = {{"small", 20, 4}, {"even", 10, 8}, {"large", 6, 16}};
    options.layers = {{}};
    const uint32_t windows[] = {0, 0, 10};
    for (uint32_t t = 0; t < 3; t++) {
      const auto& table = options.tables[t];
      const uint64_t page = table.page_tokens * 2;
      options.layers[0].push_back({t, windows[t], {{exact_region(page * table.pages), 0, page, 2, 2}}});
    }
    geometry_ = make_paged(options);
  }

  Status read(const BlockSpan& span, const Tables& tables) {
    entries_.assign(span.blocks * geometry_->entries_per_block(), 0xabcdef);
    std::vector<std::span<const uint32_t>> spans(tables.begin(), tables.end());
    return reader_.read(*geometry_, span, spans, entries_.data());
  }

  void expect_refused(const BlockSpan& span, const Tables& tables, const std::string& words) {
    const Status status = read(span, tables);
    EXPECT_STREQ(status.code, "INVALID_ARGUMENT");
    EXPECT_NE(status.message.find(words), std::string::npos) << status.message << "\ndoes not say: " << words;
  }

  std::shared_ptr<const Geometry> geometry_;
  PageTableReader reader_;
  std::vector<uint32_t> entries_;
};

constexpr uint32_t kNone = UINT32_MAX;

TEST_F(PageTableTest, NamesEveryPageOfEveryBlock) {
  ASSERT_TRUE(read({1, 3, {8, 32}, 0}, {{7, 3, 11, 19, 0, 5}, {4, 9, 2}, {5, 1}}).ok());
  // Block 1 is the second half of its large page, blocks 2 and 3 are the two halves of the next.
  EXPECT_EQ(entries_, (std::vector<uint32_t>{7, 3, 4, 11, 11, 19, 9, 2, 0, 5, 2, 3}));
}

TEST_F(PageTableTest, DoesNotLookAtPagesThatAreNotTouched) {
  // Tokens 14 to 27 of blocks 1 to 3: the small pages of tokens 8 .. 11 and 28 .. 31 are not touched.
  const Tables tables{{kNone, 3, 11, 19, 0}, {4, 9, 2}, {5, 1}};
  ASSERT_TRUE(read({1, 3, {14, 28}, 0}, tables).ok());
  EXPECT_EQ(entries_, (std::vector<uint32_t>{kNone, 3, 4, 11, 11, 19, 9, 2, 0, kNone, 2, 3}));
  // A query at 28 sees tokens 19 to 28 of the windowed table: the page of block 1 is out of sight.
  ASSERT_TRUE(read({1, 3, {14, 28}, 28}, {{kNone, 3, 11, 19, 0}, {4, 9, 2}, {kNone, 1}}).ok());
  EXPECT_EQ(entries_, (std::vector<uint32_t>{kNone, 3, 4, kNone, 11, 19, 9, 2, 0, kNone, 2, 3}));
}

TEST_F(PageTableTest, RefusesBadTables) {
  const BlockSpan span{0, 2, {0, 16}, 0};
  const Tables good{{1, 2, 3, 4}, {1, 2}, {1}};
  ASSERT_TRUE(read(span, good).ok());
  expect_refused(span, {{1, 2, 3, 4}, {1, 2}}, "2 block tables given, the geometry has 3");
  expect_refused(span, {{1, 2, 3}, {1, 2}, {1}},
                 "the block table of 'small' has 3 entries, 4 pages of 4 tokens");
  expect_refused(span, {{1, 2, 3, 4}, {1, 10}, {1}},
                 "entry 1 of the block table of 'even' is 10; there are pages 0 to 9");
  expect_refused(span, {{1, 2, 3, 4}, {1, 2}, {6}}, "entry 0 of the block table of 'large' is 6");
  expect_refused(span, {{1, 2, 3, 1}, {1, 2}, {1}},
                 "entry 3 of the block table of 'small' is page 1, which another");
  ASSERT_TRUE(read(span, good).ok()) << "what was refused has left no trace";
}

TEST_F(PageTableTest, PagesOfOnePoolBelongToOneGroup) {
  PagedOptions options;
  options.block_tokens = 4;
  options.tables = {{"full", 8, 4}, {"sliding", 8, 4}};
  const auto region = exact_region(8 * 8);
  options.layers = {{{0, 0, {{region, 0, 8, 2, 2}}}}, {{1, 6, {{region, 0, 8, 2, 2}}}}};
  geometry_ = make_paged(options);
  const BlockSpan span{0, 2, {0, 8}, 8};
  EXPECT_TRUE(read(span, {{0, 1}, {2, 3}}).ok());
  expect_refused(span, {{0, 1}, {1, 3}},
                 "entry 0 of the block table of 'sliding' is page 1, which another entry names");
}

TEST_F(PageTableTest, RandomTablesNameWhatTheTranscriptionFinds) {
  PagedLayouts layouts(99);
  for (int round = 0; round < 300; round++) {
    const PagedLayouts::Wanted wanted = layouts.shape();
    const uint32_t blocks = 1 + layouts.below(4);
    const uint32_t first_block = layouts.below(7);
    const PagedOptions options = layouts.paged(wanted, blocks + 3);
    geometry_ = make_paged(options);
    Tables tables;
    for (const PageTable& table : options.tables) {
      tables.emplace_back(table.pages);
      std::iota(tables.back().begin(), tables.back().end(), 0);
      std::shuffle(tables.back().begin(), tables.back().end(), layouts.random());
    }
    const uint32_t tokens = wanted.block_tokens;
    const BlockSpan span{first_block, blocks, {first_block * tokens, (first_block + blocks) * tokens}, 0};
    ASSERT_TRUE(read(span, tables).ok());
    for (uint32_t b = 0; b < blocks; b++) {
      for (uint32_t p = 0; p < wanted.windows.size(); p++) {
        const uint32_t table = options.layers[0][p].table;
        const uint32_t page_tokens = options.tables[table].page_tokens;
        for (uint32_t t = 0; t < tokens; t++) {
          const uint64_t token = (first_block + b) * uint64_t{tokens} + t;
          const uint64_t index = token / page_tokens - uint64_t{first_block} * tokens / page_tokens;
          const PagePart& part = options.layers[0][p].parts[0];
          const std::byte* expected = part.region->base() + part.offset_bytes +
                                      tables[table][index] * part.page_stride_bytes +
                                      token % page_tokens * part.token_stride_bytes;
          Place place;
          ASSERT_TRUE(geometry_->find(entries_.data() + b * geometry_->entries_per_block(), 0, p, t, &place));
          ASSERT_EQ(geometry_->address(geometry_->strips(0, p).data[0], place), expected)
              << "round " << round;
        }
      }
    }
  }
}

}  // namespace
}  // namespace dualpath::test
