// What a reactor's thread polls besides its engines and storage: an RDMA device.
#pragma once
#include <array>
#include <cstdint>
#include <string>

namespace dualpath {

class Poller {
 public:
  virtual ~Poller() = default;
  virtual const std::string& key() const = 0;  // one of a reactor's pollers has it

  // Everything below on the reactor's thread.
  // Whether anything moved.
  virtual bool poll(uint64_t now) = 0;
  // Before a last poll() and sleeping: what comes from now on makes one of the descriptors readable. They are
  // watched for edges, and reading them is the poller's.
  virtual void arm() = 0;
  virtual std::array<int, 2> watched() const = 0;  // -1: none
  // The thread ends: nothing of it may be in flight after this.
  virtual void stop() = 0;
};

}  // namespace dualpath
