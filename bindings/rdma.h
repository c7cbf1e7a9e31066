// The verbs transport and its emulated provider as JavaScript classes.
#pragma once
#include "objects.h"
#include "rdma/transport.h"
#include "verbs/stub/fabric.h"

namespace dualpath::bindings {

// Emulated RDMA devices of this process. Who gives the same name, in whichever thread, has the same ones.
class StubFabricObject : public Wrap<StubFabricObject> {
 public:
  static void define(Napi::Env env, Napi::Object exports);
  explicit StubFabricObject(const Napi::CallbackInfo& info);
  const std::shared_ptr<verbs::stub::StubFabric>& fabric() const { return fabric_; }

 private:
  Napi::Value fail_request(const Napi::CallbackInfo& info);
  Napi::Value fail_post(const Napi::CallbackInfo& info);
  Napi::Value set_link(const Napi::CallbackInfo& info);
  Napi::Value set_memlock(const Napi::CallbackInfo& info);
  Napi::Value pause(const Napi::CallbackInfo& info);
  Napi::Value counters(const Napi::CallbackInfo& info);
  Napi::Value objects(const Napi::CallbackInfo& info);
  std::shared_ptr<verbs::stub::StubFabric> fabric_;
};

class VerbsTransportObject : public Wrap<VerbsTransportObject> {
 public:
  static void define(Napi::Env env, Napi::Object exports);
  explicit VerbsTransportObject(const Napi::CallbackInfo& info);

 private:
  bool usable();  // false with an exception pending: the runtime has been closed
  Napi::Value facts(const Napi::CallbackInfo& info);
  Napi::Value memory(const Napi::CallbackInfo& info);
  Napi::Value add_peer(const Napi::CallbackInfo& info);
  Napi::Value open(const Napi::CallbackInfo& info);
  Napi::Value connect(const Napi::CallbackInfo& info);
  Napi::Value drain(const Napi::CallbackInfo& info);
  Napi::Value close(const Napi::CallbackInfo& info);
  Napi::Value take_events(const Napi::CallbackInfo& info);
  Napi::Value statistics(const Napi::CallbackInfo& info);
  Napi::Value shutdown(const Napi::CallbackInfo& info);

  Napi::ObjectReference engine_reference_;
  RuntimeObject* runtime_ = nullptr;
  std::shared_ptr<TransferEngine> engine_;  // before what refers to it
  std::shared_ptr<verbs::Verbs> verbs_;
  std::shared_ptr<rdma::Transport> transport_;
};

}  // namespace dualpath::bindings
