// libsodium chooses its implementation for this CPU when started; every use of it here starts it first.
#pragma once
#include <sodium.h>

#include <cstdlib>

namespace dualpath::store {

// Safe from any thread; only the first call does anything.
inline void start_sodium() noexcept {
  static const int started = sodium_init();
  if (started < 0) std::abort();  // no source of random numbers: nothing of libsodium may be used
}

}  // namespace dualpath::store
