#pragma once
#include "objects.h"
#include "shared/transport.h"

namespace dualpath::bindings {

class SharedTransportObject : public Wrap<SharedTransportObject> {
 public:
  static void define(Napi::Env env, Napi::Object exports);
  explicit SharedTransportObject(const Napi::CallbackInfo& info);

 private:
  Napi::Value invite(const Napi::CallbackInfo& info);
  Napi::Value add_peer(const Napi::CallbackInfo& info);
  Napi::Value shut_out(const Napi::CallbackInfo& info);
  Napi::Value lose(const Napi::CallbackInfo& info);
  Napi::Value statistics(const Napi::CallbackInfo& info);

  std::shared_ptr<shared::SharedTransport> transport_;
};

}  // namespace dualpath::bindings
