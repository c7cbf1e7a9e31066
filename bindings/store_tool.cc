#include "store_tool.h"

#include <functional>
#include <new>

#include "store/collector.h"
#include "store/survey.h"
#include "store/sweep.h"
#include "store/verifier.h"

namespace dualpath::bindings {
namespace {

using store::StoreRoot;
using store::ToolProgress;

// An environment that ends (worker.terminate) waits for its jobs: this makes them short.
void stop_work(void* progress) { static_cast<ToolProgress*>(progress)->stop = true; }

// Plain napi_async_work: what node-addon-api makes of it aborts when its worker is terminated meanwhile.
template <typename Result>
class Job {
 public:
  using Work = std::function<Status(const StoreRoot&, ToolProgress&, Result&)>;
  using Answer = Napi::Value (*)(Napi::Env, const Result&);

  Job(std::shared_ptr<StoreRoot> root, std::shared_ptr<ToolProgress> progress, Work work, Answer answer)
      : root_(std::move(root)), progress_(std::move(progress)), work_(std::move(work)), answer_(answer) {}

  // The promise, or nothing when the environment is ending.
  static napi_value start(napi_env env, std::unique_ptr<Job> job) {
    napi_value name = nullptr;
    napi_value promise = nullptr;
    napi_create_string_utf8(env, "dualpath.store", NAPI_AUTO_LENGTH, &name);
    const auto execute = [](napi_env, void* data) { static_cast<Job*>(data)->execute(); };
    const auto complete = [](napi_env env, napi_status, void* data) {
      const std::unique_ptr<Job> job(static_cast<Job*>(data));
      napi_remove_env_cleanup_hook(env, stop_work, job->progress_.get());
      job->settle(env);
      napi_delete_async_work(env, job->async_work_);
    };
    if (napi_create_promise(env, &job->deferred_, &promise) != napi_ok ||
        napi_create_async_work(env, nullptr, name, execute, complete, job.get(), &job->async_work_) !=
            napi_ok) {
      return nullptr;
    }
    if (napi_queue_async_work(env, job->async_work_) != napi_ok) {
      napi_delete_async_work(env, job->async_work_);
      return nullptr;
    }
    Job* queued = job.release();
    napi_add_env_cleanup_hook(env, stop_work, queued->progress_.get());
    return promise;
  }

 private:
  void execute() noexcept try {
    status_ = work_(*root_, *progress_, result_);
  } catch (const std::bad_alloc&) {
    status_ = Status::error("MEMORY_LIMIT", "block store " + root_->path + ": no memory for this job");
  }

  void settle(napi_env env) {
    if (!can_answer(env)) return;
    if (status_.ok()) {
      napi_resolve_deferred(env, deferred_, answer_(env, result_));
    } else {
      napi_reject_deferred(env, deferred_, status_error(env, status_).Value());
    }
  }

  std::shared_ptr<StoreRoot> root_;
  std::shared_ptr<ToolProgress> progress_;
  Work work_;
  Answer answer_;
  napi_deferred deferred_ = nullptr;
  napi_async_work async_work_ = nullptr;
  Status status_;
  Result result_{};
};

template <typename Result>
Napi::Value start(Napi::Env env, const std::shared_ptr<StoreRoot>& root,
                  const std::shared_ptr<ToolProgress>& progress, typename Job<Result>::Work work,
                  typename Job<Result>::Answer answer) {
  progress->stop = false;
  progress->done = 0;
  progress->total = 0;
  auto job = std::make_unique<Job<Result>>(root, progress, std::move(work), answer);
  const napi_value promise = Job<Result>::start(env, std::move(job));
  if (promise != nullptr) return {env, promise};
  throw_status(env, Status::error("CLOSED", "the environment is ending"));
  return env.Undefined();
}

template <typename Count>
Napi::Object count_value(Napi::Env env, const Count& count) {
  Napi::Object out = Napi::Object::New(env);
  out.Set("files", number(env, count.files));
  out.Set("bytes", number(env, count.bytes));
  return out;
}

Napi::Value survey_value(Napi::Env env, const store::Survey& survey) {
  Napi::Object out = Napi::Object::New(env);
  out.Set("blocks", count_value(env, survey.blocks));
  Napi::Array namespaces = Napi::Array::New(env);
  for (const store::NamespaceSurvey& space : survey.namespaces) {
    Napi::Object one = count_value(env, space.blocks);
    one.Set("name", space.name);
    namespaces.Set(namespaces.Length(), one);
  }
  out.Set("namespaces", namespaces);
  Napi::Array ages = Napi::Array::New(env);
  for (const store::SurveyCount& bucket : survey.ages) ages.Set(ages.Length(), count_value(env, bucket));
  out.Set("ages", ages);
  out.Set("oldestS", number(env, static_cast<uint64_t>(survey.oldest_s)));
  out.Set("foreignNames", number(env, survey.foreign_names));
  out.Set("quarantined", count_value(env, survey.quarantined));
  out.Set("temps", count_value(env, survey.temps));
  out.Set("trashNamespaces", number(env, survey.trash_namespaces));
  Napi::Array processes = Napi::Array::New(env);
  for (const store::PinTableFile& table : survey.tables) {
    Napi::Object one = Napi::Object::New(env);
    one.Set("pid", Napi::Number::New(env, table.pid));
    one.Set("thisHost", table.this_host);
    one.Set("dead", table.dead);
    one.Set("capacityBytes", number(env, table.capacity_bytes));
    processes.Set(processes.Length(), one);
  }
  out.Set("processes", processes);
  return out;
}

Napi::Value verify_value(Napi::Env env, const store::VerifyResult& result) {
  Napi::Object out = Napi::Object::New(env);
  out.Set("blocks", number(env, result.blocks));
  out.Set("bytes", number(env, result.bytes));
  out.Set("goodBlocks", number(env, result.good_blocks));
  out.Set("badBlocks", number(env, result.bad_blocks));
  out.Set("vanishedBlocks", number(env, result.vanished_blocks));
  out.Set("removedBlocks", number(env, result.removed_blocks));
  out.Set("failedRemovals", number(env, result.failed_removals));
  out.Set("faults", faults_value(env, result.faults));
  out.Set("unreadableBlocks", number(env, result.unreadable_blocks));
  Napi::Array listed = Napi::Array::New(env);
  for (const store::BadBlock& bad : result.listed) {
    Napi::Object one = Napi::Object::New(env);
    one.Set("namespace", bad.namespace_name);
    one.Set("key", bad.key.to_hex());
    one.Set("fault", bad.sys_errno != 0 ? "unreadable" : store::fault_name(bad.fault));
    one.Set("layer", Napi::Number::New(env, bad.layer));
    one.Set("errno", Napi::Number::New(env, bad.sys_errno));
    listed.Set(listed.Length(), one);
  }
  out.Set("listed", listed);
  out.Set("resume", result.resume);
  return out;
}

Napi::Value collect_value(Napi::Env env, const store::CollectResult& result) {
  Napi::Object out = Napi::Object::New(env);
  out.Set("stopped", result.stopped || result.busy);
  out.Set("blocks", number(env, result.blocks));
  out.Set("bytes", number(env, result.bytes));
  out.Set("evictedBlocks", number(env, result.evicted_blocks));
  out.Set("evictedBytes", number(env, result.evicted_bytes));
  out.Set("pinnedBlocks", number(env, result.pinned_blocks));
  out.Set("changedBlocks", number(env, result.changed_blocks));
  out.Set("failedBlocks", number(env, result.failed_blocks));
  out.Set("lastErrno", Napi::Number::New(env, result.last_errno));
  return out;
}

Napi::Value sweep_value(Napi::Env env, const store::SweepResult& result) {
  Napi::Object out = Napi::Object::New(env);
  out.Set("temps", count_value(env, result.temps));
  out.Set("tempsLeft", count_value(env, result.temps_left));
  out.Set("tables", count_value(env, result.tables));
  out.Set("quarantined", count_value(env, result.quarantined));
  out.Set("trash", count_value(env, result.trash));
  out.Set("failed", number(env, result.failed));
  out.Set("lastErrno", Napi::Number::New(env, result.last_errno));
  return out;
}

struct Deletion {
  bool found = false;
  store::SweepResult result;
};

Napi::Value deletion_value(Napi::Env env, const Deletion& deletion) {
  Napi::Object out = sweep_value(env, deletion.result).As<Napi::Object>();
  out.Set("found", deletion.found);
  return out;
}

}  // namespace

void StoreToolObject::define(Napi::Env env, Napi::Object exports) {
  exports.Set("StoreTool",
              DefineClass(env, "StoreTool",
                          {InstanceMethod<&StoreToolObject::facts>("facts"),
                           InstanceMethod<&StoreToolObject::progress>("progress"),
                           InstanceMethod<&StoreToolObject::stop>("stop"),
                           InstanceMethod<&StoreToolObject::survey>("survey"),
                           InstanceMethod<&StoreToolObject::verify>("verify"),
                           InstanceMethod<&StoreToolObject::collect>("collect"),
                           InstanceMethod<&StoreToolObject::sweep>("sweep"),
                           InstanceMethod<&StoreToolObject::delete_namespace>("deleteNamespace")}));
}

// new StoreTool(path)
StoreToolObject::StoreToolObject(const Napi::CallbackInfo& info) : Wrap(info) {
  if (!info[0].IsString()) {
    throw_argument(info.Env(), "path", "a string");
    return;
  }
  auto root = std::make_shared<StoreRoot>();
  if (const Status status = StoreRoot::open(info[0].As<Napi::String>(), root.get()); !status.ok()) {
    throw_status(info.Env(), status);
    return;
  }
  root_ = std::move(root);
  progress_ = std::make_shared<ToolProgress>();
}

Napi::Value StoreToolObject::facts(const Napi::CallbackInfo& info) {
  const Napi::Env env = info.Env();
  Napi::Object out = Napi::Object::New(env);
  out.Set("identity", root_->identity);
  out.Set("layers", number(env, root_->layer_bytes.size()));
  store::BlockFormat format;
  const bool known = !root_->layer_bytes.empty() && root_->format(&format).ok();
  out.Set("blockFileBytes", number(env, known ? format.file_bytes() : 0));
  return out;
}

Napi::Value StoreToolObject::progress(const Napi::CallbackInfo& info) {
  Napi::Object out = Napi::Object::New(info.Env());
  out.Set("done", number(info.Env(), progress_->done));
  out.Set("total", number(info.Env(), progress_->total));
  return out;
}

Napi::Value StoreToolObject::stop(const Napi::CallbackInfo& info) {
  stop_work(progress_.get());
  return info.Env().Undefined();
}

Napi::Value StoreToolObject::survey(const Napi::CallbackInfo& info) {
  return start<store::Survey>(
      info.Env(), root_, progress_,
      [](const StoreRoot& root, ToolProgress& progress, store::Survey& result) {
        return store::survey_store(root, progress, &result);
      },
      survey_value);
}

// {action?: 'report' | 'quarantine' | 'delete', limit?, resume?, threads?}
Napi::Value StoreToolObject::verify(const Napi::CallbackInfo& info) {
  Options options(info.Env(), info[0]);
  store::VerifyOptions wanted;
  const std::string action = options.has("action") ? options.string("action") : "report";
  if (action == "quarantine") wanted.action = store::BadBlockAction::kQuarantine;
  if (action == "delete") wanted.action = store::BadBlockAction::kDelete;
  wanted.limit = options.u64("limit", wanted.limit);
  if (options.has("resume")) wanted.resume = options.string("resume");
  wanted.threads = options.u32("threads", wanted.threads);
  if (!options.ok()) return info.Env().Undefined();
  return start<store::VerifyResult>(
      info.Env(), root_, progress_,
      [wanted](const StoreRoot& root, ToolProgress& progress, store::VerifyResult& result) {
        return store::verify_store(root, wanted, progress, &result);
      },
      verify_value);
}

// {targetBytes, dryRun?}
Napi::Value StoreToolObject::collect(const Napi::CallbackInfo& info) {
  Options options(info.Env(), info[0]);
  store::CollectOptions wanted;
  wanted.target_bytes = options.u64("targetBytes");
  wanted.dry_run = options.boolean("dryRun", false);
  wanted.wait = true;
  if (!options.ok()) return info.Env().Undefined();
  return start<store::CollectResult>(
      info.Env(), root_, progress_,
      [wanted](const StoreRoot& root, ToolProgress& progress, store::CollectResult& result) {
        store::EvictionLog log;
        log.open(root.fd());
        store::CollectOptions watched = wanted;
        watched.go_on = [&progress] { return progress.go_on(); };
        return store::Collector(root.fd(), root.path, &log, nullptr).collect(watched, &result);
      },
      collect_value);
}

// {dryRun?, allQuarantined?}
Napi::Value StoreToolObject::sweep(const Napi::CallbackInfo& info) {
  Options options(info.Env(), info[0]);
  store::SweepOptions wanted;
  wanted.dry_run = options.boolean("dryRun", false);
  wanted.all_quarantined = options.boolean("allQuarantined", false);
  if (!options.ok()) return info.Env().Undefined();
  return start<store::SweepResult>(
      info.Env(), root_, progress_,
      [wanted](const StoreRoot& root, ToolProgress& progress, store::SweepResult& result) {
        return store::sweep_store(root, wanted, progress, &result);
      },
      sweep_value);
}

// (name)
Napi::Value StoreToolObject::delete_namespace(const Napi::CallbackInfo& info) {
  if (!info[0].IsString()) {
    throw_argument(info.Env(), "namespace", "a string");
    return info.Env().Undefined();
  }
  return start<Deletion>(
      info.Env(), root_, progress_,
      [name = std::string(info[0].As<Napi::String>())](const StoreRoot& root, ToolProgress& progress,
                                                       Deletion& deletion) {
        store::EvictionLog log;
        log.open(root.fd());
        return store::delete_namespace(root, name, log, progress, &deletion.found, &deletion.result);
      },
      deletion_value);
}

}  // namespace dualpath::bindings
