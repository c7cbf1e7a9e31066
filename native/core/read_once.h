// Values in memory that another process may write at any moment. Whoever checks such a value and then uses it
// must do both with one copy of its own: the compiler is free to read plain memory twice.
#pragma once
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

namespace dualpath {

// Each word of the copy is whole; words may be of different moments. `shared` is aligned to its words.
template <typename T>
T read_once(const T& shared) {
  static_assert(std::is_trivially_copyable_v<T>);
  using Word = std::conditional_t<sizeof(T) % sizeof(uint64_t) == 0, uint64_t, uint32_t>;
  static_assert(sizeof(T) % sizeof(Word) == 0);
  typedef Word AnyWord __attribute__((may_alias));
  const auto* words = reinterpret_cast<const AnyWord*>(&shared);
  T copy;
  for (size_t i = 0; i < sizeof(T) / sizeof(Word); i++) {
    const Word word = __atomic_load_n(&words[i], __ATOMIC_RELAXED);
    std::memcpy(reinterpret_cast<std::byte*>(&copy) + i * sizeof(Word), &word, sizeof word);
  }
  return copy;
}

}  // namespace dualpath
