#include "store/manifest.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <optional>
#include <string_view>

#include "store/block_format.h"
#include "store/posix.h"

namespace dualpath::store {
namespace {

constexpr std::string_view kTitle = "dualpath block store";
constexpr std::string_view kLayersTitle = "dualpath block layers";
constexpr std::string_view kVersionField = "version=";
constexpr std::string_view kIdentityField = "identity=";
constexpr std::string_view kLayersField = "layer_bytes=";
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

Status damaged(const std::string& root, const char* name) {
  const char* remedy = name == kLayersName
                           ? "remove the file: the next process that opens the store writes it"
                           : "use another directory, or empty this one to start over";
  return mismatch(root, std::string(name) + " is damaged; " + remedy);
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

// The last line's value, after the title and the version.
Status parse(std::string_view text, const std::string& root, const char* name, std::string_view title,
             std::string_view field, std::string* value) {
  if (text.size() > kMaxManifestBytes) return damaged(root, name);
  if (take_line(&text) != title) return damaged(root, name);
  const auto version = take_line(&text);
  if (!version || !version->starts_with(kVersionField)) return damaged(root, name);
  // The lines below the version are that version's own: say what it is before looking at them.
  const std::string found_version(version->substr(kVersionField.size()));
  if (found_version != std::to_string(kStoreVersion)) {
    return mismatch(root, "format version '" + found_version + "', this build reads version " +
                              std::to_string(kStoreVersion) +
                              "; use another directory, or a build that reads that version");
  }
  const auto line = take_line(&text);
  if (!line || !line->starts_with(field) || !text.empty()) return damaged(root, name);
  *value = line->substr(field.size());
  return {};
}

// ENOENT as sys_errno when the file is missing.
Status read_value(int root_fd, const std::string& root, const char* name, std::string_view title,
                  std::string_view field, std::string* value) {
  const std::string path = root + "/" + name;
  const ScopedFd fd(openat(root_fd, name, O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!fd.valid()) return io_error("openat", path, errno);
  std::string text;
  if (Status status = read_text(fd.get(), path, kMaxManifestBytes, &text); !status.ok()) return status;
  return parse(text, root, name, title, field, value);
}

Status write_value(int root_fd, const std::string& root, const char* temp_name, const char* name,
                   std::string_view title, std::string_view field, std::string_view value) {
  const std::string temp_path = root + "/" + temp_name;
  const ScopedFd fd(openat(root_fd, temp_name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
  if (!fd.valid()) return io_error("openat", temp_path, errno);
  std::string text(title);
  text.append("\n").append(kVersionField).append(std::to_string(kStoreVersion));
  text.append("\n").append(field).append(value).append("\n");
  Status status = write_text(fd.get(), temp_path, text);
  // A link, not a rename: it fails when the name is taken, where a rename would replace the first one's.
  if (status.ok() && linkat(root_fd, temp_name, root_fd, name, 0) != 0 && errno != EEXIST) {
    status = io_error("linkat", root + "/" + name, errno);
  }
  if (unlinkat(root_fd, temp_name, 0) != 0 && errno != ENOENT && status.ok()) {
    status = io_error("unlinkat", temp_path, errno);
  }
  return status;
}

bool take_number(std::string_view* text, uint64_t* number) noexcept {
  const auto result = std::from_chars(text->data(), text->data() + text->size(), *number);
  if (result.ec != std::errc{}) return false;
  text->remove_prefix(static_cast<size_t>(result.ptr - text->data()));
  return true;
}

bool take_character(std::string_view* text, char character) noexcept {
  if (!text->starts_with(character)) return false;
  text->remove_prefix(1);
  return true;
}

bool parse_runs(std::string_view text, std::vector<uint64_t>* layer_bytes) {
  do {
    uint64_t layers = 0;
    uint64_t bytes = 0;
    if (!take_number(&text, &layers) || !take_character(&text, 'x') || !take_number(&text, &bytes))
      return false;
    if (layers == 0 || layers > BlockFormat::kMaxLayers - layer_bytes->size()) return false;
    layer_bytes->insert(layer_bytes->end(), layers, bytes);
  } while (take_character(&text, ','));
  return text.empty();
}

std::string runs_of(const std::vector<uint64_t>& layer_bytes) {
  std::string text;
  for (size_t begin = 0, end = 0; begin < layer_bytes.size(); begin = end) {
    while (end < layer_bytes.size() && layer_bytes[end] == layer_bytes[begin]) ++end;
    if (begin != 0) text += ",";
    text += std::to_string(end - begin) + "x" + std::to_string(layer_bytes[begin]);
  }
  return text;
}

}  // namespace

Status check_manifest(int root_fd, const std::string& root, const std::string& identity,
                      ManifestState* state) {
  std::string found;
  Status status = read_value(root_fd, root, kManifestName, kTitle, kIdentityField, &found);
  *state = status.sys_errno == ENOENT ? ManifestState::kAbsent : ManifestState::kMatches;
  if (status.sys_errno == ENOENT) return {};
  if (!status.ok() || found == identity) return status;
  return mismatch(root, "holds blocks of layout '" + found + "', asked for layout '" + identity +
                            "'; give every layout a directory of its own");
}

Status read_manifest(int root_fd, const std::string& root, std::string* identity) {
  Status status = read_value(root_fd, root, kManifestName, kTitle, kIdentityField, identity);
  if (status.sys_errno != ENOENT) return status;
  return mismatch(root, std::string("no ") + kManifestName +
                            " in this directory, so it is not a block store; check the path");
}

Status write_manifest(int root_fd, const std::string& root, const char* temp_name,
                      const std::string& identity) {
  return write_value(root_fd, root, temp_name, kManifestName, kTitle, kIdentityField, identity);
}

Status read_layers(int root_fd, const std::string& root, std::vector<uint64_t>* layer_bytes) {
  layer_bytes->clear();
  std::string runs;
  Status status = read_value(root_fd, root, kLayersName, kLayersTitle, kLayersField, &runs);
  if (status.sys_errno == ENOENT) return {};
  if (!status.ok()) return status;
  return parse_runs(runs, layer_bytes) ? Status{} : damaged(root, kLayersName);
}

Status write_layers(int root_fd, const std::string& root, const char* temp_name,
                    const std::vector<uint64_t>& layer_bytes) {
  return write_value(root_fd, root, temp_name, kLayersName, kLayersTitle, kLayersField, runs_of(layer_bytes));
}

}  // namespace dualpath::store
