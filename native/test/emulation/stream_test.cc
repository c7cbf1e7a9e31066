#include "emulation/stream.h"

#include <gtest/gtest.h>

#include "test/transfer/harness.h"
#include "test/transfer/kv.h"

namespace dualpath::emulation {
namespace {

using test::add;
using test::ordered;
using test::seeds_of;
using test::wait_for;

constexpr uint64_t kMillisecond_ns = 1'000'000;

class StreamTest : public ::testing::Test {
 protected:
  StreamTest() {
    EXPECT_TRUE(Door::create(test::small_door(), &door_).ok());
    EXPECT_TRUE(door_->add_waker(waker_));
    gpu_ = std::make_unique<EmulatedGpu>(door_, waker_, 2);
  }

  bool reaches(uint32_t counter, uint64_t value) {
    return test::eventually([&] { return door_->counter(counter) >= value; });
  }
  void bump(uint32_t counter) {
    door_->counter_add(counter, 1);
    door_->notify();
  }
  static Launch kernel(uint64_t duration_ns, uint32_t lane = 0) {
    Launch launch;
    launch.lane = lane;
    launch.step_duration_ns = duration_ns;
    launch.signal[0] = add(lane);
    return launch;
  }

  std::shared_ptr<Door> door_;
  std::shared_ptr<Waker> waker_ = std::make_shared<Waker>();
  std::unique_ptr<EmulatedGpu> gpu_;
};

// However late the thread wakes for each: lateness does not add up.
TEST_F(StreamTest, FiveHundredKernelsTakeTheSumOfTheirDurations) {
  constexpr uint64_t kSum_ns = 500 * 400'000;
  uint64_t took_ns = 0;
  for (uint64_t attempt = 1; attempt <= 10; attempt++) {
    const uint64_t begin = now_ns();
    Launch launch = kernel(400'000);
    launch.steps = 100;
    for (int i = 0; i < 5; i++) ASSERT_TRUE(gpu_->launch(launch));
    usleep(kSum_ns / 1000 - 5000);
    while (door_->counter(0) < attempt * 500) usleep(20);
    took_ns = now_ns() - begin;
    ASSERT_GE(took_ns, kSum_ns);
    if (took_ns <= kSum_ns * 101 / 100) break;
  }
  EXPECT_LE(took_ns, kSum_ns * 101 / 100);
  const StreamStatistics statistics = gpu_->statistics();
  EXPECT_EQ(statistics.kernels % 500, 0u);
  EXPECT_EQ(statistics.modelled_ns, statistics.kernels * 400'000);
  uint64_t in_buckets = 0;
  for (const uint64_t n : statistics.lateness_log2_ns) in_buckets += n;
  EXPECT_EQ(in_buckets, statistics.kernels);
  EXPECT_GE(statistics.lateness_max_ns * statistics.kernels, statistics.lateness_sum_ns);
}

TEST_F(StreamTest, StepsWaitAndSignalInOrder) {
  Launch launch = kernel(100'000);
  launch.steps = 5;
  launch.wait[0] = wait_for(10, 1, 1);
  launch.wait[1] = wait_for(20, 1, 0, 4, 0);  // steps 0 .. 3 do not wait for it
  launch.signal[0] = ordered(0, 100);
  launch.signal[1] = add(30, 7, 1);
  ASSERT_TRUE(gpu_->launch(launch));
  usleep(3000);
  EXPECT_EQ(door_->counter(0), 0u);
  for (uint64_t step = 0; step < 4; step++) {
    bump(10);
    ASSERT_TRUE(reaches(0, 101 + step));
    EXPECT_EQ(door_->counter(30 + static_cast<uint32_t>(step)), 7u);
    EXPECT_EQ(door_->counter(31 + static_cast<uint32_t>(step)), 0u);
  }
  bump(10);
  usleep(3000);
  EXPECT_EQ(door_->counter(0), 104u);
  const uint64_t begin = now_ns();
  bump(20);
  ASSERT_TRUE(reaches(0, 105));
  EXPECT_GE(now_ns() - begin, 100'000u) << "it began when its wait came true, not before";
}

TEST_F(StreamTest, LanesRunSideBySide) {
  Launch blocked = kernel(0, 0);
  blocked.wait[0] = wait_for(10, 1);
  ASSERT_TRUE(gpu_->launch(blocked));
  for (int i = 0; i < 10; i++) ASSERT_TRUE(gpu_->launch(kernel(10 * kMillisecond_ns, 0)));
  for (int i = 0; i < 10; i++) ASSERT_TRUE(gpu_->launch(kernel(10 * kMillisecond_ns, 1)));
  ASSERT_TRUE(reaches(1, 3));
  EXPECT_EQ(door_->counter(0), 0u) << "one lane's wait does not hold the other";
  bump(10);
  const uint64_t begin = now_ns();
  ASSERT_TRUE(reaches(0, 5));
  EXPECT_GE(now_ns() - begin, 40 * kMillisecond_ns);
  EXPECT_GE(door_->counter(1), 5u) << "nor do its kernels";
  ASSERT_TRUE(reaches(0, 11));
  ASSERT_TRUE(reaches(1, 10));
}

TEST_F(StreamTest, RefusesWhatItCannotRun) {
  EXPECT_FALSE(gpu_->launch(kernel(0, 2)));
  Launch none = kernel(0);
  none.steps = 0;
  EXPECT_FALSE(gpu_->launch(none));
  Launch blocked = kernel(0);
  blocked.wait[0] = wait_for(10, 1);
  for (size_t i = 0; i < EmulatedGpu::kMaxQueued; i++) ASSERT_TRUE(gpu_->launch(blocked));
  EXPECT_FALSE(gpu_->launch(kernel(0, 1))) << "full: of all lanes together";
  bump(10);
  ASSERT_TRUE(reaches(0, EmulatedGpu::kMaxQueued));
  for (int i = 0; i < 1000 && !gpu_->launch(kernel(0, 1)); i++) usleep(1000);
  EXPECT_TRUE(reaches(1, 1));
}

TEST_F(StreamTest, StopsWithKernelsQueued) {
  for (int i = 0; i < 100; i++) ASSERT_TRUE(gpu_->launch(kernel(5 * kMillisecond_ns)));
  ASSERT_TRUE(reaches(0, 1));
  const uint64_t begin = now_ns();
  gpu_->stop();
  EXPECT_LT(now_ns() - begin, 400 * kMillisecond_ns);
  const uint64_t ran = door_->counter(0);
  EXPECT_LT(ran, 100u);
  usleep(10'000);
  EXPECT_EQ(door_->counter(0), ran);
  EXPECT_FALSE(gpu_->launch(kernel(0)));
  gpu_->stop();
  door_->notify();  // its waker lives as long as the door
}

TEST_F(StreamTest, ALaneOfKernelsWithoutDurationDoesNotStarveTheOther) {
  Launch endless = kernel(0, 0);
  endless.steps = UINT16_MAX;
  for (int i = 0; i < 2000; i++) ASSERT_TRUE(gpu_->launch(endless));  // seconds of work
  ASSERT_TRUE(gpu_->launch(kernel(kMillisecond_ns, 1)));
  ASSERT_TRUE(reaches(1, 1));
  EXPECT_LT(door_->counter(0), 2000u * UINT16_MAX);
}

TEST_F(StreamTest, ACancelledLaunchIsOverAtOnceAndStillBumps) {
  Launch blocked = kernel(1000 * kMillisecond_ns);
  blocked.steps = 5;
  blocked.wait[0] = wait_for(10, 1);
  blocked.bodies.push_back({});  // never looked at
  const uint32_t id = gpu_->launch(blocked);
  ASSERT_NE(id, 0u);
  const uint32_t behind = gpu_->launch(kernel(0));
  EXPECT_NE(behind, id);
  usleep(2000);
  EXPECT_EQ(door_->counter(0), 0u);
  gpu_->cancel(id + 1000);  // nobody's
  gpu_->cancel(id);
  ASSERT_TRUE(reaches(0, 6));
  const StreamStatistics statistics = gpu_->statistics();
  EXPECT_EQ(statistics.modelled_ns, 0u);
  EXPECT_EQ(statistics.overruns, 0u);
}

class BodyTest : public StreamTest {
 protected:
  KernelBody body(TokenRange check, TokenRange write) const {
    return {geometry_, {3, 1, 0}, 0, seeds_, check, write, 0};
  }
  const test::Shape shape_ = test::uniform_shape(4, 8, {{82, 0}, {20, 12}, {36, 0}});
  const std::shared_ptr<const Geometry> geometry_ = test::interleaved(shape_, 4, 2);
  const std::shared_ptr<const std::vector<uint64_t>> seeds_ =
      std::make_shared<const std::vector<uint64_t>>(seeds_of(24));
};

TEST_F(BodyTest, ALayerAStepWritesAndChecks) {
  Launch write = kernel(0);
  write.steps = 4;
  write.bodies = {body({0, 0}, {0, 24})};
  ASSERT_TRUE(gpu_->launch(write));
  Launch check = kernel(0);
  check.steps = 4;
  check.bodies = {body({0, 24}, {0, 0})};
  ASSERT_TRUE(gpu_->launch(check));
  ASSERT_TRUE(reaches(0, 8));
  const StreamStatistics statistics = gpu_->statistics();
  EXPECT_EQ(statistics.written_bytes, 3 * shape_.block_bytes());
  EXPECT_EQ(statistics.checked_bytes, 3 * shape_.block_bytes());
  EXPECT_EQ(statistics.mismatched_bytes, 0u);
  test::expect_kv(*geometry_, {3, 1, 0}, {0, 24}, *seeds_);
}

TEST_F(BodyTest, AllLayersInOneKernelAndSeveralBodies) {
  Launch launch = kernel(0);
  launch.all_layers = true;
  launch.bodies = {body({0, 0}, {0, 8}), body({0, 8}, {8, 24})};
  ASSERT_TRUE(gpu_->launch(launch));
  ASSERT_TRUE(reaches(0, 1));
  EXPECT_EQ(gpu_->statistics().checked_bytes, shape_.block_bytes());
  EXPECT_EQ(gpu_->statistics().mismatched_bytes, 0u);
  test::expect_kv(*geometry_, {3, 1, 0}, {0, 24}, *seeds_);
}

TEST_F(BodyTest, AFlippedByteIsOneMismatch) {
  test::write_kv(*geometry_, {3, 1, 0}, {0, 24}, *seeds_);
  geometry_->at(1, 2, geometry_->planes(2)[1], 6)[19] ^= std::byte{1};
  Launch check = kernel(0);
  check.all_layers = true;
  check.bodies = {body({0, 24}, {0, 0})};
  ASSERT_TRUE(gpu_->launch(check));
  ASSERT_TRUE(reaches(0, 1));
  EXPECT_EQ(gpu_->statistics().checked_bytes, 3 * shape_.block_bytes());
  EXPECT_EQ(gpu_->statistics().mismatched_bytes, 1u);
}

// A sleeper on the door is told of a kernel's end before the next kernel's body has run.
TEST_F(BodyTest, TellsTheEndOfAKernelBeforeTheNextBody) {
  auto sleeper = std::make_shared<Waker>();
  ASSERT_TRUE(door_->add_waker(sleeper));
  Launch second = kernel(0);
  second.signal[0] = add(5);
  second.all_layers = true;
  second.bodies.assign(4000, body({0, 0}, {0, 24}));  // tens of milliseconds of work
  bool told = false;
  for (uint64_t attempt = 1; attempt <= 3 && !told; attempt++) {  // this thread may get the CPU late
    sleeper->arm();
    ASSERT_TRUE(gpu_->launch(kernel(2 * kMillisecond_ns)));
    ASSERT_TRUE(gpu_->launch(second));
    sleeper->sleep(now_ns() + test::kPatience_ns);
    EXPECT_EQ(door_->counter(0), attempt);
    told = door_->counter(5) < attempt;
    ASSERT_TRUE(reaches(5, attempt));
  }
  EXPECT_TRUE(told);
  EXPECT_GE(gpu_->statistics().overruns, 1u);
}

}  // namespace
}  // namespace dualpath::emulation
