#include <algorithm>

#include "objects.h"
#include "verbs/stub/post_cost.h"
#include "verbs/work_error.h"

namespace dualpath::bindings {

// ({chain, chains, blockTokens?, bytesPerToken?}) => what measure_post_cost found
Napi::Value measure_post_cost(const Napi::CallbackInfo& info) {
  const Napi::Env env = info.Env();
  Options options(env, info[0]);
  verbs::stub::PostCostOptions wanted;
  wanted.chain = options.u32("chain", wanted.chain);
  wanted.chains = options.u32("chains", wanted.chains);
  wanted.block_tokens = options.u32("blockTokens", wanted.block_tokens);
  wanted.bytes_per_token = options.u32("bytesPerToken", wanted.bytes_per_token);
  if (!options.ok()) return env.Undefined();
  verbs::stub::PostCost cost;
  const Status status = verbs::stub::measure_post_cost(wanted, &cost);
  if (!status.ok()) {
    throw_status(env, status);
    return env.Undefined();
  }
  Napi::Object out = Napi::Object::New(env);
  out.Set("requests", number(env, cost.requests));
  out.Set("chains", number(env, cost.chains));
  out.Set("expandNsPerRequest", Napi::Number::New(env, cost.expand_ns_per_request));
  out.Set("postNsPerRequest", Napi::Number::New(env, cost.post_ns_per_request));
  out.Set("completeNsPerRequest", Napi::Number::New(env, cost.complete_ns_per_request));
  out.Set("postCalls", number(env, cost.post_calls));
  out.Set("completions", number(env, cost.completions));
  out.Set("bytes", number(env, cost.bytes));
  return out;
}

// (ibv_wc_status) => 'transport retries exhausted'
Napi::Value work_status_text(const Napi::CallbackInfo& info) {
  const uint32_t status = std::min<uint32_t>(u32_of(info[0]), IBV_WC_GENERAL_ERR);
  return Napi::String::New(info.Env(), verbs::status_text(static_cast<ibv_wc_status>(status)));
}

}  // namespace dualpath::bindings
