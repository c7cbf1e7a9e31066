// The CUDA driver, opened at run time: one binary runs where there is none, and says so.
#pragma once
#include <memory>
#include <string>

#include "core/status.h"
#include "cuda/api.h"

namespace dualpath::cuda {

inline constexpr const char* kLibraryName = "libcuda.so.1";

class Driver {
 public:
  // CUDA_UNAVAILABLE when the library is not there, lacks a function or finds no device; the message says
  // which, and what to install. The library stays loaded: drivers do not survive dlclose.
  static Status open(const std::string& library, std::shared_ptr<Driver>* out);

  const Functions& api() const { return api_; }
  int version() const { return version_; }  // 12040: CUDA 12.4
  int devices() const { return devices_; }
  // "CUDA_ERROR_NOT_READY (600): device not ready"
  std::string text(Result result) const;

 private:
  Driver() = default;
  Functions api_{};
  int version_ = 0;
  int devices_ = 0;
};

}  // namespace dualpath::cuda
