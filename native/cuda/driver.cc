#include "cuda/driver.h"

#include <dlfcn.h>

namespace dualpath::cuda {
namespace {

Status unavailable(const std::string& why) { return Status::error("CUDA_UNAVAILABLE", "no CUDA: " + why); }

class Loader {
 public:
  explicit Loader(void* library) : library_(library) {}

  template <typename F>
  void need(const char* symbol, F* out) {
    want(symbol, out);
    if (*out == nullptr && missing_.empty()) missing_ = symbol;
  }
  template <typename F>
  void want(const char* symbol, F* out) {
    *out = reinterpret_cast<F>(dlsym(library_, symbol));
  }
  const std::string& missing() const { return missing_; }

 private:
  void* library_;
  std::string missing_;
};

// With the suffixes of those versions whose prototypes api.h has.
std::string load(void* library, Functions* f) {
  Loader loader(library);
  loader.need("cuInit", &f->Init);
  loader.need("cuDriverGetVersion", &f->DriverGetVersion);
  loader.need("cuGetErrorName", &f->GetErrorName);
  loader.need("cuGetErrorString", &f->GetErrorString);
  loader.need("cuDeviceGetCount", &f->DeviceGetCount);
  loader.need("cuDeviceGet", &f->DeviceGet);
  loader.need("cuDeviceGetName", &f->DeviceGetName);
  loader.need("cuDeviceGetByPCIBusId", &f->DeviceGetByPCIBusId);
  loader.need("cuDeviceGetPCIBusId", &f->DeviceGetPCIBusId);
  loader.need("cuDeviceGetAttribute", &f->DeviceGetAttribute);
  loader.need("cuDevicePrimaryCtxRetain", &f->DevicePrimaryCtxRetain);
  loader.need("cuDevicePrimaryCtxRelease_v2", &f->DevicePrimaryCtxRelease);
  loader.need("cuCtxPushCurrent_v2", &f->CtxPushCurrent);
  loader.need("cuCtxPopCurrent_v2", &f->CtxPopCurrent);
  loader.need("cuMemAlloc_v2", &f->MemAlloc);
  loader.need("cuMemFree_v2", &f->MemFree);
  loader.need("cuPointerGetAttribute", &f->PointerGetAttribute);
  loader.need("cuPointerSetAttribute", &f->PointerSetAttribute);
  loader.need("cuMemHostRegister_v2", &f->MemHostRegister);
  loader.need("cuMemHostUnregister", &f->MemHostUnregister);
  loader.need("cuMemcpyAsync", &f->MemcpyAsync);
  loader.need("cuMemcpy2DAsync_v2", &f->Memcpy2DAsync);
  loader.need("cuStreamCreate", &f->StreamCreate);
  loader.need("cuStreamDestroy_v2", &f->StreamDestroy);
  loader.need("cuStreamSynchronize", &f->StreamSynchronize);
  loader.need("cuEventCreate", &f->EventCreate);
  loader.need("cuEventDestroy_v2", &f->EventDestroy);
  loader.need("cuEventRecord", &f->EventRecord);
  loader.need("cuEventQuery", &f->EventQuery);
  loader.need("cuLaunchHostFunc", &f->LaunchHostFunc);
  loader.want("cuMemGetHandleForAddressRange", &f->MemGetHandleForAddressRange);
  loader.want("cuFlushGPUDirectRDMAWrites", &f->FlushGPUDirectRDMAWrites);
  return loader.missing();
}

}  // namespace

Status Driver::open(const std::string& library, std::shared_ptr<Driver>* out) {
  void* const handle = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    return unavailable(library + " not found; install NVIDIA's driver, or use memory of the host");
  }
  auto driver = std::shared_ptr<Driver>(new Driver());
  const std::string missing = load(handle, &driver->api_);
  if (!missing.empty()) {
    dlclose(handle);
    return unavailable(library + " has no " + missing + "; install a driver of CUDA 10.2 or later");
  }
  Result result = driver->api_.Init(0);
  if (result == kSuccess) result = driver->api_.DriverGetVersion(&driver->version_);
  if (result == kSuccess) result = driver->api_.DeviceGetCount(&driver->devices_);
  if (result != kSuccess || driver->devices_ == 0) {
    return unavailable(library + " finds no device" +
                       (result == kSuccess ? "" : ": " + driver->text(result)) +
                       "; check nvidia-smi, the devices given to this container and CUDA_VISIBLE_DEVICES");
  }
  *out = std::move(driver);
  return {};
}

std::string Driver::text(Result result) const {
  const char* name = nullptr;
  const char* text = nullptr;
  const bool known = api_.GetErrorName(result, &name) == kSuccess && name != nullptr;
  const bool described = api_.GetErrorString(result, &text) == kSuccess && text != nullptr;
  return std::string(known ? name : "unknown error") + " (" + std::to_string(result) + ")" +
         (described ? std::string(": ") + text : "");
}

}  // namespace dualpath::cuda
