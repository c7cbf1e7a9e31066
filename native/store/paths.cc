#include "store/paths.h"

#include <algorithm>
#include <charconv>
#include <cstring>

namespace dualpath::store {
namespace {

constexpr std::string_view kBlockSuffix = ".kvb";
constexpr std::string_view kTempSuffix = ".tmp";
constexpr size_t kNonceHexChars = 16;
constexpr size_t kMaxPidDigits = 10;
constexpr char kDigits[] = "0123456789abcdef";

static_assert(sizeof kNamespaces + kMaxNamespaceBytes + sizeof "/00/" + BlockKey::kHexChars +
                  kBlockSuffix.size() + 1 <=
              kBlockPathBytes);

bool is_namespace_character(char c) noexcept {
  return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '.' || c == '_' || c == '-';
}

}  // namespace

Status check_namespace_name(std::string_view name) {
  const bool good = !name.empty() && name.size() <= kMaxNamespaceBytes &&
                    std::all_of(name.begin(), name.end(), is_namespace_character) && name[0] != '.' &&
                    name[0] != '_' && name[0] != '-';
  if (good) return {};
  return Status::error("INVALID_ARGUMENT", "namespace '" + std::string(name.substr(0, 100)) +
                                               "': give 1 to " + std::to_string(kMaxNamespaceBytes) +
                                               " of a-z, 0-9, '.', '_' and '-', beginning with a letter or "
                                               "a digit, such as 'tenant-a'");
}

std::string namespace_directory(std::string_view name) {
  if (name.empty()) return kBlocks;
  return std::string(kNamespaces) + "/" + std::string(name);
}

std::string fan_out_directory(std::string_view namespace_name, unsigned number) {
  std::string directory = namespace_directory(namespace_name);
  directory += '/';
  directory += kDigits[number >> 4 & 15];
  directory += kDigits[number & 15];
  return directory;
}

void write_block_path(std::string_view namespace_directory, const BlockKey& key, char* out) noexcept {
  std::memcpy(out, namespace_directory.data(), namespace_directory.size());
  char* at = out + namespace_directory.size();
  char* hex = at + sizeof "/00/" - 1;
  key.write_hex(hex);
  *at++ = '/';
  *at++ = hex[0];
  *at++ = hex[1];
  *at = '/';
  std::memcpy(hex + BlockKey::kHexChars, ".kvb", sizeof ".kvb");
}

void write_bad_path(const BlockKey& key, char* out) noexcept {
  std::memcpy(out, "bad/", 4);
  key.write_hex(out + 4);
  std::memcpy(out + 4 + BlockKey::kHexChars, ".kvb", sizeof ".kvb");
}

std::optional<BlockKey> parse_block_name(std::string_view name) noexcept {
  if (!name.ends_with(kBlockSuffix)) return std::nullopt;
  return BlockKey::from_hex(name.substr(0, name.size() - kBlockSuffix.size()));
}

std::optional<uint64_t> parse_hex64(std::string_view text) noexcept {
  uint64_t value = 0;
  if (text.size() != kNonceHexChars || text.find_first_not_of(kDigits) != std::string_view::npos)
    return std::nullopt;
  std::from_chars(text.data(), text.data() + text.size(), value, 16);
  return value;
}

std::optional<TempName> parse_temp_name(std::string_view name) noexcept {
  if (!name.ends_with(kTempSuffix)) return std::nullopt;
  name.remove_suffix(kTempSuffix.size());
  const size_t dash = name.find('-');
  if (dash == 0 || dash > kMaxPidDigits) return std::nullopt;
  if (name.find_first_not_of("0123456789") != dash) return std::nullopt;
  TempName temp{};
  if (std::from_chars(name.data(), name.data() + dash, temp.pid).ec != std::errc{}) return std::nullopt;
  name.remove_prefix(dash + 1);
  if (name.size() != 2 * kNonceHexChars + 1 || name[kNonceHexChars] != '-') return std::nullopt;
  const auto nonce = parse_hex64(name.substr(0, kNonceHexChars));
  if (!nonce || !parse_hex64(name.substr(kNonceHexChars + 1))) return std::nullopt;
  temp.nonce = *nonce;
  return temp;
}

Status open_directory(int root_fd, const std::string& root, const std::string& relative,
                      ScopedDirectory* out) {
  const int fd = openat(root_fd, relative.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
  if (fd < 0) return io_error("openat", root + "/" + relative, errno);
  out->reset(fdopendir(fd));
  if (*out != nullptr) return {};
  const int error = errno;
  close(fd);
  return io_error("fdopendir", root + "/" + relative, error);
}

Status list_namespaces(int root_fd, const std::string& root, std::vector<std::string>* names) {
  names->clear();
  Status status = for_each_entry_if_there(root_fd, root, kNamespaces, [&](int, const char* name) {
    if (check_namespace_name(name).ok()) names->push_back(name);
    return names->size() <= kMaxNamespaces;
  });
  if (status.ok() && names->size() > kMaxNamespaces) {
    status = Status::error("CAPACITY_EXHAUSTED", "block store " + root + ": more than " +
                                                     std::to_string(kMaxNamespaces) +
                                                     " namespaces; delete some, or use several stores");
  }
  std::sort(names->begin(), names->end());
  return status;
}

}  // namespace dualpath::store
