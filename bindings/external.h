// Native memory seen from JavaScript as an ArrayBuffer. Runtimes that keep all of JavaScript's memory in one
// cage (Electron with V8's sandbox) refuse that with napi_no_external_buffers_allowed; then everything goes
// by copies, see src/transfer/door.ts and Arena.read().
#pragma once
#include <napi.h>

#include <memory>

namespace dualpath::bindings {

// Whether this environment's thread is made to refuse as such a runtime does, for tests.
inline bool& external_buffers_refused() {
  static thread_local bool refused = false;
  return refused;
}

// `kept` lives as long as the buffer. Undefined where such buffers are refused.
template <typename T>
Napi::Value external_buffer(Napi::Env env, void* data, size_t bytes, const std::shared_ptr<T>& kept) {
  if (external_buffers_refused()) return env.Undefined();
  auto* owner = new std::shared_ptr<T>(kept);
  napi_value buffer = nullptr;
  const napi_status status = napi_create_external_arraybuffer(
      env, data, bytes, [](napi_env, void*, void* hint) { delete static_cast<std::shared_ptr<T>*>(hint); },
      owner, &buffer);
  if (status == napi_ok) return Napi::Value(env, buffer);
  delete owner;
  if (status != napi_no_external_buffers_allowed) {
    Napi::Error::New(env).ThrowAsJavaScriptException();
  }
  return env.Undefined();
}

}  // namespace dualpath::bindings
