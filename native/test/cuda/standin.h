// The stand-in CUDA driver as tests steer it (standin_memory.c), opened as the driver is.
#pragma once
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "cuda/device.h"
#include "memory/geometry.h"
#include "memory/walk.h"

namespace dualpath::test {

struct Standin {
  std::shared_ptr<cuda::Driver> driver;
  void (*reset)();
  void (*set_devices)(int);
  void (*set_attribute)(int device, int attribute, int value);
  void (*set_delay_us)(uint32_t);
  void (*fail)(const char* call, uint64_t nth, int result);
  uint64_t (*calls)(const char* call);
  uint64_t (*pageable_copies)();
  void* (*alias)(void* address, size_t bytes);
  int (*live_allocations)();

  Standin() {
    void* const library = dlopen(DUALPATH_STANDIN_CUDA, RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) {
      ADD_FAILURE() << dlerror();
      std::abort();
    }
    find(library, "standin_reset", &reset);
    find(library, "standin_set_devices", &set_devices);
    find(library, "standin_set_attribute", &set_attribute);
    find(library, "standin_set_delay_us", &set_delay_us);
    find(library, "standin_fail", &fail);
    find(library, "standin_calls", &calls);
    find(library, "standin_pageable_copies", &pageable_copies);
    find(library, "standin_alias", &alias);
    find(library, "standin_live_allocations", &live_allocations);
    reset();
    const Status status = cuda::Driver::open(DUALPATH_STANDIN_CUDA, &driver);
    EXPECT_TRUE(status.ok()) << status.message;
  }

  std::shared_ptr<cuda::Device> device(int ordinal = 0) const {
    std::shared_ptr<cuda::Device> device;
    const Status status = cuda::Device::open(driver, ordinal, &device);
    EXPECT_TRUE(status.ok()) << status.message;
    return device;
  }
  // Bytes of a device, to be looked at.
  std::byte* see(uint64_t address, size_t bytes = 1) const {
    return static_cast<std::byte*>(alias(reinterpret_cast<void*>(address), bytes));
  }
  std::byte* see(const std::byte* address, size_t bytes = 1) const {
    return see(reinterpret_cast<uint64_t>(address), bytes);
  }

 private:
  template <typename F>
  static void find(void* library, const char* name, F* out) {
    *out = reinterpret_cast<F>(dlsym(library, name));
    if (*out == nullptr) std::abort();
  }
};

}  // namespace dualpath::test
