#include "lookup.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "args.h"
#include "core/clock.h"
#include "core/guarded_copy.h"

namespace dualpath::bindings {

// Plain Node-API: node-addon-api's workers abort the process when a worker thread is terminated under them.
// Whatever fails here on the way out of an environment is left alone: nobody is there to hear of it.
class Lookup {
 public:
  Lookup(napi_env env, std::shared_ptr<TransferEngine> engine, std::shared_ptr<Lookups> lookups)
      : env_(env), engine_(std::move(engine)), lookups_(std::move(lookups)) {}

  // False with an exception pending.
  bool parse(const Napi::CallbackInfo& info);
  bool start(napi_value* promise);

  uint32_t id() const { return id_; }
  void cancel() { stop_.store(true, std::memory_order_relaxed); }

 private:
  bool take_tokens(Napi::Uint32Array tokens);
  bool tokens_still_there(napi_env env) const;
  void execute() noexcept;
  void complete(napi_env env, napi_status status);
  Status outcome_status(bool there) const;
  bool settle(napi_env env, const Status& status);
  void destroy(napi_env env);

  napi_env env_;
  const std::shared_ptr<TransferEngine> engine_;
  const std::shared_ptr<Lookups> lookups_;
  napi_async_work work_ = nullptr;
  napi_deferred deferred_ = nullptr;
  napi_ref kept_ = nullptr;
  uint32_t id_ = 0;
  size_t first_token_ = 0;
  size_t needed_tokens_ = 0;
  const void* data_ = nullptr;  // of the typed array at the start
  std::unique_ptr<uint32_t[]> copied_;
  bool look_up_ = false;
  std::atomic<bool> stop_{false};
  store::ChainRequest request_;
  store::ChainTimes times_;
  store::ChainOutcome outcome_ = store::ChainOutcome::kStopped;
  uint64_t index_ns_ = 0;
  size_t stored_ = 0;
};

// By position: reading eight properties of an object would cost more than queueing the work.
bool Lookup::parse(const Napi::CallbackInfo& info) {
  Arguments arguments(info);
  const Napi::Uint32Array tokens = arguments.uint32_array(0, "tokens");
  id_ = arguments.u32(1, "id");
  first_token_ = arguments.u32(2, "firstToken");
  request_.block_tokens = arguments.u32(3, "blockTokens");
  request_.blocks = arguments.u32(4, "blocks");
  const uint32_t key_offset = arguments.u32(5, "keyOffset");
  look_up_ = arguments.boolean(6);
  const bool has_parent = info.Length() > 7 && !info[7].IsUndefined();
  const uint32_t parent = has_parent ? arguments.u32(7, "parentKey") : 0;
  const auto& store = engine_->options().store;
  const uint32_t entries = engine_->door().header().key_entries;
  if (store == nullptr) arguments.fail("store", "an engine with a store");
  if (request_.block_tokens == 0) arguments.fail("blockTokens", "at least one token");
  if (key_offset > entries || request_.blocks > entries - key_offset || parent >= entries) {
    arguments.fail("keyOffset", "a range of the key table");
  }
  needed_tokens_ = first_token_ + request_.block_tokens * request_.blocks;
  if (arguments.ok() && needed_tokens_ > tokens.ElementLength()) {
    arguments.fail("tokens", "as many tokens as the blocks have");
  }
  if (!arguments.ok()) return false;
  request_.parent = has_parent ? read_once(engine_->door().keys()[parent]) : store->root_key();
  request_.out = engine_->door().keys() + key_offset;
  request_.cache = lookups_->chains.get();
  request_.stop = &stop_;
  return take_tokens(tokens);
}

bool Lookup::take_tokens(Napi::Uint32Array tokens) {
  data_ = tokens.Data();
  request_.tokens = tokens.Data() + first_token_;
  bool is_array_buffer = true;
  napi_is_arraybuffer(env_, tokens.ArrayBuffer(), &is_array_buffer);
  request_.may_vanish = is_array_buffer;
  if (request_.may_vanish && !guarded_copy_works()) {
    const size_t count = needed_tokens_ - first_token_;
    copied_.reset(new (std::nothrow) uint32_t[count]);
    if (copied_ == nullptr) {
      throw_status(env_, Status::error("MEMORY_LIMIT",
                                       "no memory for a copy of " + std::to_string(count) + " tokens"));
      return false;
    }
    std::memcpy(copied_.get(), request_.tokens, count * sizeof(uint32_t));
    request_.tokens = copied_.get();
    request_.may_vanish = false;
  }
  return napi_create_reference(env_, tokens, 1, &kept_) == napi_ok;
}

bool Lookup::start(napi_value* promise) {
  napi_value name;
  napi_create_string_utf8(env_, "dualpath.lookup", NAPI_AUTO_LENGTH, &name);
  const auto execute = [](napi_env, void* data) { static_cast<Lookup*>(data)->execute(); };
  const auto complete = [](napi_env env, napi_status status, void* data) {
    static_cast<Lookup*>(data)->complete(env, status);
  };
  if (napi_create_promise(env_, &deferred_, promise) != napi_ok ||
      napi_create_async_work(env_, nullptr, name, execute, complete, this, &work_) != napi_ok ||
      napi_queue_async_work(env_, work_) != napi_ok) {
    throw_status(env_, Status::error("CLOSED", "the environment is ending"));
    destroy(env_);
    return false;
  }
  lookups_->in_flight.push_back(this);
  return true;
}

void Lookup::execute() noexcept {
  outcome_ = look_up_chain(request_, &times_);
  if (outcome_ != store::ChainOutcome::kDone || !look_up_) return;
  const uint64_t begin_ns = now_ns();
  stored_ = engine_->options().store->acquire_prefix(request_.out, request_.blocks);
  index_ns_ = now_ns() - begin_ns;
}

// On the thread that alone can transfer or resize the buffer: what is there now was there all the time.
bool Lookup::tokens_still_there(napi_env env) const {
  if (!request_.may_vanish) return true;
  napi_value array = nullptr;
  size_t length = 0;
  void* data = nullptr;
  return napi_get_reference_value(env, kept_, &array) == napi_ok && array != nullptr &&
         napi_get_typedarray_info(env, array, nullptr, &length, &data, nullptr, nullptr) == napi_ok &&
         data == data_ && length >= needed_tokens_;
}

Status Lookup::outcome_status(bool there) const {
  if (outcome_ == store::ChainOutcome::kStopped)
    return Status::error("CANCELLED", "the look-up was cancelled");
  if (outcome_ == store::ChainOutcome::kNoMemory) {
    return Status::error("MEMORY_LIMIT", "no memory for a look-up of blocks of " +
                                             std::to_string(request_.block_tokens) + " tokens");
  }
  if (outcome_ == store::ChainOutcome::kTokensGone || !there) {
    return Status::error(
        "INVALID_ARGUMENT",
        "tokens: their ArrayBuffer was transferred or resized while they were being looked up; "
        "wait for the result, or keep them in a SharedArrayBuffer");
  }
  return {};
}

void Lookup::complete(napi_env env, napi_status) {
  std::erase(lookups_->in_flight, this);
  lookups_->finished++;
  lookups_->blocks += request_.blocks;
  lookups_->times.copy_ns += times_.copy_ns;
  lookups_->times.compare_ns += times_.compare_ns;
  lookups_->times.hash_ns += times_.hash_ns;
  lookups_->times.hashed_blocks += times_.hashed_blocks;
  lookups_->index_ns += index_ns_;
  const Status status = outcome_status(tokens_still_there(env));
  // What nobody hears of is not held.
  if (!settle(env, status) && stored_ > 0) engine_->options().store->release(request_.out, stored_, 0);
  destroy(env);
}

// Whether the caller gets a result.
bool Lookup::settle(napi_env env, const Status& status) {
  napi_value value = nullptr;
  if (status.ok()) {
    return napi_create_double(env, static_cast<double>(stored_), &value) == napi_ok &&
           napi_resolve_deferred(env, deferred_, value) == napi_ok;
  }
  napi_value code = nullptr;
  napi_value message = nullptr;
  napi_create_string_utf8(env, status.code, NAPI_AUTO_LENGTH, &code);
  napi_create_string_utf8(env, status.message.data(), status.message.size(), &message);
  if (napi_create_error(env, code, message, &value) == napi_ok) napi_reject_deferred(env, deferred_, value);
  return false;
}

void Lookup::destroy(napi_env env) {
  if (kept_ != nullptr) napi_delete_reference(env, kept_);
  if (work_ != nullptr) napi_delete_async_work(env, work_);
  delete this;
}

Napi::Value start_lookup(const Napi::CallbackInfo& info, const std::shared_ptr<TransferEngine>& engine,
                         const std::shared_ptr<Lookups>& lookups) {
  const Napi::Env env = info.Env();
  if (lookups->in_flight.size() >= Lookups::kMaxInFlight) {
    throw_status(env, Status::error("CAPACITY_EXHAUSTED", std::to_string(Lookups::kMaxInFlight) +
                                                              " look-ups are under way, the most "
                                                              "an engine has; wait for one to end"));
    return env.Undefined();
  }
  auto lookup = std::make_unique<Lookup>(env, engine, lookups);
  napi_value promise = nullptr;
  if (!lookup->parse(info) || !lookup.release()->start(&promise)) return env.Undefined();
  return {env, promise};
}

void cancel_lookup(Lookups& lookups, uint32_t id) {
  for (Lookup* lookup : lookups.in_flight) {
    if (lookup->id() == id) lookup->cancel();
  }
}

}  // namespace dualpath::bindings
