#include "memory/geometry.h"

#include <gtest/gtest.h>

#include <random>

#include "test/memory/shapes.h"

namespace dualpath::test {
namespace {

GeometryOptions small_options() {
  GeometryOptions options;
  options.arena = exact_arena(1000);
  options.slots = 4;
  options.block_tokens = 5;
  options.slot_stride_bytes = 250;
  options.layers = {{0, {{0, 20, 20, 0}}}, {100, {{0, 10, 30, 0}, {10, 20, 30, 8}}}};
  return options;
}

Status create(GeometryOptions options) {
  std::shared_ptr<const Geometry> geometry;
  return Geometry::create(std::move(options), &geometry);
}

TEST(GeometryTest, PlacesTokensByStrides) {
  std::shared_ptr<const Geometry> geometry;
  const GeometryOptions options = small_options();
  ASSERT_TRUE(Geometry::create(options, &geometry).ok());
  const std::byte* base = options.arena->base();
  EXPECT_EQ(geometry->slot(3), base + 750);
  EXPECT_EQ(geometry->at(2, 0, geometry->planes(0)[0], 3), base + 500 + 60);
  EXPECT_EQ(geometry->at(1, 1, geometry->planes(1)[1], 4), base + 250 + 100 + 10 + 120);
}

TEST(GeometryTest, TheLastByteMayTouchTheEndOfTheArenaAndNoFurther) {
  GeometryOptions options = small_options();  // the last slot ends at 750 + 100 + 4 * 30 + 10 + 20 = 1000
  EXPECT_TRUE(create(options).ok());
  options.offset_bytes = 1;
  EXPECT_STREQ(create(options).code, "INVALID_ARGUMENT");
  options.offset_bytes = 0;
  options.slots = 5;
  const Status status = create(options);
  EXPECT_STREQ(status.code, "INVALID_ARGUMENT");
  EXPECT_NE(status.message.find("5 slots with stride 250 do not fit the 1000 bytes of arena 'test'"),
            std::string::npos)
      << status.message;
}

TEST(GeometryTest, RefusesWhatIsEmptyOrTooMuch) {
  for (const auto change : std::initializer_list<void (*)(GeometryOptions&)>{
           [](GeometryOptions& o) { o.arena = nullptr; }, [](GeometryOptions& o) { o.slots = 0; },
           [](GeometryOptions& o) { o.block_tokens = 0; }, [](GeometryOptions& o) { o.layers.clear(); },
           [](GeometryOptions& o) { o.layers.assign(Geometry::kMaxLayers + 1, o.layers[0]); },
           [](GeometryOptions& o) { o.layers[0].planes.clear(); },
           [](GeometryOptions& o) {
             o.layers[0].planes.assign(Geometry::kMaxPlanes + 1, o.layers[0].planes[0]);
           },
           [](GeometryOptions& o) { o.layers[0].planes[0].bytes_per_token = 0; },
           [](GeometryOptions& o) { o.layers[0].planes[0].token_stride_bytes = 19; }}) {
    GeometryOptions options = small_options();
    change(options);
    EXPECT_STREQ(create(options).code, "INVALID_ARGUMENT");
  }
}

TEST(GeometryTest, RefusesSizesThatOverflow) {
  for (const auto change : std::initializer_list<void (*)(GeometryOptions&)>{
           [](GeometryOptions& o) { o.offset_bytes = UINT64_MAX; },
           [](GeometryOptions& o) { o.slot_stride_bytes = UINT64_MAX / 2; },
           [](GeometryOptions& o) { o.layers[1].offset_bytes = UINT64_MAX - 10; },
           [](GeometryOptions& o) { o.layers[1].planes[0].offset_bytes = UINT64_MAX - 10; },
           [](GeometryOptions& o) {
             o.block_tokens = UINT32_MAX;
             o.layers[0].planes[0].token_stride_bytes = UINT32_MAX;
           }}) {
    GeometryOptions options = small_options();
    change(options);
    EXPECT_STREQ(create(options).code, "INVALID_ARGUMENT");
  }
}

TEST(GeometryTest, SlotsMayLieInSeveralArenas) {
  GeometryOptions options;
  options.arena = exact_arena(3 * 4096);
  options.more_arenas = {exact_arena(3 * 4096), exact_arena(3 * 4096)};
  options.slots_per_arena = 3;
  options.slots = 8;
  options.block_tokens = 4;
  options.slot_stride_bytes = 4096;
  options.layers = {{100, {{0, 10, 10, 0}}}, {200, {{0, 10, 10, 0}}}};
  std::shared_ptr<const Geometry> geometry;
  ASSERT_TRUE(Geometry::create(options, &geometry).ok());
  EXPECT_EQ(geometry->slot(2), options.arena->base() + 2 * 4096);
  EXPECT_EQ(geometry->slot(3), options.more_arenas[0]->base());
  EXPECT_EQ(geometry->at(7, 1, geometry->planes(1)[0], 3), options.more_arenas[1]->base() + 4096 + 230);
  EXPECT_TRUE(geometry->slots_hold(4096, 4096));
  EXPECT_FALSE(geometry->slots_hold(4097, 4096));
  EXPECT_FALSE(geometry->slots_hold(4096, 8192));

  options.slots = 10;
  const Status status = create(options);
  EXPECT_STREQ(status.code, "INVALID_ARGUMENT");
  EXPECT_NE(status.message.find("4 arenas are needed, 3 given"), std::string::npos) << status.message;
  options.slots = 6;
  EXPECT_FALSE(create(options).ok()) << "nor may there be too many";
  options.slots = 8;
  options.more_arenas[1] = exact_arena(2 * 4096 - 1);
  EXPECT_FALSE(create(options).ok()) << "each arena has room for slots_per_arena slots";
  options.more_arenas[1] = nullptr;
  EXPECT_FALSE(create(options).ok());
}

TEST(GeometryTest, ShapeIsTokensLayersPlanesAndWindowsButNotPlaces) {
  const Shape shape{8, {{{82, 0}, {20, 16}}, {{36, 0}}}};
  const auto full = full_blocks(shape, 3);
  EXPECT_TRUE(full->same_shape(*full));
  EXPECT_TRUE(full->same_shape(*interleaved(shape, 7, 5)));
  Shape other = shape;
  other.block_tokens = 16;
  EXPECT_FALSE(full->same_shape(*full_blocks(other, 3)));
  other = shape;
  other.layers.pop_back();
  EXPECT_FALSE(full->same_shape(*full_blocks(other, 3)));
  other = shape;
  other.layers[1].push_back({4, 0});
  EXPECT_FALSE(full->same_shape(*full_blocks(other, 3)));
  other = shape;
  other.layers[1][0].bytes_per_token = 35;
  EXPECT_FALSE(full->same_shape(*full_blocks(other, 3)));
  other = shape;
  other.layers[0][1].window_tokens = 17;
  EXPECT_FALSE(full->same_shape(*full_blocks(other, 3)));
}

TEST(GeometryTest, AWindowHidesWhatTheQueryCannotSee) {
  const Plane windowed{0, 4, 4, 10};
  const auto visible = [&](TokenRange range, uint32_t window_end) {
    const TokenRange seen = Geometry::visible(windowed, range, window_end);
    return std::pair(seen.begin, seen.end);
  };
  EXPECT_EQ(visible({0, 30}, 0), std::pair(0u, 30u));
  EXPECT_EQ(visible({0, 30}, 9), std::pair(0u, 30u));
  EXPECT_EQ(visible({0, 30}, 10), std::pair(1u, 30u));
  EXPECT_EQ(visible({0, 30}, 25), std::pair(16u, 30u));
  EXPECT_EQ(visible({0, 10}, 25), std::pair(10u, 10u));
  EXPECT_EQ(visible({20, 30}, 25), std::pair(20u, 30u));
}

class CopyBlockTest : public ::testing::Test {
 protected:
  uint32_t below(uint32_t limit) { return static_cast<uint32_t>(random_() % limit); }

  Shape random_shape() {
    Shape shape;
    shape.block_tokens = 1 + below(20);
    shape.layers.resize(1 + below(4));
    for (auto& planes : shape.layers) {
      for (uint32_t p = 1 + below(4); p > 0; p--) {
        planes.push_back({1 + below(90), below(3) == 0 ? 1 + below(40) : 0});
      }
    }
    return shape;
  }

  std::shared_ptr<const Geometry> random_layout(const Shape& shape, uint32_t slots) {
    switch (below(3)) {
      case 0:
        return full_blocks(shape, slots, below(2) * 4096);
      case 1:
        return interleaved(shape, slots, below(16));
      default: {
        Shape same_size = shape;
        for (auto& planes : same_size.layers) planes = shape.layers[0];
        return shape.layers.size() == 1 ? tensor_per_layer(same_size, slots) : interleaved(shape, slots, 0);
      }
    }
  }

  void fill(const Geometry& geometry) {
    for (std::byte& byte : memory_of(geometry)) byte = static_cast<std::byte>(random_());
  }

  std::mt19937_64 random_{20240607};
};

// Of slots, one entry a block.
uint64_t copy_slot(const Geometry& from, uint32_t from_slot, const Geometry& to, uint32_t to_slot,
                   uint32_t layer, uint32_t block, TokenRange range, uint32_t window_end) {
  uint64_t bytes = 0;
  EXPECT_TRUE(copy_block(from, &from_slot, to, &to_slot, layer, block, range, window_end, &bytes));
  return bytes;
}

// What copy_block says of itself, byte by byte.
uint64_t transcribe(const Geometry& from, uint32_t from_slot, const Geometry& to, uint32_t to_slot,
                    uint32_t layer, uint32_t block, TokenRange range, uint32_t window_end) {
  uint64_t moved = 0;
  for (uint32_t i = 0; i < from.block_tokens(); i++) {
    const uint64_t token = uint64_t{block} * from.block_tokens() + i;
    if (token < range.begin || token >= range.end) continue;
    for (size_t p = 0; p < from.planes(layer).size(); p++) {
      const Plane& plane = from.planes(layer)[p];
      const bool seen = plane.window_tokens == 0 || token + plane.window_tokens > window_end;
      if (!seen) continue;
      for (uint32_t b = 0; b < plane.bytes_per_token; b++) {
        to.at(to_slot, layer, to.planes(layer)[p], i)[b] = from.at(from_slot, layer, plane, i)[b];
        moved++;
      }
    }
  }
  return moved;
}

TEST_F(CopyBlockTest, MovesWhatAPlainTranscriptionMoves) {
  for (int round = 0; round < 400; round++) {
    const Shape shape = random_shape();
    const uint32_t slots = 1 + below(4);
    const auto from = random_layout(shape, slots);
    const auto to = random_layout(shape, slots);
    ASSERT_TRUE(from->same_shape(*to));
    fill(*from);
    fill(*to);
    const auto memory = memory_of(*to);
    std::vector<std::byte> expected(memory.begin(), memory.end());
    const uint32_t layer = below(from->layers());
    const uint32_t block = below(5);
    const uint32_t end = below(7 * shape.block_tokens);
    const TokenRange range{end == 0 ? 0 : below(end), end};
    const uint32_t window_end = below(2) * below(7 * shape.block_tokens);
    const uint32_t from_slot = below(slots);
    const uint32_t to_slot = below(slots);
    const uint64_t moved = copy_slot(*from, from_slot, *to, to_slot, layer, block, range, window_end);
    const std::vector<std::byte> got(memory.begin(), memory.end());
    std::copy(expected.begin(), expected.end(), memory.begin());
    EXPECT_EQ(moved, transcribe(*from, from_slot, *to, to_slot, layer, block, range, window_end));
    std::copy(memory.begin(), memory.end(), expected.begin());
    ASSERT_EQ(got, expected) << "round " << round;
  }
}

TEST_F(CopyBlockTest, MovesNothingOutsideTheRange) {
  const Shape shape = uniform_shape(2, 4, {{8, 0}});
  const auto from = full_blocks(shape, 1);
  const auto to = full_blocks(shape, 1);
  EXPECT_EQ(copy_slot(*from, 0, *to, 0, 0, 2, {0, 8}, 0), 0u);
  EXPECT_EQ(copy_slot(*from, 0, *to, 0, 0, 2, {12, 20}, 0), 0u);
  EXPECT_EQ(copy_slot(*from, 0, *to, 0, 0, 2, {11, 20}, 0), 8u);
  EXPECT_EQ(copy_slot(*from, 0, *to, 0, 0, 2, {0, 9}, 0), 8u);
  EXPECT_EQ(copy_slot(*from, 0, *to, 0, 0, UINT32_MAX, {0, UINT32_MAX}, 0), 0u);
}

}  // namespace
}  // namespace dualpath::test
