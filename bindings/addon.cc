#include "devices.h"
#include "objects.h"
#include "rdma.h"
#include "shared_transport.h"
#include "store_tool.h"

namespace dualpath::bindings {
namespace {

struct Place {
  const char* name;
  size_t offset;
  size_t bytes;
};

#define DP_FIELD(type, field) \
  { #type "." #field, offsetof(type, field), sizeof(type::field) }
constexpr Place kFields[] = {
    DP_FIELD(dp_wait, counter),
    DP_FIELD(dp_wait, counter_step),
    DP_FIELD(dp_wait, value_step),
    DP_FIELD(dp_wait, skip_steps),
    DP_FIELD(dp_wait, value),
    DP_FIELD(dp_signal, counter),
    DP_FIELD(dp_signal, mode),
    DP_FIELD(dp_signal, remote),
    DP_FIELD(dp_signal, counter_step),
    DP_FIELD(dp_signal, reserved),
    DP_FIELD(dp_signal, value),
    DP_FIELD(dp_descriptor, op),
    DP_FIELD(dp_descriptor, traffic_class),
    DP_FIELD(dp_descriptor, flags),
    DP_FIELD(dp_descriptor, program),
    DP_FIELD(dp_descriptor, tag),
    DP_FIELD(dp_descriptor, peer),
    DP_FIELD(dp_descriptor, src_geometry),
    DP_FIELD(dp_descriptor, dst_geometry),
    DP_FIELD(dp_descriptor, src_list),
    DP_FIELD(dp_descriptor, dst_list),
    DP_FIELD(dp_descriptor, list_count),
    DP_FIELD(dp_descriptor, first_block),
    DP_FIELD(dp_descriptor, token_begin),
    DP_FIELD(dp_descriptor, token_end),
    DP_FIELD(dp_descriptor, first_layer),
    DP_FIELD(dp_descriptor, layer_count),
    DP_FIELD(dp_descriptor, window_end),
    DP_FIELD(dp_descriptor, reserved),
    DP_FIELD(dp_descriptor, wait),
    DP_FIELD(dp_descriptor, signal),
    DP_FIELD(dp_record, kind),
    DP_FIELD(dp_record, op),
    DP_FIELD(dp_record, step),
    DP_FIELD(dp_record, program),
    DP_FIELD(dp_record, tag),
    DP_FIELD(dp_record, status),
    DP_FIELD(dp_record, error_index),
    DP_FIELD(dp_record, error_block),
    DP_FIELD(dp_record, bytes_moved),
    DP_FIELD(dp_record, submitted_ns),
    DP_FIELD(dp_record, finished_ns),
    DP_FIELD(dp_record, error_errno),
    DP_FIELD(dp_record, error_call),
    DP_FIELD(dp_record, error_offset),
    DP_FIELD(dp_record, error_bytes),
    DP_FIELD(dp_ring_index, head),
    DP_FIELD(dp_ring_index, pad0),
    DP_FIELD(dp_ring_index, tail),
    DP_FIELD(dp_ring_index, sleeping),
    DP_FIELD(dp_ring_index, pad1),
    DP_FIELD(dp_door_header, magic),
    DP_FIELD(dp_door_header, version),
    DP_FIELD(dp_door_header, total_bytes),
    DP_FIELD(dp_door_header, descriptor_bytes),
    DP_FIELD(dp_door_header, record_bytes),
    DP_FIELD(dp_door_header, submission_entries),
    DP_FIELD(dp_door_header, completion_entries),
    DP_FIELD(dp_door_header, counter_entries),
    DP_FIELD(dp_door_header, slot_entries),
    DP_FIELD(dp_door_header, key_entries),
    DP_FIELD(dp_door_header, submission_offset),
    DP_FIELD(dp_door_header, completion_offset),
    DP_FIELD(dp_door_header, counter_offset),
    DP_FIELD(dp_door_header, slot_offset),
    DP_FIELD(dp_door_header, key_offset),
    DP_FIELD(dp_door_header, pad),
    DP_FIELD(dp_door_header, submission),
    DP_FIELD(dp_door_header, completion),
    DP_FIELD(dp_message, magic),
    DP_FIELD(dp_message, version),
    DP_FIELD(dp_message, kind),
    DP_FIELD(dp_message, role),
    DP_FIELD(dp_message, status),
    DP_FIELD(dp_message, tag),
    DP_FIELD(dp_message, value),
    DP_FIELD(dp_message, bytes),
};
#undef DP_FIELD

constexpr struct {
  const char* name;
  size_t bytes;
} kStructs[] = {{"dp_wait", sizeof(dp_wait)},
                {"dp_signal", sizeof(dp_signal)},
                {"dp_descriptor", sizeof(dp_descriptor)},
                {"dp_record", sizeof(dp_record)},
                {"dp_ring_index", sizeof(dp_ring_index)},
                {"dp_door_header", sizeof(dp_door_header)},
                {"dp_message", sizeof(dp_message)}};

}  // namespace

// {magic, version, keyBytes, structs: {"dp_wait": bytes, ...}, fields: {"dp_wait.value": [offset, bytes],
// ...}}
Napi::Value describe_abi(const Napi::CallbackInfo& info) {
  const Napi::Env env = info.Env();
  Napi::Object fields = Napi::Object::New(env);
  for (const Place& field : kFields) {
    Napi::Array place = Napi::Array::New(env, 2);
    place.Set(0u, number(env, field.offset));
    place.Set(1u, number(env, field.bytes));
    fields.Set(field.name, place);
  }
  Napi::Object structs = Napi::Object::New(env);
  for (const auto& [name, bytes] : kStructs) structs.Set(name, number(env, bytes));
  Napi::Object out = Napi::Object::New(env);
  out.Set("magic", number(env, DP_ABI_MAGIC));
  out.Set("version", number(env, DP_ABI_VERSION));
  out.Set("keyBytes", number(env, sizeof(store::BlockKey)));
  out.Set("structs", structs);
  out.Set("fields", fields);
  return out;
}

namespace {

// Of the whole process, by kind; for tests that look for leaks.
Napi::Value live_objects(const Napi::CallbackInfo& info) {
  Napi::Object out = Napi::Object::New(info.Env());
  for (size_t kind = 0; kind < kLiveNames.size(); kind++) {
    const auto count = live_count(static_cast<LiveKind>(kind)).load(std::memory_order_relaxed);
    out.Set(kLiveNames[kind], static_cast<double>(count));
  }
  return out;
}

// For tests: this environment refuses external buffers from now on, or no longer.
Napi::Value refuse_external_buffers(const Napi::CallbackInfo& info) {
  bool refuse = false;
  napi_get_value_bool(info.Env(), info[0], &refuse);
  external_buffers_refused() = refuse;
  return info.Env().Undefined();
}

Napi::Object init(Napi::Env env, Napi::Object exports) {
  ArenaObject::define(env, exports);
  RegionObject::define(env, exports);
  RateLinkObject::define(env, exports);
  NicLinkObject::define(env, exports);
  CudaDeviceObject::define(env, exports);
  CopyNicObject::define(env, exports);
  StoreObject::define(env, exports);
  StoreToolObject::define(env, exports);
  RuntimeObject::define(env, exports);
  EngineObject::define(env, exports);
  BlockPoolObject::define(env, exports);
  KvSeedsObject::define(env, exports);
  EmulatedGpuObject::define(env, exports);
  DoorServerObject::define(env, exports);
  RdmaLoadObject::define(env, exports);
  StubFabricObject::define(env, exports);
  VerbsTransportObject::define(env, exports);
  SharedTransportObject::define(env, exports);
  exports.Set("describeAbi", Napi::Function::New(env, describe_abi));
  exports.Set("runStorageLoad", Napi::Function::New(env, run_storage_load));
  exports.Set("layOutStorageFile", Napi::Function::New(env, lay_out_storage_file));
  exports.Set("liveObjects", Napi::Function::New(env, live_objects));
  exports.Set("refuseExternalBuffers", Napi::Function::New(env, refuse_external_buffers));
  exports.Set("measurePostCost", Napi::Function::New(env, measure_post_cost));
  exports.Set("workStatusText", Napi::Function::New(env, work_status_text));
  return exports;
}

NODE_API_MODULE(dualpath, init)

}  // namespace
}  // namespace dualpath::bindings
