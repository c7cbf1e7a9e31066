#include "store/survey.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <time.h>

#include <algorithm>

#include "store/paths.h"

namespace dualpath::store {
namespace {

constexpr uint64_t kEntriesAtOnce = 512;

void count_block(const struct stat& info, int64_t now_s, Survey* out, NamespaceSurvey* space) {
  const auto bytes = static_cast<uint64_t>(info.st_size);
  const int64_t age_s = std::max<int64_t>(now_s - static_cast<int64_t>(info.st_mtime), 0);
  out->oldest_s = std::max(out->oldest_s, age_s);
  out->blocks.add(bytes);
  space->blocks.add(bytes);
  size_t bucket = 0;
  while (age_s > Survey::kAgeLimits_s[bucket]) ++bucket;
  out->ages[bucket].add(bytes);
}

Status survey_namespace(const StoreRoot& root, ToolProgress& progress, Survey* out, NamespaceSurvey* space) {
  const int64_t now_s = static_cast<int64_t>(time(nullptr));
  for (unsigned i = 0; i < kFanOut && progress.go_on(); ++i) {
    uint64_t entries = 0;
    Status status = for_each_entry_if_there(
        root.fd(), root.path, fan_out_directory(space->name, i), [&](int directory, const char* name) {
          const auto key = parse_block_name(name);
          struct stat info;
          if (!key || key->bytes[0] != i) {
            ++out->foreign_names;
          } else if (fstatat(directory, name, &info, AT_SYMLINK_NOFOLLOW) == 0) {
            count_block(info, now_s, out, space);
          }
          return ++entries % kEntriesAtOnce != 0 || progress.go_on();
        });
    if (!status.ok()) return status;
    progress.done.fetch_add(1, std::memory_order_relaxed);
  }
  return {};
}

Status count_files(const StoreRoot& root, const char* directory_name, SurveyCount* count) {
  return for_each_entry_if_there(root.fd(), root.path, directory_name, [&](int directory, const char* name) {
    struct stat info;
    if (fstatat(directory, name, &info, AT_SYMLINK_NOFOLLOW) == 0)
      count->add(static_cast<uint64_t>(info.st_size));
    return true;
  });
}

}  // namespace

Status survey_store(const StoreRoot& root, ToolProgress& progress, Survey* out) {
  std::vector<std::string> names;
  Status status = list_namespaces(root.fd(), root.path, &names);
  names.insert(names.begin(), "");
  progress.total = names.size() * kFanOut;
  for (const std::string& name : names) {
    if (!status.ok()) return status;
    out->namespaces.push_back({name, {}});
    status = survey_namespace(root, progress, out, &out->namespaces.back());
  }
  SurveyCount trash;
  if (status.ok()) status = count_files(root, kBad, &out->quarantined);
  if (status.ok()) status = count_files(root, kTemp, &out->temps);
  if (status.ok()) status = count_files(root, kTrash, &trash);
  if (status.ok()) status = list_pin_tables(root.fd(), root.path, &out->tables);
  out->trash_namespaces = trash.files;
  return status;
}

}  // namespace dualpath::store
