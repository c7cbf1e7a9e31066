// The measured loop of storage benchmarks (native/uring/storage_load.h), off the JavaScript thread.
#include <fcntl.h>

#include <cstring>

#include "objects.h"
#include "store/posix.h"
#include "uring/storage_load.h"

namespace dualpath::bindings {
namespace {

// Runs on a thread of libuv's pool and settles a promise, with the error's code when there is one.
class Worker : public Napi::AsyncWorker {
 public:
  explicit Worker(Napi::Env env) : Napi::AsyncWorker(env), deferred_(Napi::Promise::Deferred::New(env)) {}
  Napi::Promise promise() { return deferred_.Promise(); }

 protected:
  virtual Napi::Value value() = 0;
  void OnOK() override {
    if (status_.ok()) {
      deferred_.Resolve(value());
      return;
    }
    Napi::Error error = Napi::Error::New(Env(), status_.message);
    error.Set("code", Napi::String::New(Env(), status_.code));
    error.Set("errno", Napi::Number::New(Env(), status_.sys_errno));
    deferred_.Reject(error.Value());
  }
  void OnError(const Napi::Error& error) override { deferred_.Reject(error.Value()); }

  Status status_;

 private:
  Napi::Promise::Deferred deferred_;
};

class LoadWorker : public Worker {
 public:
  explicit LoadWorker(Napi::Env env) : Worker(env) {}
  LoadOptions options;
  void keep(Napi::Object checksums) { kept_ = Napi::Persistent(checksums); }

 protected:
  void Execute() override {
    // Calls are made as an engine makes them for a store there. What cannot be opened is told by the load
    // itself.
    const store::ScopedFd place(open(options.path.c_str(), O_PATH | O_CLOEXEC));
    options.offload = place.valid() && !store::on_local_file_system(place.get());
    status_ = run_load(options, &result_);
  }
  Napi::Value value() override {
    Napi::Object out = Napi::Object::New(Env());
    out.Set("operations", number(Env(), result_.operations));
    out.Set("bytes", number(Env(), result_.bytes));
    out.Set("registeredBytes", number(Env(), result_.registered_bytes));
    out.Set("elapsedNs", number(Env(), result_.elapsed_ns));
    out.Set("cpuNs", number(Env(), result_.cpu_ns));
    out.Set("latencyMeanNs", number(Env(), result_.latency_mean_ns));
    out.Set("latencyP50Ns", number(Env(), result_.latency_p50_ns));
    out.Set("latencyP99Ns", number(Env(), result_.latency_p99_ns));
    out.Set("verifyP50Ns", number(Env(), result_.verify_p50_ns));
    out.Set("mismatches", number(Env(), result_.mismatches));
    out.Set("storageIo", storage_io_name(result_.storage_io));
    out.Set("offload", options.offload);
    return out;
  }

 private:
  LoadResult result_;
  Napi::ObjectReference kept_;  // the checksums' memory
};

class LayoutWorker : public Worker {
 public:
  explicit LayoutWorker(Napi::Env env) : Worker(env) {}
  std::string path;
  uint64_t bytes = 0;
  std::vector<uint64_t> sizes;

 protected:
  void Execute() override { status_ = lay_out_file(path, bytes, sizes, &checksums_); }
  Napi::Value value() override {
    Napi::Array out = Napi::Array::New(Env(), checksums_.size());
    for (uint32_t i = 0; i < checksums_.size(); i++) {
      Napi::BigUint64Array copy = Napi::BigUint64Array::New(Env(), checksums_[i].size());
      if (!checksums_[i].empty()) memcpy(copy.Data(), checksums_[i].data(), copy.ByteLength());
      out.Set(i, copy);
    }
    return out;
  }

 private:
  std::vector<std::vector<uint64_t>> checksums_;
};

bool parse_kind(Options& options, LoadKind* kind) {
  static constexpr struct {
    const char* name;
    LoadKind kind;
  } kKinds[] = {{"readRanges", LoadKind::kReadRanges},
                {"writeRanges", LoadKind::kWriteRanges},
                {"readFiles", LoadKind::kReadFiles},
                {"writeFiles", LoadKind::kWriteFiles}};
  const std::string name = options.string("kind");
  for (const auto& known : kKinds) {
    if (name != known.name) continue;
    *kind = known.kind;
    return options.ok();
  }
  options.fail("kind", "'readRanges', 'writeRanges', 'readFiles' or 'writeFiles'");
  return false;
}

}  // namespace

// {kind, path, bytes, places, depth, durationNs, seed?, durable?, once?, hugePages?, checksums?:
// BigUint64Array, storageIo?} -> Promise of what LoadResult has
Napi::Value run_storage_load(const Napi::CallbackInfo& info) {
  const Napi::Env env = info.Env();
  Options options(env, info[0]);
  auto worker = std::make_unique<LoadWorker>(env);
  LoadOptions& wanted = worker->options;
  if (!parse_kind(options, &wanted.kind)) return env.Undefined();
  wanted.path = options.string("path");
  wanted.bytes = options.u64("bytes");
  wanted.places = options.u64("places", 0, UINT32_MAX);
  wanted.depth = options.u32("depth", 1);
  wanted.duration_ns = options.u64("durationNs");
  wanted.seed = options.u64("seed");
  wanted.durable = options.boolean("durable", false);
  wanted.once = options.boolean("once", false);
  wanted.huge_pages = options.boolean("hugePages", true);
  if (options.has("checksums")) {
    const Napi::Value value = options.get("checksums");
    if (!value.IsTypedArray() || value.As<Napi::TypedArray>().TypedArrayType() != napi_biguint64_array) {
      options.fail("checksums", "a BigUint64Array");
    } else {
      const auto array = value.As<Napi::BigUint64Array>();
      wanted.checksums = {array.Data(), array.ElementLength()};
      worker->keep(array.As<Napi::Object>());
    }
  }
  if (!options.ok() || !parse_storage_io(env, info[0], &wanted.storage_io)) return env.Undefined();
  LoadWorker* queued = worker.release();  // deletes itself
  const Napi::Promise promise = queued->promise();
  queued->Queue();
  return promise;
}

// {path, bytes, sizes: number[]} -> Promise<BigUint64Array[]>
Napi::Value lay_out_storage_file(const Napi::CallbackInfo& info) {
  const Napi::Env env = info.Env();
  Options options(env, info[0]);
  auto worker = std::make_unique<LayoutWorker>(env);
  worker->path = options.string("path");
  worker->bytes = options.u64("bytes");
  const Napi::Value sizes = options.get("sizes");
  if (!sizes.IsArray()) options.fail("sizes", "an array");
  if (!options.ok()) return env.Undefined();
  for (uint32_t i = 0; i < sizes.As<Napi::Array>().Length(); i++) {
    worker->sizes.push_back(u64_of(sizes.As<Napi::Array>().Get(i)));
  }
  LayoutWorker* queued = worker.release();
  const Napi::Promise promise = queued->promise();
  queued->Queue();
  return promise;
}

}  // namespace dualpath::bindings
