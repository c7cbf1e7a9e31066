// Emulated links: those of one name are one link, across the workers of the process, as a NIC is.
#include <map>
#include <mutex>

#include "core/clock.h"
#include "objects.h"

namespace dualpath::bindings {
namespace {

template <typename Link>
struct Named {
  std::mutex mutex;
  std::map<std::string, std::weak_ptr<Link>> by_name;
};

template <typename Link>
Named<Link>& named() {
  static Named<Link>& instance = *new Named<Link>();
  return instance;
}

constexpr const char* kClassNames[kTrafficClasses] = {"inference", "kv", "control"};

// [[lane, weight], ...]
bool parse_table(Napi::Env env, Options& options, const char* name, std::vector<LaneWeight>* table) {
  const Napi::Value value = options.get(name);
  if (options.ok() && !value.IsArray()) options.fail(name, "an array of {lane, weight}");
  if (!options.ok()) return false;
  const Napi::Array array = value.As<Napi::Array>();
  table->clear();
  for (uint32_t i = 0; i < array.Length(); i++) {
    Options entry(env, array.Get(i));
    const uint64_t lane = entry.u64("lane", 0, UINT8_MAX);
    const uint64_t weight = entry.u64("weight", 0, UINT8_MAX);
    if (!entry.ok()) return false;
    table->push_back({static_cast<uint8_t>(lane), static_cast<uint8_t>(weight)});
  }
  return true;
}

// {high, low, highLimit, lanes: {inference, kv, control}}
bool parse_arbitration(Napi::Env env, Napi::Value value, NicLinkOptions* link) {
  Options options(env, value);
  link->arbitration.high_limit = static_cast<uint8_t>(options.u64("highLimit", 0, UINT8_MAX));
  if (!parse_table(env, options, "high", &link->arbitration.high) ||
      !parse_table(env, options, "low", &link->arbitration.low)) {
    return false;
  }
  Options lanes(env, options.get("lanes"));
  for (uint32_t c = 0; c < kTrafficClasses; c++)
    link->lanes[c] = static_cast<uint8_t>(lanes.u64(kClassNames[c], link->lanes[c], UINT8_MAX));
  return lanes.ok();
}

bool same(const NicLinkOptions& a, const NicLinkOptions& b) {
  const auto same_table = [](const std::vector<LaneWeight>& x, const std::vector<LaneWeight>& y) {
    return x.size() == y.size() && std::equal(x.begin(), x.end(), y.begin(), [](LaneWeight p, LaneWeight q) {
             return p.lane == q.lane && p.weight == q.weight;
           });
  };
  return same_table(a.arbitration.high, b.arbitration.high) &&
         same_table(a.arbitration.low, b.arbitration.low) &&
         a.arbitration.high_limit == b.arbitration.high_limit && a.lanes == b.lanes;
}

Status another_rate(const std::string& name, uint64_t has, uint64_t asked) {
  return Status::error("INVALID_ARGUMENT", "link '" + name + "' has " + std::to_string(has) +
                                               " B/s already, " + std::to_string(asked) +
                                               " asked; one link has one rate");
}

}  // namespace

void RateLinkObject::define(Napi::Env env, Napi::Object exports) {
  exports.Set("RateLink",
              DefineClass(env, "RateLink", {InstanceMethod<&RateLinkObject::statistics>("statistics")}));
}

RateLinkObject::RateLinkObject(const Napi::CallbackInfo& info) : Wrap(info) {
  Options options(info.Env(), info[0]);
  const std::string name = options.string("name");
  const uint64_t rate = options.u64("bytesPerS");
  if (!options.ok()) return;
  std::lock_guard lock(named<RateLink>().mutex);
  auto& entry = named<RateLink>().by_name[name];
  link_ = entry.lock();
  if (link_ == nullptr) {
    link_ = std::make_shared<RateLink>(name, rate);
    entry = link_;
  } else if (link_->bytes_per_s() != rate) {
    throw_status(info.Env(), another_rate(name, link_->bytes_per_s(), rate));
  }
}

Napi::Value RateLinkObject::statistics(const Napi::CallbackInfo& info) {
  Napi::Object statistics = Napi::Object::New(info.Env());
  statistics.Set("bytes", number(info.Env(), link_->bytes()));
  statistics.Set("operations", number(info.Env(), link_->operations()));
  statistics.Set("busyNs", number(info.Env(), link_->busy_ns()));
  return statistics;
}

void NicLinkObject::define(Napi::Env env, Napi::Object exports) {
  exports.Set("NicLink",
              DefineClass(env, "NicLink", {InstanceMethod<&NicLinkObject::statistics>("statistics")}));
}

// {name, bytesPerS, arbitration?}
NicLinkObject::NicLinkObject(const Napi::CallbackInfo& info) : Wrap(info) {
  const Napi::Env env = info.Env();
  Options options(env, info[0]);
  NicLinkOptions wanted;
  wanted.name = options.string("name");
  wanted.bytes_per_s = options.u64("bytesPerS");
  if (options.has("arbitration") && !parse_arbitration(env, options.get("arbitration"), &wanted)) return;
  if (!options.ok()) return;
  std::lock_guard lock(named<NicLink>().mutex);
  auto& entry = named<NicLink>().by_name[wanted.name];
  link_ = entry.lock();
  if (link_ == nullptr) {
    const Status status = NicLink::create(wanted, &link_);
    if (!status.ok()) throw_status(env, status);
    entry = link_;
  } else if (link_->options().bytes_per_s != wanted.bytes_per_s) {
    throw_status(env, another_rate(wanted.name, link_->options().bytes_per_s, wanted.bytes_per_s));
  } else if (!same(link_->options(), wanted)) {
    throw_status(env,
                 Status::error("INVALID_ARGUMENT", "link '" + wanted.name +
                                                       "' has other arbitration tables or lanes already; "
                                                       "give all engines of a NIC the same"));
  }
}

// {bytes, operations, busyNs, classes: {inference: {bytes, transfers}, ...}}: those of a class have crossed.
Napi::Value NicLinkObject::statistics(const Napi::CallbackInfo& info) {
  const Napi::Env env = info.Env();
  const NicLinkStatistics all = link_->statistics(now_ns());
  Napi::Object statistics = Napi::Object::New(env);
  statistics.Set("bytes", number(env, all.bytes));
  statistics.Set("operations", number(env, all.transfers));
  statistics.Set("busyNs", number(env, all.busy_ns));
  Napi::Object classes = Napi::Object::New(env);
  for (uint32_t c = 0; c < kTrafficClasses; c++) {
    Napi::Object of_class = Napi::Object::New(env);
    of_class.Set("bytes", number(env, all.classes[c].bytes));
    of_class.Set("transfers", number(env, all.classes[c].transfers));
    classes.Set(kClassNames[c], of_class);
  }
  statistics.Set("classes", classes);
  return statistics;
}

}  // namespace dualpath::bindings
