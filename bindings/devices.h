// Devices that copy: a GPU by CUDA's driver, and the NIC.
#pragma once
#include "cuda/device.h"
#include "objects.h"
#include "rdma/copy_nic.h"

namespace dualpath::bindings {

class CudaDeviceObject : public Wrap<CudaDeviceObject> {
 public:
  static void define(Napi::Env env, Napi::Object exports);
  explicit CudaDeviceObject(const Napi::CallbackInfo& info);
  const std::shared_ptr<cuda::Device>& device() const { return device_; }

 private:
  Napi::Value facts(const Napi::CallbackInfo& info);
  std::shared_ptr<cuda::Device> device_;
};

class CopyNicObject : public Wrap<CopyNicObject> {
 public:
  static void define(Napi::Env env, Napi::Object exports);
  explicit CopyNicObject(const Napi::CallbackInfo& info);

 private:
  Napi::Value statistics(const Napi::CallbackInfo& info);
  Napi::Value end(const Napi::CallbackInfo& info);
  Napi::ObjectReference engine_reference_;
  RuntimeObject* runtime_ = nullptr;
  std::shared_ptr<TransferEngine> engine_;  // before what refers to it
  std::shared_ptr<rdma::CopyNic> nic_;
};

}  // namespace dualpath::bindings
