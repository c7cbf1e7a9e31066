// What is in a store: counted by a scan that reads no block.
#pragma once
#include <array>

#include "store/pin_table.h"
#include "store/store_root.h"

namespace dualpath::store {

struct SurveyCount {
  uint64_t files = 0;
  uint64_t bytes = 0;

  void add(uint64_t file_bytes) noexcept {
    ++files;
    bytes += file_bytes;
  }
};

struct NamespaceSurvey {
  std::string name;  // "": the default one
  SurveyCount blocks;
};

struct Survey {
  // Age of a block at most so many seconds; the last without limit.
  static constexpr std::array<int64_t, 5> kAgeLimits_s{60, 3600, 86400, 7 * 86400, INT64_MAX};

  SurveyCount blocks;
  std::vector<NamespaceSurvey> namespaces;
  std::array<SurveyCount, kAgeLimits_s.size()> ages;
  int64_t oldest_s = 0;  // age of the oldest block
  uint64_t foreign_names = 0;
  SurveyCount quarantined;
  SurveyCount temps;
  uint64_t trash_namespaces = 0;
  std::vector<PinTableFile> tables;
};

Status survey_store(const StoreRoot& root, ToolProgress& progress, Survey* out);

}  // namespace dualpath::store
