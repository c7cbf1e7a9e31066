#include "devices.h"

#include "rdma.h"
#include "rdma_values.h"
#include "verbs/library.h"

namespace dualpath::bindings {

void CudaDeviceObject::define(Napi::Env env, Napi::Object exports) {
  exports.Set("CudaDevice",
              DefineClass(env, "CudaDevice", {InstanceMethod<&CudaDeviceObject::facts>("facts")}));
}

// {ordinal} or {pciAddress}; library?: another one than the driver's, for tests.
CudaDeviceObject::CudaDeviceObject(const Napi::CallbackInfo& info) : Wrap(info) {
  Options options(info.Env(), info[0]);
  const std::string library = options.has("library") ? options.string("library") : cuda::kLibraryName;
  const bool by_address = options.has("pciAddress");
  const std::string address = by_address ? options.string("pciAddress") : "";
  const auto ordinal = static_cast<int>(options.u64("ordinal", 0, INT32_MAX));
  if (!options.ok()) return;
  std::shared_ptr<cuda::Driver> driver;
  Status status = cuda::Driver::open(library, &driver);
  if (status.ok()) {
    status = by_address ? cuda::Device::open(std::move(driver), address, &device_)
                        : cuda::Device::open(std::move(driver), ordinal, &device_);
  }
  if (!status.ok()) throw_status(info.Env(), status);
}

Napi::Value CudaDeviceObject::facts(const Napi::CallbackInfo& info) {
  static constexpr const char* kFlushes[] = {"none", "host", "stream-only"};
  const cuda::DeviceFacts& facts = device_->facts();
  Napi::Object out = Napi::Object::New(info.Env());
  out.Set("ordinal", Napi::Number::New(info.Env(), facts.ordinal));
  out.Set("name", facts.name);
  out.Set("pciAddress", facts.pci_address);
  out.Set("driverVersion", Napi::Number::New(info.Env(), facts.driver_version));
  out.Set("gpuDirectRdma", facts.rdma);
  out.Set("dmaBuf", facts.dma_buf);
  out.Set("remoteFlush", kFlushes[static_cast<size_t>(facts.flush)]);
  out.Set("flushes", number(info.Env(), device_->flushes()));
  return out;
}

void CopyNicObject::define(Napi::Env env, Napi::Object exports) {
  exports.Set("CopyNic", DefineClass(env, "CopyNic",
                                     {InstanceMethod<&CopyNicObject::statistics>("statistics"),
                                      InstanceMethod<&CopyNicObject::end>("end")}));
}

// {engine, provider?, serviceLevel?, trafficClass?} and what parse_port() reads
CopyNicObject::CopyNicObject(const Napi::CallbackInfo& info) : Wrap(info) {
  const Napi::Env env = info.Env();
  Options options(env, info[0]);
  EngineObject* const engine = options.wrapped<EngineObject>("engine");
  StubFabricObject* const stub = options.wrapped<StubFabricObject>("provider");
  rdma::CopyNicOptions wanted;
  parse_port(options, &wanted);
  wanted.service_level = static_cast<uint8_t>(options.u64("serviceLevel", 0, 15));
  wanted.traffic_class = static_cast<uint8_t>(options.u64("trafficClass", 0, UINT8_MAX));
  if (options.ok() && engine == nullptr) options.fail("engine", "an engine");
  if (!options.ok()) return;
  runtime_ = engine->runtime();
  if (runtime_->reactor() == nullptr) return;
  if (stub != nullptr) wanted.verbs = stub->fabric();
  Status status = stub == nullptr ? verbs::process_library(&wanted.verbs) : Status{};
  engine_ = engine->engine();
  wanted.engine = engine_.get();
  wanted.reactor = runtime_->reactor();
  wanted.emulated = stub != nullptr;
  if (status.ok()) status = rdma::CopyNic::create(std::move(wanted), &nic_);
  if (!status.ok()) {
    throw_status(env, status);
    return;
  }
  engine_reference_ = Napi::Persistent(engine->Value());
}

Napi::Value CopyNicObject::end(const Napi::CallbackInfo& info) {
  return Napi::Boolean::New(info.Env(), runtime_->reactor() == nullptr || nic_->end());
}

Napi::Value CopyNicObject::statistics(const Napi::CallbackInfo& info) {
  const Napi::Env env = info.Env();
  if (runtime_->reactor() == nullptr) return env.Undefined();
  const rdma::CopyNicStatistics all = nic_->statistics();
  Napi::Object out = Napi::Object::New(env);
  const std::pair<const char*, uint64_t> fields[] = {{"bytes", all.counters.bytes},
                                                     {"chains", all.counters.chains},
                                                     {"postCalls", all.counters.post_calls},
                                                     {"requests", all.counters.requests},
                                                     {"completions", all.counters.completions},
                                                     {"errors", all.counters.errors},
                                                     {"rebuilt", all.rebuilt}};
  for (const auto& [name, value] : fields) out.Set(name, number(env, value));
  Napi::Object registered = Napi::Object::New(env);
  for (size_t w = 0; w < verbs::kRegionWays; w++) {
    registered.Set(verbs::region_way_name(static_cast<verbs::RegionWay>(w)),
                   number(env, all.registered_bytes[w]));
  }
  out.Set("registeredBytes", registered);
  out.Set("firstError", all.first_error);
  out.Set("refused", all.refused);
  out.Set("device", nic_->options().device);
  out.Set("provider", nic_->options().verbs->provider());
  out.Set("emulated", nic_->options().emulated);
  return out;
}

}  // namespace dualpath::bindings
