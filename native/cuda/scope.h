// A context current on this thread for as long as the object lives, and whatever was before it after.
#pragma once
#include "cuda/api.h"

namespace dualpath::cuda {

class Scope {
 public:
  Scope(const Functions& api, Context context) : api_(api), result_(api.CtxPushCurrent(context)) {}
  ~Scope() {
    Context popped;
    if (result_ == kSuccess) api_.CtxPopCurrent(&popped);
  }
  Scope(const Scope&) = delete;
  Scope& operator=(const Scope&) = delete;
  Result result() const { return result_; }

 private:
  const Functions& api_;
  const Result result_;
};

}  // namespace dualpath::cuda
