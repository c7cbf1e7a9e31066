// Load over RDMA between two ends (native/verbs/load.h), off the JavaScript thread.
#include "objects.h"
#include "verbs/library.h"
#include "verbs/load.h"

namespace dualpath::bindings {
namespace {

using verbs::LoadKind;

std::string hex(uint64_t value) {
  char text[24];
  snprintf(text, sizeof text, "0x%llx", static_cast<unsigned long long>(value));
  return text;
}

uint64_t of_hex(const std::string& text) { return strtoull(text.c_str(), nullptr, 16); }

std::string gid_text(const ibv_gid& gid) {
  std::string text;
  char digits[3];
  for (const uint8_t byte : gid.raw) {
    snprintf(digits, sizeof digits, "%02x", byte);
    text += digits;
  }
  return text;
}

ibv_gid gid_of(const std::string& text) {
  ibv_gid gid{};
  for (size_t i = 0; i < sizeof gid.raw && 2 * i + 1 < text.size(); i++) {
    gid.raw[i] = static_cast<uint8_t>(strtoul(text.substr(2 * i, 2).c_str(), nullptr, 16));
  }
  return gid;
}

bool parse_kind(Options& options, LoadKind* kind) {
  static constexpr struct {
    const char* name;
    LoadKind kind;
  } kKinds[] = {{"write", LoadKind::kWrite},
                {"read", LoadKind::kRead},
                {"readLatency", LoadKind::kReadLatency},
                {"writeLatency", LoadKind::kWriteLatency},
                {"writeAnswer", LoadKind::kWriteAnswer}};
  const std::string name = options.string("kind");
  for (const auto& known : kKinds) {
    if (name != known.name) continue;
    *kind = known.kind;
    return options.ok();
  }
  options.fail("kind", "'write', 'read', 'readLatency', 'writeLatency' or 'writeAnswer'");
  return false;
}

class RunWorker : public Napi::AsyncWorker {
 public:
  RunWorker(Napi::Env env, std::shared_ptr<verbs::LoadEnd> end, const verbs::LoadRun& run)
      : AsyncWorker(env), deferred_(Napi::Promise::Deferred::New(env)), end_(std::move(end)), run_(run) {}
  Napi::Promise promise() { return deferred_.Promise(); }

 protected:
  void Execute() override { status_ = end_->run(run_, &result_); }
  void OnOK() override {
    if (!status_.ok()) {
      deferred_.Reject(status_error(Env(), status_).Value());
      return;
    }
    Napi::Object out = Napi::Object::New(Env());
    out.Set("requests", number(Env(), result_.requests));
    out.Set("bytes", number(Env(), result_.bytes));
    out.Set("elapsedNs", number(Env(), result_.elapsed_ns));
    out.Set("chains", number(Env(), result_.chains));
    out.Set("postCalls", number(Env(), result_.post_calls));
    out.Set("completions", number(Env(), result_.completions));
    Napi::Uint32Array latency = Napi::Uint32Array::New(Env(), result_.latency_ns.size());
    std::copy(result_.latency_ns.begin(), result_.latency_ns.end(), latency.Data());
    out.Set("latencyNs", latency);
    deferred_.Resolve(out);
  }
  void OnError(const Napi::Error& error) override { deferred_.Reject(error.Value()); }

 private:
  Napi::Promise::Deferred deferred_;
  const std::shared_ptr<verbs::LoadEnd> end_;
  const verbs::LoadRun run_;
  Status status_;
  verbs::LoadResult result_;
};

}  // namespace

void RdmaLoadObject::define(Napi::Env env, Napi::Object exports) {
  exports.Set("RdmaLoad", DefineClass(env, "RdmaLoad",
                                      {InstanceMethod<&RdmaLoadObject::address>("address"),
                                       InstanceMethod<&RdmaLoadObject::connect>("connect"),
                                       InstanceMethod<&RdmaLoadObject::run>("run"),
                                       InstanceMethod<&RdmaLoadObject::stop>("stop"),
                                       InstanceMethod<&RdmaLoadObject::close>("close")}));
}

// {device, port?, gidIndex?, queuePairs?, depth?, bytes}; gidIndex -1, or left out: not global
RdmaLoadObject::RdmaLoadObject(const Napi::CallbackInfo& info) : Wrap(info) {
  Options options(info.Env(), info[0]);
  verbs::LoadEndOptions wanted;
  wanted.device = options.string("device");
  wanted.port = static_cast<uint8_t>(options.u64("port", 1, 255));
  wanted.gid_index =
      static_cast<int>(static_cast<int64_t>(options.has("gidIndex") ? options.wrapping("gidIndex") : -1));
  wanted.queue_pairs = options.u32("queuePairs", 1);
  wanted.depth = options.u32("depth", 128);
  wanted.bytes = options.u32("bytes");
  if (!options.ok()) return;
  std::shared_ptr<verbs::Verbs> library;
  std::unique_ptr<verbs::LoadEnd> end;
  Status status = verbs::open_library(&library);
  if (status.ok()) status = verbs::LoadEnd::open(std::move(library), wanted, &end);
  if (status.ok()) {
    end_ = std::move(end);
  } else {
    throw_status(info.Env(), status);
  }
}

bool RdmaLoadObject::is_open(Napi::Env env) const {
  if (end_ == nullptr) throw_status(env, Status::error("CLOSED", "the load has been closed"));
  return end_ != nullptr;
}

// -> what connect() of the other end takes, as plain JSON
Napi::Value RdmaLoadObject::address(const Napi::CallbackInfo& info) {
  const Napi::Env env = info.Env();
  if (!is_open(env)) return env.Undefined();
  const verbs::LoadEndAddress address = end_->address();
  Napi::Object out = Napi::Object::New(env);
  Napi::Array queue_pairs = Napi::Array::New(env, address.queue_pairs.size());
  for (uint32_t i = 0; i < address.queue_pairs.size(); i++) {
    Napi::Object queue_pair = Napi::Object::New(env);
    queue_pair.Set("qpNum", number(env, address.queue_pairs[i].qp_num));
    queue_pair.Set("psn", number(env, address.queue_pairs[i].psn));
    queue_pair.Set("receives", number(env, address.queue_pairs[i].receives));
    queue_pair.Set("creditAddress", hex(address.queue_pairs[i].credit_address));
    queue_pair.Set("creditKey", number(env, address.queue_pairs[i].credit_key));
    queue_pairs.Set(i, queue_pair);
  }
  out.Set("queuePairs", queue_pairs);
  out.Set("memory", hex(address.memory));
  out.Set("key", number(env, address.key));
  out.Set("bytes", number(env, address.bytes));
  out.Set("lid", number(env, address.lid));
  out.Set("gid", gid_text(address.gid));
  out.Set("mtuBytes", number(env, address.mtu_bytes));
  return out;
}

// ({address() of the other end, mtuBytes, serviceLevel, trafficClass})
Napi::Value RdmaLoadObject::connect(const Napi::CallbackInfo& info) {
  const Napi::Env env = info.Env();
  if (!is_open(env)) return env.Undefined();
  Options options(env, info[0]);
  verbs::LoadEndAddress peer;
  const Napi::Value list = options.get("queuePairs");
  if (!list.IsArray()) options.fail("queuePairs", "an array");
  for (uint32_t i = 0; options.ok() && i < list.As<Napi::Array>().Length(); i++) {
    Options one(env, list.As<Napi::Array>().Get(i));
    verbs::QueuePairAddress& queue_pair = peer.queue_pairs.emplace_back();
    queue_pair.qp_num = one.u32("qpNum");
    queue_pair.psn = one.u32("psn");
    queue_pair.receives = one.u32("receives");
    queue_pair.credit_address = of_hex(one.string("creditAddress"));
    queue_pair.credit_key = one.u32("creditKey");
    if (!one.ok()) return env.Undefined();
  }
  peer.memory = of_hex(options.string("memory"));
  peer.key = options.u32("key");
  peer.bytes = options.u32("bytes");
  peer.lid = static_cast<uint16_t>(options.u64("lid", 0, UINT16_MAX));
  peer.gid = gid_of(options.string("gid"));
  verbs::LoadPath path;
  path.mtu_bytes = options.u32("mtuBytes");
  path.service_level = static_cast<uint8_t>(options.u64("serviceLevel", 0, 15));
  path.traffic_class = static_cast<uint8_t>(options.u64("trafficClass", 0, 255));
  if (!options.ok()) return env.Undefined();
  const Status status = end_->connect(peer, path);
  if (!status.ok()) throw_status(env, status);
  return env.Undefined();
}

// {kind, bytes, chain?, requests, spinNs?, limitNs} -> Promise of what LoadResult has; one at a time
Napi::Value RdmaLoadObject::run(const Napi::CallbackInfo& info) {
  const Napi::Env env = info.Env();
  if (!is_open(env)) return env.Undefined();
  Options options(env, info[0]);
  verbs::LoadRun wanted;
  if (!parse_kind(options, &wanted.kind)) return env.Undefined();
  wanted.bytes = options.u32("bytes");
  wanted.chain = options.u32("chain", 1);
  wanted.requests = options.u64("requests");
  wanted.spin_ns = options.u64("spinNs");
  wanted.limit_ns = options.u64("limitNs");
  if (!options.ok()) return env.Undefined();
  auto* worker = new RunWorker(env, end_, wanted);  // deletes itself
  const Napi::Promise promise = worker->promise();
  worker->Queue();
  return promise;
}

Napi::Value RdmaLoadObject::stop(const Napi::CallbackInfo& info) {
  if (is_open(info.Env())) end_->stop();
  return info.Env().Undefined();
}

// What runs keeps it until its end.
Napi::Value RdmaLoadObject::close(const Napi::CallbackInfo& info) {
  if (end_ != nullptr) end_->stop();
  end_.reset();
  return info.Env().Undefined();
}

}  // namespace dualpath::bindings
