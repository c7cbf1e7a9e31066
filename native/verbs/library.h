// libibverbs.so.1, opened at run time, so that one binary runs where RDMA is absent and says so.
#pragma once
#include <memory>
#include <string>

#include "core/status.h"
#include "verbs/verbs.h"

namespace dualpath::verbs {

inline constexpr const char* kLibraryName = "libibverbs.so.1";

// RDMA_UNAVAILABLE when it is not there or lacks a symbol; the message says which and what to install.
Status open_library(std::shared_ptr<Verbs>* out, const std::string& name = kLibraryName);

// The process's own, opened once.
Status process_library(std::shared_ptr<Verbs>* out);

}  // namespace dualpath::verbs
