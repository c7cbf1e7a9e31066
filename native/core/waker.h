// Wakes a thread that sleeps in ppoll: an eventfd that is written only while the sleeper says it
// sleeps. The sleeper arms, looks at its work once more, then sleeps; whoever adds work publishes it
// first and then calls wake(). Both sides use sequentially consistent order, so no wake-up is lost.
#pragma once
#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>

#include "core/clock.h"

namespace dualpath {

class Waker {
 public:
  Waker() : fd_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}
  ~Waker() {
    if (fd_ >= 0) close(fd_);
    if (bells_ >= 0) close(bells_);
  }
  Waker(const Waker&) = delete;
  Waker& operator=(const Waker&) = delete;

  int fd() const { return fd_; }
  // What is looked at after this was published before a wake() that did not see it.
  void arm() {
    sleeping_.store(1, std::memory_order_seq_cst);
    std::atomic_thread_fence(std::memory_order_seq_cst);
  }
  void disarm() { sleeping_.store(0, std::memory_order_relaxed); }

  void wake() {
    std::atomic_thread_fence(std::memory_order_seq_cst);
    if (sleeping_.load(std::memory_order_seq_cst) != 0) ring();
  }

  // Unconditional: for producers that cannot see the flag (another process's doorbell).
  void ring() {
    const uint64_t one = 1;
    [[maybe_unused]] ssize_t n = ::write(fd_, &one, sizeof one);  // EAGAIN: already rung
  }

  // Eventfds that other processes write to wake the sleeper too, who then waits for fd() and bells(). They
  // are watched for edges and never read: who else holds one may read it first, and may have made reading
  // wait. False when no file descriptor is left.
  bool open_bells() {
    bells_ = epoll_create1(EPOLL_CLOEXEC);
    return bells_ >= 0;
  }
  int bells() const { return bells_; }  // -1 before open_bells()
  bool watch(int bell) {
    epoll_event event{};
    event.events = EPOLLIN | EPOLLET;
    return epoll_ctl(bells_, EPOLL_CTL_ADD, bell, &event) == 0;
  }
  // Before the bell is closed here: others may have it open still.
  void unwatch(int bell) { epoll_ctl(bells_, EPOLL_CTL_DEL, bell, nullptr); }
  // What rang is taken note of; after every sleep that was not sleep().
  void drain() {
    uint64_t count;
    [[maybe_unused]] ssize_t n = ::read(fd_, &count, sizeof count);
    epoll_event rung[8];  // more come with the next look
    if (bells_ >= 0) epoll_wait(bells_, rung, 8, 0);
  }

  // Sleeps until rung, until extra_fd is readable (-1: none) or until deadline_ns. Call only when armed.
  void sleep(uint64_t deadline_ns, int extra_fd = -1) {
    pollfd fds[2] = {{fd_, POLLIN, 0}, {extra_fd, POLLIN, 0}};  // -1 is passed over
    timespec timeout{};
    timespec* limit = nullptr;
    if (deadline_ns != kNever) {
      const uint64_t now = now_ns();
      const uint64_t left = deadline_ns > now ? deadline_ns - now : 0;
      timeout.tv_sec = static_cast<time_t>(left / 1'000'000'000u);
      timeout.tv_nsec = static_cast<long>(left % 1'000'000'000u);
      limit = &timeout;
    }
    ppoll(fds, 2, limit, nullptr);
    disarm();
    if ((fds[0].revents & POLLIN) != 0) {
      uint64_t count;
      [[maybe_unused]] ssize_t n = ::read(fd_, &count, sizeof count);
    }
  }

 private:
  int fd_;
  int bells_ = -1;  // epoll of what is watched
  std::atomic<uint32_t> sleeping_{0};
};

}  // namespace dualpath
