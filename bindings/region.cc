// Memory that the process has already: an arena, a buffer of JavaScript, an address, a file of another
// process.
#include "devices.h"
#include "objects.h"

namespace dualpath::bindings {

void RegionObject::define(Napi::Env env, Napi::Object exports) {
  exports.Set("Region", DefineClass(env, "Region", {InstanceMethod<&RegionObject::facts>("facts")}));
}

// {name, emulatedHbm?} and one of {arena}, {buffer}, {address: bigint, bytes, owner?, cuda?}, {fd,
// offsetBytes?, bytes}
RegionObject::RegionObject(const Napi::CallbackInfo& info) : Wrap(info) {
  Options options(info.Env(), info[0]);
  std::string name = options.string("name");
  const ArenaKind kind = options.boolean("emulatedHbm", false) ? ArenaKind::kEmulatedHbm : ArenaKind::kHost;
  Status status;
  if (options.has("arena")) {
    ArenaObject* arena = options.wrapped<ArenaObject>("arena");
    if (options.ok() && arena == nullptr) options.fail("arena", "an arena");
    if (options.ok()) region_ = Region::of(arena->arena());
  } else if (options.has("buffer")) {
    status = adopt_buffer(options, std::move(name), kind);
  } else if (options.has("address")) {
    status = adopt_address(options, std::move(name), kind);
  } else if (options.has("fd")) {
    const uint32_t fd = options.u32("fd");
    const uint64_t offset = options.u64("offsetBytes");
    const uint64_t bytes = options.u64("bytes");
    if (options.ok() && fd > INT32_MAX) options.fail("fd", "a file descriptor");
    if (options.ok())
      status = Region::map(std::move(name), static_cast<int>(fd), offset, bytes, kind, &region_);
  } else {
    options.fail("arena, buffer, address or fd", "one of them");
  }
  if (options.ok() && !status.ok()) throw_status(info.Env(), status);
}

// A view, so that it may be of a SharedArrayBuffer, which Node-API does not know by itself.
Status RegionObject::adopt_buffer(Options& options, std::string name, ArenaKind kind) {
  const Napi::Value value = options.get("buffer");
  if (!value.IsTypedArray() || value.As<Napi::TypedArray>().TypedArrayType() != napi_uint8_array) {
    options.fail("buffer", "a Uint8Array");
    return {};
  }
  Napi::Uint8Array bytes = value.As<Napi::Uint8Array>();
  kept_ = Napi::Persistent(value.As<Napi::Object>());
  return Region::of_buffer(std::move(name), reinterpret_cast<std::byte*>(bytes.Data()), bytes.ByteLength(),
                           kind, &region_);
}

bool RegionObject::there() const {
  if (kept_.IsEmpty() || !kept_.Value().IsTypedArray()) return true;
  return kept_.Value().As<Napi::TypedArray>().ByteLength() == region_->bytes();
}

Status RegionObject::adopt_address(Options& options, std::string name, ArenaKind kind) {
  const Napi::Value value = options.get("address");
  const uint64_t bytes = options.u64("bytes");
  bool lossless = false;
  const uint64_t address = value.IsBigInt() ? value.As<Napi::BigInt>().Uint64Value(&lossless) : 0;
  if (!lossless) options.fail("address", "a BigInt of 0 to 2^64 - 1");
  if (options.ok() && options.has("owner")) {
    if (!options.get("owner").IsObject()) options.fail("owner", "an object");
    if (options.ok()) kept_ = Napi::Persistent(options.get("owner").As<Napi::Object>());
  }
  if (!options.ok()) return {};
  if (CudaDeviceObject* cuda = options.wrapped<CudaDeviceObject>("cuda"))
    return Region::of_device(std::move(name), cuda->device(), address, bytes, &region_);
  if (!options.ok()) return {};
  return Region::adopt(std::move(name), address, bytes, kind, &region_);
}

Napi::Value RegionObject::facts(const Napi::CallbackInfo& info) {
  const Napi::Env env = info.Env();
  Napi::Object facts = Napi::Object::New(env);
  facts.Set("name", region_->name());
  facts.Set("bytes", number(env, region_->bytes()));
  facts.Set("address", Napi::BigInt::New(env, reinterpret_cast<uint64_t>(region_->base())));
  facts.Set("kind", arena_kind_name(region_->kind()));
  Napi::Array slices = Napi::Array::New(env, region_->slices().size());
  for (uint32_t i = 0; i < region_->slices().size(); i++)
    slices.Set(i, number(env, region_->slices()[i]->bytes()));
  facts.Set("sliceBytes", slices);
  return facts;
}

}  // namespace dualpath::bindings
