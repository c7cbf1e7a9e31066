#include "verbs/expand.h"

#include <cstring>
#include <random>

#include "pair.h"

namespace dualpath::test {
namespace {

GeometryOptions options_of(const Shape& shape, uint32_t slots, uint32_t gap_bytes, bool full_blocks) {
  GeometryOptions options;
  options.slots = slots;
  options.block_tokens = shape.block_tokens;
  uint64_t offset = full_blocks ? 4096 : 0;
  for (const auto& planes : shape.layers) {
    uint32_t row = gap_bytes;
    for (const PlaneShape& plane : planes) row += plane.bytes_per_token;
    LayerPlaces places{offset,
                       gap_bytes == 0 ? stacked_planes(planes, shape.block_tokens) : std::vector<Plane>{}};
    uint64_t within = 0;
    for (const PlaneShape& plane : planes) {
      if (gap_bytes != 0) places.planes.push_back({within, plane.bytes_per_token, row, plane.window_tokens});
      within += plane.bytes_per_token;
    }
    offset += uint64_t{row} * shape.block_tokens;
    options.layers.push_back(std::move(places));
  }
  options.slot_stride_bytes = offset;
  return options;
}

// A geometry of `slots` slots over two registered arenas.
struct Memory {
  std::vector<Registered> regions;
  std::unique_ptr<KeyedGeometry> here;   // with local keys
  std::unique_ptr<KeyedGeometry> there;  // as the peer sees it: adopted addresses, remote keys

  Memory(const std::shared_ptr<Device>& device, GeometryOptions options) {
    options.slots_per_arena = (options.slots + 1) / 2;
    const size_t bytes = options.slots_per_arena * options.slot_stride_bytes;
    std::vector<uint32_t> local_keys, remote_keys;
    std::vector<std::shared_ptr<Arena>> adopted;
    for (int i = 0; i < 2; i++) {
      regions.emplace_back(device, bytes);
      local_keys.push_back(regions.back().region->local_key());
      remote_keys.push_back(regions.back().region->remote_key());
      adopted.push_back(Arena::adopt("remote", regions.back().base(), bytes, ArenaKind::kHost));
    }
    options.arena = regions[0].arena;
    options.more_arenas = {regions[1].arena};
    EXPECT_TRUE(KeyedGeometry::create(options, local_keys, &here).ok());
    options.arena = adopted[0];
    options.more_arenas = {adopted[1]};
    EXPECT_TRUE(KeyedGeometry::create(options, remote_keys, &there).ok());
  }
};

void randomise(Memory& memory, std::mt19937_64& random) {
  for (Registered& region : memory.regions) {
    for (size_t i = 0; i < region.arena->bytes(); i++) region.base()[i] = static_cast<std::byte>(random());
  }
}

// Every chain posted and carried out; the result must be what copy_block makes of it.
class ExpandProperty : public ::testing::TestWithParam<uint64_t> {};

TEST_P(ExpandProperty, WritesWhatACopyWrites) {
  std::mt19937_64 random(GetParam());
  for (int round = 0; round < 25; round++) {
    QueuePairOptions sizes;
    sizes.send_entries = 4 + static_cast<uint32_t>(random() % 40);
    sizes.sges = 1 + static_cast<uint32_t>(random() % 4);
    stub::StubOptions stub;
    stub.seed = random();
    Pair pair(sizes, stub);
    Shape shape;
    shape.block_tokens = 1 + static_cast<uint32_t>(random() % 8);
    shape.layers.resize(1 + random() % 3);
    for (auto& planes : shape.layers) {
      planes.resize(1 + random() % 3);
      for (PlaneShape& plane : planes) {
        plane = {1 + static_cast<uint32_t>(random() % 20),
                 random() % 3 == 0 ? 1 + static_cast<uint32_t>(random() % 30) : 0};
      }
    }
    const uint32_t slots = 2 + static_cast<uint32_t>(random() % 9);
    Memory from(pair.a.device, options_of(shape, slots, random() % 2 ? 3 : 0, random() % 2));
    const GeometryOptions target = options_of(shape, slots, random() % 2 ? 5 : 0, random() % 2);
    Memory to(pair.b.device, target), expected(pair.b.device, target);
    randomise(from, random);
    std::vector<uint32_t> from_slots(1 + random() % slots), to_slots(from_slots.size());
    const bool runs = random() % 2 == 0;  // of neighbours, which merge
    std::vector<uint32_t> free_slots(slots);
    for (uint32_t i = 0; i < slots; i++) free_slots[i] = i;
    if (!runs) std::shuffle(free_slots.begin(), free_slots.end(), random);
    for (size_t i = 0; i < from_slots.size(); i++) {
      from_slots[i] = runs ? static_cast<uint32_t>(i) : static_cast<uint32_t>(random() % slots);
      to_slots[i] = free_slots[i];
    }
    const uint32_t count = static_cast<uint32_t>(from_slots.size());
    const uint32_t all = (count + 2) * shape.block_tokens;
    const uint32_t begin = static_cast<uint32_t>(random() % all);
    const Part part{from.here.get(),
                    to.there.get(),
                    from_slots.data(),
                    to_slots.data(),
                    count,
                    static_cast<uint32_t>(random() % shape.layers.size()),
                    static_cast<uint32_t>(random() % 2),
                    {begin, begin + static_cast<uint32_t>(random() % all)},
                    static_cast<uint32_t>(random() % 60)};
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < count; i++) {
      ASSERT_TRUE(copy_block(from.here->geometry(), &from_slots[i], expected.here->geometry(), &to_slots[i],
                             part.layer, part.first_block + i, part.tokens, part.window_end, &bytes));
    }
    ASSERT_EQ(carry_out(pair, part), bytes);
    for (size_t i = 0; i < 2; i++) {
      ASSERT_EQ(memcmp(to.regions[i].base(), expected.regions[i].base(), to.regions[i].arena->bytes()), 0);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Seeds, ExpandProperty, ::testing::Range<uint64_t>(1, 9));

TEST(ExpandTest, NeighboursBecomeOneRequestAndScatteredRowsGather) {
  Pair pair;
  const Shape shape = uniform_shape(1, 4, {{8}, {8}});
  Memory from(pair.a.device, options_of(shape, 8, 0, false)),
      to(pair.b.device, options_of(shape, 8, 0, false));
  const std::vector<uint32_t> slots = {0, 1, 2, 3};
  const std::vector<uint32_t> apart = {0, 2, 1, 3};
  Chain chain(pair.a.queue_pair->chain_options());
  PartExpander expander;
  Part part{from.here.get(), to.there.get(), slots.data(), slots.data(), 4, 0, 0, {0, 16}, 0};
  expander.begin(part);
  EXPECT_EQ(expander.expand(chain), PartExpander::Result::kDone);
  EXPECT_EQ(chain.size(), 1u) << "four neighbours here and there";
  EXPECT_EQ(chain.bytes(), 4u * 64);
  chain.clear();
  part.from_slots = apart.data();
  expander.begin(part);
  EXPECT_EQ(expander.expand(chain), PartExpander::Result::kDone);
  EXPECT_EQ(chain.size(), 1u) << "gathered from four places";
  chain.clear();
  part.to_slots = apart.data();
  part.from_slots = slots.data();
  expander.begin(part);
  EXPECT_EQ(expander.expand(chain), PartExpander::Result::kDone);
  EXPECT_EQ(chain.size(), 4u) << "four places there";
}

TEST(ExpandTest, ASlotOutOfBoundsStopsBeforeItsBlock) {
  Pair pair;
  const Shape shape = uniform_shape(1, 4, {{8}});
  Memory from(pair.a.device, options_of(shape, 4, 0, false)),
      to(pair.b.device, options_of(shape, 4, 0, false));
  const std::vector<uint32_t> good = {0, 2, 1}, bad = {1, 3, 4};
  Chain chain(pair.a.queue_pair->chain_options());
  PartExpander expander;
  expander.begin({from.here.get(), to.there.get(), good.data(), bad.data(), 3, 0, 0, {0, 12}, 0});
  EXPECT_EQ(expander.expand(chain), PartExpander::Result::kOutOfBounds);
  EXPECT_EQ(expander.block(), 2u);
  EXPECT_EQ(chain.bytes(), 2u * 32);
}

TEST(ExpandTest, NeedsAKeyForEveryArena) {
  const Shape shape = uniform_shape(1, 4, {{8}});
  GeometryOptions options = options_of(shape, 2, 0, false);
  options.arena = exact_arena(options.slots * options.slot_stride_bytes);
  std::unique_ptr<KeyedGeometry> keyed;
  EXPECT_STREQ(KeyedGeometry::create(options, {1, 2}, &keyed).code, "INVALID_ARGUMENT");
  EXPECT_TRUE(KeyedGeometry::create(options, {1}, &keyed).ok());
  EXPECT_EQ(keyed->key(1), 1u);
}

}  // namespace
}  // namespace dualpath::test
