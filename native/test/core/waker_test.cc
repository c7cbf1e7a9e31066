#include "core/waker.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

namespace dualpath {
namespace {

constexpr uint64_t kSecond_ns = 1'000'000'000;

bool readable(int fd) {
  pollfd one{fd, POLLIN, 0};
  return poll(&one, 1, 0) == 1;
}

TEST(WakerTest, WritesOnlyToASleeper) {
  Waker waker;
  waker.wake();
  EXPECT_FALSE(readable(waker.fd()));
  waker.arm();
  waker.wake();
  EXPECT_TRUE(readable(waker.fd()));
  waker.sleep(kNever);  // returns at once
  EXPECT_FALSE(readable(waker.fd())) << "drained";
  waker.wake();
  EXPECT_FALSE(readable(waker.fd())) << "no longer armed";
  waker.ring();
  EXPECT_TRUE(readable(waker.fd()));
}

TEST(WakerTest, SleepsUntilItsDeadline) {
  Waker waker;
  const uint64_t begin = now_ns();
  waker.arm();
  waker.sleep(begin + 20'000'000);
  EXPECT_GE(now_ns(), begin + 20'000'000);
  waker.arm();
  waker.sleep(begin);  // in the past: does not sleep
  EXPECT_LT(now_ns(), begin + 10 * kSecond_ns);
}

TEST(WakerTest, WakesForTheOtherDescriptorToo) {
  Waker waker;
  const int other = eventfd(1, EFD_CLOEXEC);
  waker.arm();
  waker.sleep(now_ns() + 60 * kSecond_ns, other);
  EXPECT_TRUE(readable(other)) << "its owner reads it";
  close(other);
}

// Two threads take turns. A lost wake-up is a sleep without end: the deadline makes it a failure.
TEST(WakerTest, NoWakeUpIsLostInPingPong) {
  constexpr uint64_t kTurns = 100'000;
  Waker wakers[2];
  std::atomic<uint64_t> turn{0};
  std::atomic<bool> lost{false};
  const auto play = [&](uint64_t me) {
    while (!lost.load(std::memory_order_relaxed)) {
      const uint64_t now = turn.load(std::memory_order_acquire);
      if (now >= kTurns) break;
      if (now % 2 == me) {
        turn.store(now + 1, std::memory_order_release);
        wakers[1 - me].wake();
        continue;
      }
      wakers[me].arm();
      if (turn.load(std::memory_order_acquire) == now) {
        const uint64_t deadline = now_ns() + 20 * kSecond_ns;
        wakers[me].sleep(deadline);
        if (now_ns() >= deadline) lost = true;
      } else {
        wakers[me].disarm();
      }
    }
  };
  std::thread other(play, 1);
  play(0);
  other.join();
  EXPECT_FALSE(lost.load());
  EXPECT_EQ(turn.load(), kTurns);
}

}  // namespace
}  // namespace dualpath
