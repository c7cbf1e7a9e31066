// A store directory for its tools (src/storage/admin.ts): one job at a time, off the JavaScript thread.
#pragma once
#include <memory>

#include "args.h"
#include "store/block_format.h"
#include "store/store_root.h"
#include "wrap.h"

namespace dualpath::bindings {

// {truncated, notABlock, ...}: counts of bad blocks by cause.
Napi::Object faults_value(Napi::Env env, const std::array<uint64_t, store::kBlockFaults>& faults);

class StoreToolObject : public Wrap<StoreToolObject> {
 public:
  static void define(Napi::Env env, Napi::Object exports);
  explicit StoreToolObject(const Napi::CallbackInfo& info);

 private:
  Napi::Value facts(const Napi::CallbackInfo& info);
  Napi::Value progress(const Napi::CallbackInfo& info);
  Napi::Value stop(const Napi::CallbackInfo& info);
  Napi::Value survey(const Napi::CallbackInfo& info);
  Napi::Value verify(const Napi::CallbackInfo& info);
  Napi::Value collect(const Napi::CallbackInfo& info);
  Napi::Value sweep(const Napi::CallbackInfo& info);
  Napi::Value delete_namespace(const Napi::CallbackInfo& info);

  std::shared_ptr<store::StoreRoot> root_;
  std::shared_ptr<store::ToolProgress> progress_;
};

}  // namespace dualpath::bindings
