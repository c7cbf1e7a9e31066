// Arguments in, errors out. Options arrive as plain objects that the TypeScript side has checked; what
// is wrong all the same throws a TypeError with the name of the option.
#pragma once
#include <napi.h>

#include <cmath>
#include <cstdint>
#include <string>

#include "core/status.h"
#include "wrap.h"

namespace dualpath::bindings {

inline constexpr double kMaxSafeInteger = 9007199254740991.0;

// A JavaScript Error with `code` and `errno`; src/binding turns it into a DualPathError.
inline Napi::Error status_error(Napi::Env env, const Status& status) {
  Napi::Error error = Napi::Error::New(env, status.message);
  error.Set("code", Napi::String::New(env, status.code));
  error.Set("errno", Napi::Number::New(env, status.sys_errno));
  return error;
}

// Whether JavaScript runs there still, to be answered: not where the environment is ending.
inline bool can_answer(napi_env env) {
  napi_value object = nullptr;
  napi_value value = nullptr;
  return napi_create_object(env, &object) == napi_ok && napi_get_boolean(env, true, &value) == napi_ok &&
         napi_set_named_property(env, object, "runs", value) == napi_ok;
}

inline void throw_status(Napi::Env env, const Status& status) {
  status_error(env, status).ThrowAsJavaScriptException();
}

inline void throw_argument(Napi::Env env, const char* name, const char* expected) {
  throw_status(env, Status::error("INVALID_ARGUMENT", std::string(name) + ": " + expected + " expected"));
}

// No conversions: those can run JavaScript, fail when a worker thread is being terminated, and leave an empty
// value behind whose use ends the process.
//
// What is no number is beyond every range.
inline uint32_t u32_of(const Napi::Value& value) {
  uint32_t number = UINT32_MAX;
  napi_get_value_uint32(value.Env(), value, &number);
  return number;
}
// 0 for what is no number.
inline uint64_t u64_of(const Napi::Value& value) {
  int64_t number = 0;
  napi_get_value_int64(value.Env(), value, &number);
  return static_cast<uint64_t>(number);
}

// Reads options one by one; after the first wrong one `ok()` is false and an exception is pending.
class Options {
 public:
  Options(Napi::Env env, Napi::Value value) : env_(env) {
    if (!value.IsObject()) {
      fail("options", "an object");
    } else {
      object_ = value.As<Napi::Object>();
    }
  }

  bool ok() const { return ok_; }
  bool has(const char* name) { return ok_ && !object_.Get(name).IsUndefined(); }
  Napi::Value get(const char* name) { return ok_ ? object_.Get(name) : env_.Undefined(); }

  uint64_t u64(const char* name, uint64_t fallback = 0, uint64_t most = 9007199254740991u) {
    if (!has(name)) return fallback;
    const Napi::Value value = object_.Get(name);
    const double number = value.IsNumber() ? value.As<Napi::Number>().DoubleValue() : -1;
    if (!(number >= 0) || number > static_cast<double>(most) || std::floor(number) != number) {
      fail(name, "a whole number within its range");
      return fallback;
    }
    return static_cast<uint64_t>(number);
  }
  uint32_t u32(const char* name, uint32_t fallback = 0) {
    return static_cast<uint32_t>(u64(name, fallback, UINT32_MAX));
  }
  // A safe integer of either sign, as two's complement: counters count modulo 2^64.
  uint64_t wrapping(const char* name) {
    if (!has(name)) return 0;
    const Napi::Value value = object_.Get(name);
    const double number = value.IsNumber() ? value.As<Napi::Number>().DoubleValue() : HUGE_VAL;
    if (!(std::fabs(number) <= kMaxSafeInteger) || std::floor(number) != number) {
      fail(name, "a whole number");
      return 0;
    }
    return static_cast<uint64_t>(static_cast<int64_t>(number));
  }
  bool boolean(const char* name, bool fallback) {
    if (!has(name)) return fallback;
    bool value = fallback;
    if (napi_get_value_bool(env_, object_.Get(name), &value) != napi_ok) fail(name, "true or false");
    return value;
  }
  std::string string(const char* name) {
    const Napi::Value value = get(name);
    if (!value.IsString()) {
      fail(name, "a string");
      return {};
    }
    return value.As<Napi::String>();
  }
  template <typename Wrapped>
  Wrapped* wrapped(const char* name) {
    if (!has(name) || object_.Get(name).IsNull()) return nullptr;
    Wrapped* object = unwrapped<Wrapped>(env_, object_.Get(name));
    if (object == nullptr) fail(name, "an object of this package and of the right class");
    return object;
  }

  void fail(const char* name, const char* expected) {
    if (ok_) throw_argument(env_, name, expected);
    ok_ = false;
  }

 private:
  Napi::Env env_;
  Napi::Object object_;
  bool ok_ = true;
};

// Reads arguments by position; after the first wrong one `ok()` is false and an exception is pending.
class Arguments {
 public:
  explicit Arguments(const Napi::CallbackInfo& info) : info_(info) {}

  bool ok() const { return ok_; }

  uint32_t u32(size_t at, const char* name) {
    const Napi::Value value = info_[at];
    const double number = value.IsNumber() ? value.As<Napi::Number>().DoubleValue() : -1;
    if (!(number >= 0) || number > UINT32_MAX || std::floor(number) != number) {
      fail(name, "a whole number within its range");
      return 0;
    }
    return static_cast<uint32_t>(number);
  }
  bool boolean(size_t at) {
    bool value = false;  // and stays that where it is none
    napi_get_value_bool(info_.Env(), info_[at], &value);
    return value;
  }
  Napi::Uint32Array uint32_array(size_t at, const char* name) {
    const Napi::Value value = info_[at];
    if (value.IsTypedArray() && value.As<Napi::TypedArray>().TypedArrayType() == napi_uint32_array)
      return value.As<Napi::Uint32Array>();
    fail(name, "a Uint32Array");
    return {};
  }

  void fail(const char* name, const char* expected) {
    if (ok_) throw_argument(info_.Env(), name, expected);
    ok_ = false;
  }

 private:
  const Napi::CallbackInfo& info_;
  bool ok_ = true;
};

// A count as a JavaScript number. Beyond 2^53 (9 petabytes) it reads as Infinity rather than as a value that
// is nearly right.
inline Napi::Value number(Napi::Env env, uint64_t value) {
  const double exact = static_cast<double>(value);
  return Napi::Number::New(env, exact <= kMaxSafeInteger ? exact : HUGE_VAL);
}

}  // namespace dualpath::bindings
