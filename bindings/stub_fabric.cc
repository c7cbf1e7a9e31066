#include <cstring>

#include "rdma.h"

namespace dualpath::bindings {
namespace {

constexpr struct {
  const char* name;
  ibv_wc_status status;
} kStatuses[] = {
    {"LOC_LEN_ERR", IBV_WC_LOC_LEN_ERR},           {"LOC_QP_OP_ERR", IBV_WC_LOC_QP_OP_ERR},
    {"LOC_PROT_ERR", IBV_WC_LOC_PROT_ERR},         {"REM_INV_REQ_ERR", IBV_WC_REM_INV_REQ_ERR},
    {"REM_ACCESS_ERR", IBV_WC_REM_ACCESS_ERR},     {"REM_OP_ERR", IBV_WC_REM_OP_ERR},
    {"RETRY_EXC_ERR", IBV_WC_RETRY_EXC_ERR},       {"RNR_RETRY_EXC_ERR", IBV_WC_RNR_RETRY_EXC_ERR},
    {"REM_ABORT_ERR", IBV_WC_REM_ABORT_ERR},       {"FATAL_ERR", IBV_WC_FATAL_ERR},
    {"RESP_TIMEOUT_ERR", IBV_WC_RESP_TIMEOUT_ERR}, {"GENERAL_ERR", IBV_WC_GENERAL_ERR}};

}  // namespace

void StubFabricObject::define(Napi::Env env, Napi::Object exports) {
  exports.Set("StubFabric", DefineClass(env, "StubFabric",
                                        {InstanceMethod<&StubFabricObject::fail_request>("failRequest"),
                                         InstanceMethod<&StubFabricObject::fail_post>("failPost"),
                                         InstanceMethod<&StubFabricObject::set_link>("setLink"),
                                         InstanceMethod<&StubFabricObject::set_memlock>("setMemlock"),
                                         InstanceMethod<&StubFabricObject::pause>("pause"),
                                         InstanceMethod<&StubFabricObject::counters>("counters"),
                                         InstanceMethod<&StubFabricObject::objects>("objects")}));
}

// {name, seed?, devices?, shuffled?, memlockBytes?, mtuBytes?, linkLayer?, maxCqEntries?, maxInlineBytes?}
StubFabricObject::StubFabricObject(const Napi::CallbackInfo& info) : Wrap(info) {
  Options options(info.Env(), info[0]);
  verbs::stub::StubOptions wanted;
  wanted.own_thread = true;
  const std::string name = options.string("name");
  wanted.seed = options.u64("seed", wanted.seed);
  wanted.devices = static_cast<uint32_t>(options.u64("devices", wanted.devices, 64));
  wanted.shuffled = options.boolean("shuffled", wanted.shuffled);
  if (options.has("memlockBytes")) wanted.memlock_bytes = options.u64("memlockBytes");
  wanted.active_mtu = verbs::mtu_of(options.u32("mtuBytes", 4096));
  wanted.max_cq_entries = options.u32("maxCqEntries", wanted.max_cq_entries);
  wanted.max_inline_bytes = options.u32("maxInlineBytes", wanted.max_inline_bytes);
  if (options.has("linkLayer") && options.string("linkLayer") == "infiniband") {
    wanted.link_layer = IBV_LINK_LAYER_INFINIBAND;
  }
  if (options.ok()) fabric_ = verbs::stub::StubFabric::named(name, wanted);
}

// (queue pair's number, 0: any; nth from now; 'RETRY_EXC_ERR', ...)
Napi::Value StubFabricObject::fail_request(const Napi::CallbackInfo& info) {
  const std::string wanted = info[2].IsString() ? info[2].As<Napi::String>().Utf8Value() : "";
  for (const auto& [name, status] : kStatuses) {
    if (wanted != name) continue;
    fabric_->fail_request(u32_of(info[0]), u32_of(info[1]), status);
    return info.Env().Undefined();
  }
  throw_argument(info.Env(), "status", "a status of ibv_wc_status without IBV_WC_");
  return info.Env().Undefined();
}

Napi::Value StubFabricObject::fail_post(const Napi::CallbackInfo& info) {
  fabric_->fail_post(u32_of(info[0]), static_cast<int>(u32_of(info[1])));
  return info.Env().Undefined();
}

// (device's number, up)
Napi::Value StubFabricObject::set_link(const Napi::CallbackInfo& info) {
  Arguments arguments(info);
  const uint32_t device = arguments.u32(0, "device");
  if (arguments.ok() && !fabric_->set_link(device, arguments.boolean(1))) {
    arguments.fail("device", "the number of one of the emulated devices");
  }
  return info.Env().Undefined();
}

Napi::Value StubFabricObject::set_memlock(const Napi::CallbackInfo& info) {
  fabric_->set_memlock(u64_of(info[0]));
  return info.Env().Undefined();
}

Napi::Value StubFabricObject::pause(const Napi::CallbackInfo& info) {
  fabric_->pause(Arguments(info).boolean(0));
  return info.Env().Undefined();
}

Napi::Value StubFabricObject::counters(const Napi::CallbackInfo& info) {
  const verbs::stub::StubCounters c = fabric_->counters();
  const std::pair<const char*, uint64_t> fields[] = {{"postCalls", c.post_calls},
                                                     {"requests", c.requests},
                                                     {"writes", c.writes},
                                                     {"writesWithImmediate", c.writes_with_immediate},
                                                     {"reads", c.reads},
                                                     {"sends", c.sends},
                                                     {"signalled", c.signalled},
                                                     {"inlined", c.inlined},
                                                     {"receives", c.receives},
                                                     {"completions", c.completions},
                                                     {"errors", c.errors},
                                                     {"mostOutstanding", c.most_outstanding},
                                                     {"refusedFull", c.refused_full}};
  Napi::Object out = Napi::Object::New(info.Env());
  for (const auto& [name, value] : fields) out.Set(name, number(info.Env(), value));
  return out;
}

// Verbs objects alive: none once everybody has closed.
Napi::Value StubFabricObject::objects(const Napi::CallbackInfo& info) {
  return number(info.Env(), fabric_->objects());
}

}  // namespace dualpath::bindings
