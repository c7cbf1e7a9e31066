#include "core/vl_arbiter.h"

#include <gtest/gtest.h>

#include <random>

namespace dualpath {
namespace {

using Heads = VlArbiter::Heads;

// InfiniBand Architecture Specification, volume 1, 7.6.9, as plainly as it can be put.
class Transcription {
 public:
  explicit Transcription(ArbitrationTables tables) : tables_(std::move(tables)) {
    high_.left = tables_.high.empty() ? 0 : tables_.high[0].weight;
    low_.left = tables_.low.empty() ? 0 : tables_.low[0].weight;
  }

  uint32_t next(const Heads& heads) {
    const bool high = has_packet(tables_.high, heads);
    const bool low = has_packet(tables_.low, heads);
    if (high && !limit_expired()) return send_high(heads);
    since_opportunity_bytes_ = 0;
    since_opportunity_packets_ = 0;
    if (low) return scan(tables_.low, low_, heads);
    return high ? send_high(heads) : VlArbiter::kLanes;
  }

 private:
  struct Cursor {
    size_t at = 0;
    int left = 0;  // 64-byte units
  };
  static bool has_packet(const std::vector<LaneWeight>& table, const Heads& heads) {
    for (const LaneWeight& entry : table) {
      if (entry.weight != 0 && heads[entry.lane] != 0) return true;
    }
    return false;
  }
  bool limit_expired() const {
    if (tables_.high_limit == 255) return false;
    if (tables_.high_limit == 0) return since_opportunity_packets_ == 1;
    return since_opportunity_bytes_ >= 4096u * tables_.high_limit;
  }
  uint32_t send_high(const Heads& heads) {
    const uint32_t lane = scan(tables_.high, high_, heads);
    since_opportunity_bytes_ += heads[lane];
    since_opportunity_packets_++;
    return lane;
  }
  static uint32_t scan(const std::vector<LaneWeight>& table, Cursor& cursor, const Heads& heads) {
    for (size_t looks = 0; looks <= table.size(); looks++) {
      const LaneWeight& entry = table[cursor.at];
      if (cursor.left > 0 && heads[entry.lane] != 0) {
        cursor.left -= static_cast<int>(heads[entry.lane] / 64 + (heads[entry.lane] % 64 != 0));
        return entry.lane;
      }
      cursor.at = (cursor.at + 1) % table.size();
      cursor.left = table[cursor.at].weight;
    }
    ADD_FAILURE() << "a table with a packet sends none";
    return VlArbiter::kLanes;
  }

  const ArbitrationTables tables_;
  Cursor high_, low_;
  uint64_t since_opportunity_bytes_ = 0;
  uint64_t since_opportunity_packets_ = 0;
};

std::vector<LaneWeight> random_table(std::mt19937& random) {
  std::vector<LaneWeight> table(random() % 7);
  for (LaneWeight& entry : table) {
    entry.lane = static_cast<uint8_t>(random() % 5);
    const uint32_t kind = random() % 4;
    entry.weight = static_cast<uint8_t>(kind == 0 ? 0 : kind == 1 ? 255 : random() % 256);
  }
  return table;
}

TEST(VlArbiterTest, DecidesAsTheSpecificationDoesForAnyTablesAndTraffic) {
  for (uint32_t seed = 0; seed < 400; seed++) {
    std::mt19937 random(seed);
    ArbitrationTables tables{random_table(random), random_table(random), 0};
    const uint8_t limits[] = {0, 1, 3, 20, 240, 255};
    tables.high_limit = limits[random() % 6];
    ASSERT_TRUE(VlArbiter::check(tables).ok());
    VlArbiter arbiter(tables);
    Transcription plain(tables);
    Heads heads{};
    for (int packet = 0; packet < 600; packet++) {
      // Lanes fill and empty; packets of any size.
      for (uint32_t lane = 0; lane < 6; lane++) {
        if (random() % 8 == 0) heads[lane] = random() % 3 == 0 ? 0 : 1 + random() % 4096;
      }
      const uint32_t lane = arbiter.next(heads);
      ASSERT_EQ(lane, plain.next(heads)) << "seed " << seed << ", packet " << packet;
      if (lane != VlArbiter::kLanes && random() % 2 == 0) heads[lane] = random() % 4097;
    }
  }
}

// Bytes of each lane over whole cycles, all of `lanes` always having 4 KiB packets.
std::array<double, VlArbiter::kLanes> saturated(const ArbitrationTables& tables,
                                                const std::vector<uint32_t>& lanes, uint32_t packets) {
  VlArbiter arbiter(tables);
  Heads heads{};
  for (const uint32_t lane : lanes) heads[lane] = 4096;
  std::array<double, VlArbiter::kLanes> shares{};
  for (uint32_t i = 0; i < packets; i++) shares[arbiter.next(heads)] += 1.0 / packets;
  return shares;
}

TEST(VlArbiterTest, ThePapersTablesLeaveKvItsFloor) {
  // After 240 packets of the high table one of the low table, of which lane 2 has one in 1 + 3 a busy lane.
  EXPECT_NEAR(saturated(default_arbitration(), {1, 2}, 241 * 4 * 50)[2], 1.0 / 241 / 4, 1e-6);
  EXPECT_NEAR(saturated(default_arbitration(), {1, 2, 3}, 241 * 7 * 50)[2], 1.0 / 241 / 7, 1e-6);
  EXPECT_NEAR(saturated(default_arbitration(), {0, 1, 2, 3}, 241 * 10 * 50)[2], 1.0 / 241 / 10, 1e-6);
}

TEST(VlArbiterTest, WhoIsAloneHasAllOfIt) {
  EXPECT_NEAR(saturated(default_arbitration(), {2}, 1000)[2], 1.0, 1e-9);
  EXPECT_NEAR(saturated(default_arbitration(), {1}, 1000)[1], 1.0, 1e-9);
}

TEST(VlArbiterTest, WithoutALimitTheLowTableStarvesAndWithZeroItHasEverySecondPacket) {
  ArbitrationTables tables{{{1, 64}}, {{2, 64}}, 255};
  EXPECT_EQ(saturated(tables, {1, 2}, 10'000)[2], 0.0);
  tables.high_limit = 0;
  EXPECT_NEAR(saturated(tables, {1, 2}, 10'000)[2], 0.5, 1e-9);
}

TEST(VlArbiterTest, ALaneThatNoTableNamesSendsNothing) {
  VlArbiter arbiter({{{1, 64}}, {}, 10});
  Heads heads{};
  heads[4] = 100;
  EXPECT_EQ(arbiter.next(heads), VlArbiter::kLanes);
  EXPECT_FALSE(arbiter.serves(4));
}

TEST(VlArbiterTest, RefusesWhatAPortHasNot) {
  EXPECT_NE(VlArbiter::check({{{15, 1}}, {}, 0}).message.find("virtual lane 15: 0 to 14"), std::string::npos);
  EXPECT_NE(VlArbiter::check({{}, std::vector<LaneWeight>(65, {0, 1}), 0}).message.find("65 entries"),
            std::string::npos);
}

}  // namespace
}  // namespace dualpath
