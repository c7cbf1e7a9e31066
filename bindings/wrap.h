// Classes of the add-on whose objects cannot be taken for one another: each carries a type tag of its class,
// so a wrong object is an error and not memory read as what it is not. (Methods called on a wrong `this` are
// refused by V8: napi_define_class gives them a signature.)
#pragma once
#include <napi.h>

#include <cstdint>
#include <type_traits>

namespace dualpath::bindings {

// Unique in this process: the add-on's own number, and the address of something of each class.
template <typename T>
const napi_type_tag& type_tag_of() {
  static const char place = 0;
  static const napi_type_tag tag{0x6475616c70617468u, reinterpret_cast<uintptr_t>(&place)};
  return tag;
}

template <typename T>
class Wrap : public Napi::ObjectWrap<T> {
 public:
  explicit Wrap(const Napi::CallbackInfo& info) : Napi::ObjectWrap<T>(info) {
    napi_type_tag_object(info.Env(), info.This(), &type_tag_of<T>());
  }
};

// nullptr when the value is no object of class T.
template <typename T>
T* unwrapped(Napi::Env env, Napi::Value value) {
  static_assert(std::is_base_of_v<Wrap<T>, T>, "an object without a tag cannot be told from others");
  bool same = false;
  if (!value.IsObject()) return nullptr;
  if (napi_check_object_type_tag(env, value, &type_tag_of<T>(), &same) != napi_ok || !same) return nullptr;
  return T::Unwrap(value.As<Napi::Object>());
}

}  // namespace dualpath::bindings
