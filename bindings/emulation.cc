#include "objects.h"

namespace dualpath::bindings {

void KvSeedsObject::define(Napi::Env env, Napi::Object exports) {
  exports.Set("KvSeeds", DefineClass(env, "KvSeeds", std::initializer_list<PropertyDescriptor>{}));
}

// new KvSeeds(tokens: Uint32Array): what the emulated KV of each token is made from.
KvSeedsObject::KvSeedsObject(const Napi::CallbackInfo& info) : Wrap(info) {
  if (!info[0].IsTypedArray() || info[0].As<Napi::TypedArray>().TypedArrayType() != napi_uint32_array) {
    throw_argument(info.Env(), "tokens", "a Uint32Array");
    return;
  }
  const Napi::Uint32Array tokens = info[0].As<Napi::Uint32Array>();
  seeds_ = std::make_shared<const std::vector<uint64_t>>(
      emulation::kv_seeds(tokens.Data(), tokens.ElementLength()));
}

void EmulatedGpuObject::define(Napi::Env env, Napi::Object exports) {
  exports.Set("EmulatedGpu", DefineClass(env, "EmulatedGpu",
                                         {InstanceMethod<&EmulatedGpuObject::launch>("launch"),
                                          InstanceMethod<&EmulatedGpuObject::cancel>("cancel"),
                                          InstanceMethod<&EmulatedGpuObject::statistics>("statistics"),
                                          InstanceMethod<&EmulatedGpuObject::close>("close")}));
}

EmulatedGpuObject::EmulatedGpuObject(const Napi::CallbackInfo& info) : Wrap(info) {
  const Napi::Env env = info.Env();
  Options options(env, info[0]);
  EngineObject* engine = options.wrapped<EngineObject>("engine");
  const uint32_t lanes = options.u32("lanes", 1);
  if (lanes == 0 || lanes > emulation::EmulatedGpu::kMaxLanes) options.fail("lanes", "1 to 1024");
  if (engine == nullptr) options.fail("engine", "an engine");
  if (!options.ok()) return;
  engine_ = engine->engine();
  lanes_ = lanes;
  auto waker = std::make_shared<Waker>();
  if (!engine_->door().add_waker(waker)) {
    throw_status(env, Status::error("CAPACITY_EXHAUSTED", "too many emulated GPUs on one engine"));
    return;
  }
  gpu_ = std::make_shared<emulation::EmulatedGpu>(engine_->options().door, waker, lanes);
  engine->runtime()->keep(gpu_);
}

namespace {

TokenRange range_of(Options& options, const char* begin, const char* end) {
  const TokenRange range{options.u32(begin), options.u32(end)};
  if (range.begin > range.end) options.fail(end, "a number not below the range's begin");
  return range;
}

dp_wait wait_of(Napi::Env env, Napi::Value value) {
  if (!value.IsObject()) return {DP_NONE, 0, 0, 0, 0};
  Options options(env, value);
  return {options.u32("counter"), static_cast<uint8_t>(options.u64("counterStep", 0, UINT8_MAX)),
          static_cast<uint8_t>(options.u64("valueStep", 0, UINT8_MAX)),
          static_cast<uint16_t>(options.u64("skipSteps", 0, UINT16_MAX)), options.wrapping("value")};
}

dp_signal signal_of(Napi::Env env, Napi::Value value) {
  if (!value.IsObject()) return {DP_NONE, 0, 0, 0, 0, 0};
  Options options(env, value);
  return {options.u32("counter"),
          static_cast<uint8_t>(options.boolean("ordered", false) ? DP_SIGNAL_ORDERED : DP_SIGNAL_ADD),
          0,
          static_cast<uint8_t>(options.u64("counterStep", 0, UINT8_MAX)),
          0,
          options.wrapping("value")};
}

bool counters_exist(const Door& door, const emulation::Launch& launch) {
  const uint64_t last = launch.steps - 1u;
  for (const dp_wait& wait : launch.wait) {
    if (wait.counter != DP_NONE && wait.counter + last * wait.counter_step >= door.counter_entries())
      return false;
  }
  for (const dp_signal& signal : launch.signal) {
    if (signal.counter != DP_NONE && signal.counter + last * signal.counter_step >= door.counter_entries())
      return false;
  }
  return true;
}

}  // namespace

// {geometry, list, count, firstBlock, seeds, checkBegin, checkEnd, writeBegin, writeEnd, windowEnd}
bool EmulatedGpuObject::parse_body(Napi::Env env, Napi::Value value, emulation::KernelBody* body) {
  Options options(env, value);
  body->geometry = engine_->geometry(options.u32("geometry"));
  const uint32_t list = options.u32("list");
  const uint32_t count = options.u32("count");
  body->first_block = options.u32("firstBlock");
  KvSeedsObject* seeds = options.wrapped<KvSeedsObject>("seeds");
  body->check = range_of(options, "checkBegin", "checkEnd");
  body->write = range_of(options, "writeBegin", "writeEnd");
  body->window_end = options.u32("windowEnd");
  if (!options.ok()) return false;
  const uint32_t entries = engine_->door().header().slot_entries;
  if (body->geometry == nullptr) options.fail("geometry", "a geometry of the engine");
  if (body->geometry != nullptr && body->geometry->device() != nullptr)
    options.fail("geometry",
                 "memory that the CPU reaches: this GPU is emulated, that of the geometry is not");
  if (seeds == nullptr) options.fail("seeds", "the seeds of the tokens");
  if (!options.ok()) return false;
  const uint64_t needed = static_cast<uint64_t>(count) * body->geometry->entries_per_block();
  if (list > entries || needed > entries - list) options.fail("list", "a range of the slot table");
  if (!options.ok()) return false;
  body->seeds = seeds->seeds();
  if (std::max(body->check.end, body->write.end) > body->seeds->size())
    options.fail("seeds", "one seed a token");
  const uint32_t* slots = engine_->door().slots() + list;
  body->slots.assign(slots, slots + needed);
  for (const uint32_t slot : body->slots) {
    if (!body->geometry->paged() && slot >= body->geometry->slots())
      options.fail("list", "slots of the geometry");
  }
  return options.ok();
}

// {lane, steps, allLayers, stepDurationNs, waits: [..2], signals: [..2], bodies: [...]} -> number of the
// launch, 0 when full
Napi::Value EmulatedGpuObject::launch(const Napi::CallbackInfo& info) {
  const Napi::Env env = info.Env();
  Options options(env, info[0]);
  emulation::Launch launch;
  launch.lane = options.u32("lane");
  if (launch.lane >= lanes_) options.fail("lane", "a lane of the GPU");
  launch.steps = static_cast<uint16_t>(options.u64("steps", 1, Geometry::kMaxLayers));
  launch.all_layers = options.boolean("allLayers", false);
  launch.step_duration_ns = options.u64("stepDurationNs");
  if (launch.steps == 0) options.fail("steps", "at least 1");
  const Napi::Value waits = options.get("waits");
  const Napi::Value signals = options.get("signals");
  const Napi::Value bodies = options.get("bodies");
  if (!waits.IsArray() || !signals.IsArray() || !bodies.IsArray())
    options.fail("waits, signals, bodies", "arrays");
  if (!options.ok()) return env.Undefined();
  if (waits.As<Napi::Array>().Length() > 2 || signals.As<Napi::Array>().Length() > 2)
    options.fail("waits, signals", "at most 2 of each");
  if (!options.ok()) return env.Undefined();
  for (uint32_t i = 0; i < 2; i++) {
    launch.wait[i] = wait_of(env, waits.As<Napi::Array>().Get(i));
    launch.signal[i] = signal_of(env, signals.As<Napi::Array>().Get(i));
  }
  if (env.IsExceptionPending()) return env.Undefined();
  if (!counters_exist(engine_->door(), launch)) options.fail("counter", "a counter of the engine");
  for (uint32_t i = 0; i < bodies.As<Napi::Array>().Length(); i++) {
    emulation::KernelBody body;
    if (!parse_body(env, bodies.As<Napi::Array>().Get(i), &body)) return env.Undefined();
    if (!launch.all_layers && launch.steps > body.geometry->layers())
      options.fail("steps", "at most the layers");
    launch.bodies.push_back(std::move(body));
  }
  if (!options.ok()) return env.Undefined();
  return Napi::Number::New(env, gpu_->launch(std::move(launch)));
}

Napi::Value EmulatedGpuObject::statistics(const Napi::CallbackInfo& info) {
  const Napi::Env env = info.Env();
  const emulation::StreamStatistics s = gpu_->statistics();
  Napi::Object out = Napi::Object::New(env);
  out.Set("kernels", number(env, s.kernels));
  out.Set("modelledNs", number(env, s.modelled_ns));
  out.Set("checkedBytes", number(env, s.checked_bytes));
  out.Set("mismatchedBytes", number(env, s.mismatched_bytes));
  out.Set("writtenBytes", number(env, s.written_bytes));
  out.Set("overruns", number(env, s.overruns));
  out.Set("latenessSumNs", number(env, s.lateness_sum_ns));
  out.Set("latenessMaxNs", number(env, s.lateness_max_ns));
  Napi::Array buckets = Napi::Array::New(env, s.lateness_log2_ns.size());
  for (uint32_t i = 0; i < s.lateness_log2_ns.size(); i++) buckets.Set(i, number(env, s.lateness_log2_ns[i]));
  out.Set("latenessLog2Ns", buckets);
  return out;
}

Napi::Value EmulatedGpuObject::cancel(const Napi::CallbackInfo& info) {
  gpu_->cancel(u32_of(info[0]));
  return info.Env().Undefined();
}

Napi::Value EmulatedGpuObject::close(const Napi::CallbackInfo& info) {
  gpu_->stop();
  return info.Env().Undefined();
}

}  // namespace dualpath::bindings
