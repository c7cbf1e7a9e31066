// The directory of a store as such: opened, told from other programs' directories, made.
#pragma once
#include <string>

#include "core/status.h"
#include "store/posix.h"

namespace dualpath::store {

// A path that is a symbolic link to a directory is followed once, here; everything later is relative to
// the descriptor. With `create` the directory is made (not its parents).
Status open_store_root(const std::string& path, bool create, ScopedFd* out);

// STORE_MISMATCH when a directory without a manifest holds what no store has.
Status refuse_other_programs(int root_fd, const std::string& root);

// Makes what is missing for a namespace ("": the default one). *made: whether anything was.
Status make_store_directories(int root_fd, const std::string& root, const std::string& namespace_name,
                              bool* made);
// What was made survives a loss of power, so that a durable block has directories that do.
Status sync_store_directories(int root_fd, const std::string& root, const std::string& namespace_name);

// A named namespace leaves the store at once, by a rename into trash/; what its files take is given back
// by remove_trash. *found: whether there was one.
Status retire_namespace(int root_fd, const std::string& root, const std::string& namespace_name, bool* found);

}  // namespace dualpath::store
