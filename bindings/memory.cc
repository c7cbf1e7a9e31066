#include <cstring>

#include "devices.h"
#include "objects.h"

namespace dualpath::bindings {

// Arena

void ArenaObject::define(Napi::Env env, Napi::Object exports) {
  exports.Set("Arena", DefineClass(env, "Arena",
                                   {InstanceMethod<&ArenaObject::facts>("facts"),
                                    InstanceMethod<&ArenaObject::buffer>("buffer"),
                                    InstanceMethod<&ArenaObject::read>("read"),
                                    InstanceMethod<&ArenaObject::write>("write")}));
}

ArenaObject::ArenaObject(const Napi::CallbackInfo& info) : Wrap(info) {
  Options options(info.Env(), info[0]);
  ArenaOptions wanted;
  wanted.name = options.string("name");
  wanted.bytes = options.u64("bytes");
  wanted.kind = options.boolean("emulatedHbm", false) ? ArenaKind::kEmulatedHbm : ArenaKind::kHost;
  wanted.huge_pages = options.boolean("hugePages", true);
  wanted.shared = options.boolean("shared", false);
  const std::string lock = options.has("lock") ? options.string("lock") : "try";
  if (lock != "none" && lock != "try" && lock != "require")
    options.fail("lock", "'none', 'try' or 'require'");
  wanted.lock = lock == "require" ? LockPolicy::kRequire
                : lock == "none"  ? LockPolicy::kNone
                                  : LockPolicy::kTry;
  const bool mapped =
      options.has("fd");  // memory that another process shares; the descriptor stays the caller's
  const uint64_t fd = options.u64("fd", 0, INT32_MAX);
  CudaDeviceObject* const cuda = options.wrapped<CudaDeviceObject>("cuda");
  if (!options.ok()) return;
  const Status status =
      cuda != nullptr ? Arena::of_device(wanted.name, cuda->device(), wanted.bytes, &arena_)
      : mapped        ? Arena::map(wanted.name, static_cast<int>(fd), wanted.bytes, wanted.kind, &arena_)
                      : Arena::create(wanted, &arena_);
  if (!status.ok()) {
    throw_status(info.Env(), status);
    return;
  }
  // So that the collector knows what it keeps by not collecting.
  Napi::MemoryManagement::AdjustExternalMemory(info.Env(), static_cast<int64_t>(arena_->bytes()));
}

ArenaObject::~ArenaObject() {
  if (arena_ != nullptr) {
    Napi::MemoryManagement::AdjustExternalMemory(Env(), -static_cast<int64_t>(arena_->bytes()));
  }
}

Napi::Value ArenaObject::facts(const Napi::CallbackInfo& info) {
  Napi::Object facts = Napi::Object::New(info.Env());
  facts.Set("bytes", number(info.Env(), arena_->bytes()));
  facts.Set("hugePages", arena_->huge());
  facts.Set("locked", arena_->locked());
  facts.Set("kind", arena_kind_name(arena_->kind()));
  return facts;
}

// The whole arena as one ArrayBuffer, wrapped once; the arena lives as long as the buffer. Undefined where
// the runtime allows no external buffers.
Napi::Value ArenaObject::buffer(const Napi::CallbackInfo& info) {
  if (!reachable(info.Env())) return info.Env().Undefined();
  if (buffer_.IsEmpty()) {
    const Napi::Value whole = external_buffer(info.Env(), arena_->base(), arena_->bytes(), arena_);
    if (whole.IsArrayBuffer()) buffer_ = Napi::Weak(whole.As<Napi::ArrayBuffer>());
    return whole;
  }
  Napi::ArrayBuffer whole = buffer_.Value();
  if (!whole.IsEmpty()) return whole;
  buffer_.Reset();
  return buffer(info);
}

bool ArenaObject::reachable(Napi::Env env) const {
  if (arena_->device() == nullptr) return true;
  throw_status(env, Status::error("INVALID_ARGUMENT",
                                  "arena '" + arena_->name() + "' is memory of " + arena_->device()->name() +
                                      ", which the CPU does not reach: copy it to memory of the host"));
  return false;
}

bool ArenaObject::range(const Napi::CallbackInfo& info, uint64_t bytes, uint64_t* offset) {
  if (!reachable(info.Env())) return false;
  const double first = info[0].IsNumber() ? info[0].As<Napi::Number>().DoubleValue() : -1;
  if (first >= 0 && std::floor(first) == first && first <= static_cast<double>(arena_->bytes())) {
    *offset = static_cast<uint64_t>(first);
    if (bytes <= arena_->bytes() - *offset) return true;
  }
  throw_argument(info.Env(), "offset and bytes", "a range of the arena");
  return false;
}

// read(offset, Uint8Array): fills it
Napi::Value ArenaObject::read(const Napi::CallbackInfo& info) {
  if (!info[1].IsTypedArray() || info[1].As<Napi::TypedArray>().TypedArrayType() != napi_uint8_array) {
    throw_argument(info.Env(), "bytes", "a Uint8Array");
    return info.Env().Undefined();
  }
  Napi::Uint8Array bytes = info[1].As<Napi::Uint8Array>();
  uint64_t offset = 0;
  if (range(info, bytes.ByteLength(), &offset)) {
    std::memcpy(bytes.Data(), arena_->base() + offset, bytes.ByteLength());
  }
  return info.Env().Undefined();
}

// write(offset, Uint8Array)
Napi::Value ArenaObject::write(const Napi::CallbackInfo& info) {
  if (!info[1].IsTypedArray() || info[1].As<Napi::TypedArray>().TypedArrayType() != napi_uint8_array) {
    throw_argument(info.Env(), "bytes", "a Uint8Array");
    return info.Env().Undefined();
  }
  const Napi::Uint8Array bytes = info[1].As<Napi::Uint8Array>();
  uint64_t offset = 0;
  if (range(info, bytes.ByteLength(), &offset)) {
    std::memcpy(arena_->base() + offset, bytes.Data(), bytes.ByteLength());
  }
  return info.Env().Undefined();
}

// BlockPool

void BlockPoolObject::define(Napi::Env env, Napi::Object exports) {
  exports.Set("BlockPool", DefineClass(env, "BlockPool",
                                       {InstanceMethod<&BlockPoolObject::available>("available"),
                                        InstanceMethod<&BlockPoolObject::take>("take"),
                                        InstanceMethod<&BlockPoolObject::share>("share"),
                                        InstanceMethod<&BlockPoolObject::give_back>("giveBack")}));
}

BlockPoolObject::BlockPoolObject(const Napi::CallbackInfo& info) : Wrap(info) {
  Options options(info.Env(), info[0]);
  EngineObject* engine = options.wrapped<EngineObject>("engine");
  const uint32_t slots = options.u32("slots");
  if (!options.ok()) return;
  if (engine == nullptr) {
    throw_argument(info.Env(), "engine", "an engine");
    return;
  }
  door_ = engine->engine()->options().door;
  pool_ = std::make_unique<BlockPool>(slots);
}

Napi::Value BlockPoolObject::available(const Napi::CallbackInfo& info) {
  return Napi::Number::New(info.Env(), pool_->available());
}

bool BlockPoolObject::range(const Napi::CallbackInfo& info, uint32_t* offset, uint32_t* count) {
  *offset = u32_of(info[0]);
  *count = u32_of(info[1]);
  const uint32_t entries = door_->header().slot_entries;
  if (*offset <= entries && *count <= entries - *offset) return true;
  throw_argument(info.Env(), "list", "a range of the slot table");
  return false;
}

// take(offset, count): true, and the slots at `offset` of the slot table; or false and nothing.
Napi::Value BlockPoolObject::take(const Napi::CallbackInfo& info) {
  uint32_t offset;
  uint32_t count;
  if (!range(info, &offset, &count)) return info.Env().Undefined();
  return Napi::Boolean::New(info.Env(), pool_->take(count, door_->slots() + offset));
}

// share(offset, count): one more reference to each slot of the list.
Napi::Value BlockPoolObject::share(const Napi::CallbackInfo& info) {
  uint32_t offset;
  uint32_t count;
  if (range(info, &offset, &count) && !pool_->share(door_->slots() + offset, count)) {
    throw_status(info.Env(), Status::error("INTERNAL", "slots shared that are not taken"));
  }
  return info.Env().Undefined();
}

Napi::Value BlockPoolObject::give_back(const Napi::CallbackInfo& info) {
  uint32_t offset;
  uint32_t count;
  if (range(info, &offset, &count) && !pool_->give_back(door_->slots() + offset, count)) {
    throw_status(info.Env(), Status::error("INTERNAL", "slots given back that are not taken"));
  }
  return info.Env().Undefined();
}

}  // namespace dualpath::bindings
