#include "store/manifest.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <optional>
#include <string_view>

#include "store/block_format.h"
#include "store/posix.h"

namespace dualpath::store {
namespace {

constexpr std::string_view kTitle = "dualpath block store";
constexpr std::string_view kVersionField = "version=";
constexpr std::string_view kIdentityField = "identity=";
constexpr size_t kMaxManifestBytes = BlockFormat::kMaxIdentityBytes + 256;

// The text before the next line end, which is taken off `rest` with it; nothing when there is no line end.
std::optional<std::string_view> take_line(std::string_view* rest) {
  const size_t end = rest->find('\n');
  if (end == std::string_view::npos) return std::nullopt;
  const std::string_view line = rest->substr(0, end);
  rest->remove_prefix(end + 1);
  return line;
}

Status mismatch(const std::string& root, const std::string& why) {
  return Status::error("STORE_MISMATCH", "block store " + root + ": " + why);
}

Status damaged(const std::string& root) {
  return mismatch(root, std::string(kManifestName) +
                            " is damaged; use another directory, or empty this one to start over");
}

// Reads at most `limit` bytes and one more, so that a longer file shows.
Status read_text(int fd, const std::string& path, size_t limit, std::string* out) {
  out->resize(limit + 1);
  size_t filled = 0;
  while (filled < out->size()) {
    const ssize_t n = read(fd, out->data() + filled, out->size() - filled);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return io_error("read", path, errno);
    if (n == 0) break;
    filled += static_cast<size_t>(n);
  }
  out->resize(filled);
  return {};
}

Status write_text(int fd, const std::string& path, std::string_view text) {
  while (!text.empty()) {
    const ssize_t n = write(fd, text.data(), text.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return io_error("write", path, errno);
    text.remove_prefix(static_cast<size_t>(n));
  }
  if (fsync(fd) != 0) return io_error("fsync", path, errno);
  return {};
}

Status compare(std::string_view text, const std::string& root, const std::string& identity) {
  if (text.size() > kMaxManifestBytes) return damaged(root);
  if (take_line(&text) != kTitle) return damaged(root);
  const auto version = take_line(&text);
  if (!version || !version->starts_with(kVersionField)) return damaged(root);
  // The lines below the version are that version's own: say what it is before looking at them.
  const std::string found_version(version->substr(kVersionField.size()));
  if (found_version != std::to_string(kStoreVersion)) {
    return mismatch(root, "format version '" + found_version + "', this build reads version " +
                              std::to_string(kStoreVersion) +
                              "; use another directory, or a build that reads that version");
  }
  const auto line = take_line(&text);
  if (!line || !line->starts_with(kIdentityField) || !text.empty()) return damaged(root);
  const std::string found(line->substr(kIdentityField.size()));
  if (found != identity) {
    return mismatch(root, "holds blocks of layout '" + found + "', asked for layout '" + identity +
                              "'; give every layout a directory of its own");
  }
  return {};
}

}  // namespace

Status check_manifest(int root_fd, const std::string& root, const std::string& identity,
                      ManifestState* state) {
  const std::string path = root + "/" + kManifestName;
  const ScopedFd fd(openat(root_fd, kManifestName, O_RDONLY | O_CLOEXEC));
  if (!fd.valid()) {
    if (errno != ENOENT) return io_error("openat", path, errno);
    *state = ManifestState::kAbsent;
    return {};
  }
  *state = ManifestState::kMatches;
  std::string text;
  if (Status status = read_text(fd.get(), path, kMaxManifestBytes, &text); !status.ok()) return status;
  return compare(text, root, identity);
}

Status write_manifest(int root_fd, const std::string& root, const char* temp_name,
                      const std::string& identity) {
  const std::string temp_path = root + "/" + temp_name;
  const ScopedFd fd(openat(root_fd, temp_name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
  if (!fd.valid()) return io_error("openat", temp_path, errno);
  std::string text(kTitle);
  text.append("\n").append(kVersionField).append(std::to_string(kStoreVersion));
  text.append("\n").append(kIdentityField).append(identity).append("\n");
  Status status = write_text(fd.get(), temp_path, text);
  // A link, not a rename: it fails when the name is taken, where a rename would replace the first one's.
  if (status.ok() && linkat(root_fd, temp_name, root_fd, kManifestName, 0) != 0 && errno != EEXIST) {
    status = io_error("linkat", root + "/" + kManifestName, errno);
  }
  if (unlinkat(root_fd, temp_name, 0) != 0 && status.ok()) status = io_error("unlinkat", temp_path, errno);
  if (status.ok() && fsync(root_fd) != 0) status = io_error("fsync", root, errno);
  return status;
}

}  // namespace dualpath::store
