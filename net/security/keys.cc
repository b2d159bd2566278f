// Implements key files, the list of allowed keys, and key generation and rotation.
#include "net/security/keys.h"

#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <filesystem>
#include <set>
#include <sstream>
#include <utility>

#include "net/security/private_file.h"
#include "net/security/zmq_zap.h"

namespace troop {
namespace {

namespace fs = std::filesystem;

// Size limits of files that are read completely.
constexpr std::size_t kKeyFileBytesMax = 64 << 10;
constexpr std::size_t kAllowedBytesMax = 4 << 20;
constexpr std::size_t kNameMax = 64;
constexpr Role kKeyRoles[] = {Role::kCoordinator, Role::kReplay, Role::kParamServer,
                              Role::kLearner,     Role::kActor,  Role::kEvaluator,
                              Role::kInference,   Role::kTool};

// Returns the role with this name, if keys can have it.
std::optional<Role> RoleOf(std::string_view name) {
  for (const Role role : kKeyRoles) {
    if (RoleName(role) == name) return role;
  }
  return std::nullopt;
}

// Key names become file names.
bool IsKeyName(std::string_view name) {
  return !name.empty() && name.size() <= kNameMax && std::ranges::all_of(name, [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '_';
  });
}

// Replaces a file atomically; the new file never has wider access rights.
Status WriteOwnFile(const std::string& path, const std::string& text, mode_t mode) {
  const std::string aside = path + ".new";
  // A file left by a killed process would make O_EXCL fail.
  unlink(aside.c_str());
  const int fd = open(aside.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode);
  // fchmod undoes the umask. fsync before rename: a crash leaves the old file or the new one.
  bool good = fd >= 0 && fchmod(fd, mode) == 0 &&
              write(fd, text.data(), text.size()) == ssize_t(text.size()) && fsync(fd) == 0;
  // Saved here, because close may change it.
  const int error = errno;
  if (fd >= 0) close(fd);
  if (good && rename(aside.c_str(), path.c_str()) == 0) return Status::Ok();
  const std::string why = strerror(good ? errno : error);
  unlink(aside.c_str());
  return InvalidArgument("can't write {}: {}", path, why);
}

// One line `name = "value"`; the name is empty for blank lines and comments.
struct Line {
  std::string name, value;
};
// Returns nullopt if the line is malformed.
std::optional<Line> ParseLine(std::string_view text) {
  const auto trim = [](std::string_view t) {
    while (!t.empty() && (t.front() == ' ' || t.front() == '\t')) t.remove_prefix(1);
    while (!t.empty() && (t.back() == ' ' || t.back() == '\t' || t.back() == '\r')) {
      t.remove_suffix(1);
    }
    return t;
  };
  text = trim(text);
  if (text.empty() || text[0] == '#') return Line{};
  const std::size_t equals = text.find('=');
  if (equals == std::string_view::npos) return std::nullopt;
  const std::string_view value = trim(text.substr(equals + 1));
  if (value.size() < 2 || value.front() != '"' || value.back() != '"') return std::nullopt;
  return Line{std::string(trim(text.substr(0, equals))),
              std::string(value.substr(1, value.size() - 2))};
}

// Returns the content of a key file.
std::string KeyFileText(const KeyRing& ring) {
  std::string text = fmt::format(
      "# Secret key of Troop. The owner of this file can join runs as {}.\nrole = \"{}\"\nname = "
      "\"{}\"\npublic = \"{}\"\nsecret = \"{}\"\n",
      RoleName(ring.role), RoleName(ring.role), ring.name, KeyText(ring.public_key),
      KeyText(ring.secret_key.bytes()));
  for (const PublicKey& key : ring.coordinators) {
    text += fmt::format("coordinator = \"{}\"\n", KeyText(key));
  }
  return text;
}

// Returns a ZAP domain that is unique in this process.
std::string NextDomain() {
  // The ZAP handler finds the list of allowed keys by the domain of a socket.
  static std::atomic<std::uint64_t> count{0};
  return fmt::format("troop-{}", ++count);
}

}  // namespace

std::string KeyText(const PublicKey& key) {
  std::string text;
  for (const std::byte b : key) text += fmt::format("{:02x}", unsigned(b));
  return text;
}

// Accepts lower-case digits only, so that a key has exactly one text.
std::optional<PublicKey> ParseKeyText(std::string_view text) {
  PublicKey key{};
  if (text.size() != 2 * key.size()) return std::nullopt;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    unsigned digit = 0;
    if (c >= '0' && c <= '9') {
      digit = unsigned(c - '0');
    } else if (c >= 'a' && c <= 'f') {
      digit = unsigned(c - 'a') + 10;
    } else {
      return std::nullopt;
    }
    key[i / 2] = std::byte(unsigned(key[i / 2]) << 4 | digit);
  }
  return key;
}

// explicit_bzero is not optimized away, unlike memset.
SecretKey::~SecretKey() { explicit_bzero(bytes_.data(), bytes_.size()); }

// Reads the file again when its stamp has changed: a removed key is rejected without a restart.
Result<AllowList::Entry> AllowList::Find(const PublicKey& key) {
  const std::lock_guard lock(mutex_);
  struct stat info {};
  const bool there = stat(path_.c_str(), &info) == 0;
  // -2 differs from the initial -1, so a missing file is noticed too.
  const Stamp stamp{
      .device = info.st_dev,
      .inode = info.st_ino,
      .bytes = std::uint64_t(info.st_size),
      .changed_ns = there ? info.st_ctim.tv_sec * 1'000'000'000 + info.st_ctim.tv_nsec : -2};
  if (!(stamp == stamp_)) {
    stamp_ = stamp;
    entries_.clear();
    // An error is kept until the file changes, so that it is not read again for each handshake.
    status_ = ReadAgain();
  }
  TROOP_RETURN_IF_ERROR(status_);
  const auto found = entries_.find(key);
  if (found != entries_.end()) return found->second;
  return NotFound("the public key {}… is not in {}", KeyText(key).substr(0, 16), path_);
}

Status AllowList::ReadAgain() {
  struct stat info {};
  // 022: other users may read public keys, but not add one.
  TROOP_ASSIGN_OR_RETURN(const std::string text,
                         ReadPrivateFile(path_, 022, "chmod go-w", kAllowedBytesMax, &info));
  std::istringstream lines(text);
  std::string line;
  for (int number = 1; std::getline(lines, line); ++number) {
    // A line: key, role, name; comments are removed.
    std::istringstream words(line.substr(0, line.find('#')));
    std::string key_text, role_text, name, rest;
    words >> key_text >> role_text >> name >> rest;
    if (key_text.empty()) continue;
    const std::optional<PublicKey> key = ParseKeyText(key_text);
    const std::optional<Role> role = RoleOf(role_text);
    if (!key || !role || !IsKeyName(name) || !rest.empty()) {
      // One invalid line disables the whole list: a partial list could hide a mistake.
      entries_.clear();
      return InvalidArgument(
          "{}:{}: expected \"<64 digits> <role> <name>\"; no key is admitted until this is fixed",
          path_, number);
    }
    entries_[*key] = {*role, name};
  }
  return Status::Ok();
}

// Steps: read the private file, parse its lines, wipe the text, check that both keys match.
Result<std::shared_ptr<const KeyRing>> LoadKeys(const std::string& file) {
  auto ring = std::make_shared<KeyRing>();
  struct stat info {};
  Result<std::string> read = ReadPrivateFile(
      file, 077,
      "if others may have read it, create a new key (troop keygen --rotate), else: chmod 600",
      kKeyFileBytesMax, &info);
  if (read.status().code() == Code::kNotFound) {
    return NotFound("{}; create keys with troop keygen", read.status().message());
  }
  TROOP_ASSIGN_OR_RETURN(std::string text, std::move(read));
  ring->file = file;
  std::set<std::string> seen;
  std::istringstream lines(text);
  std::string line_text;
  for (int number = 1; std::getline(lines, line_text); ++number) {
    const std::optional<Line> line = ParseLine(line_text);
    // Messages never contain the line, which may hold the secret key.
    const auto bad = [&] {
      return InvalidArgument(
          "{}:{}: invalid line in a key file; copy the file again from its origin", file, number);
    };
    if (!line) return bad();
    if (line->name.empty()) continue;
    const std::optional<PublicKey> key = ParseKeyText(line->value);
    // Two lines during a rotation: the current key and the previous one. Other names are unique.
    if (line->name == "coordinator" && key) {
      ring->coordinators.push_back(*key);
      continue;
    }
    if (!seen.insert(line->name).second) return bad();
    if (line->name == "role" && RoleOf(line->value)) {
      ring->role = *RoleOf(line->value);
    } else if (line->name == "name" && IsKeyName(line->value)) {
      ring->name = line->value;
    } else if (line->name == "public" && key) {
      ring->public_key = *key;
    } else if (line->name == "secret" && key) {
      ring->secret_key = SecretKey(*key);
    } else {
      return bad();
    }
  }
  // The text contains the secret key.
  explicit_bzero(text.data(), text.size());
  for (const char* name : {"role", "name", "public", "secret"}) {
    if (!seen.contains(name))
      return InvalidArgument("{}: the line {} is missing in this key file", file, name);
  }
  // Detects a damaged or manually edited key pair.
  TROOP_ASSIGN_OR_RETURN(const PublicKey half, DerivePublicKey(ring->secret_key));
  if (half != ring->public_key) {
    return InvalidArgument("{}: the public and the secret key do not match", file);
  }
  ring->allowed = std::make_shared<AllowList>((fs::path(file).parent_path() / "allowed").string());
  ring->domain = NextDomain();
  return std::shared_ptr<const KeyRing>(std::move(ring));
}

std::string KeyFileOf(const std::string& folder, Role role) {
  return (fs::path(folder) / fmt::format("{}.key", RoleName(role))).string();
}

std::vector<NewKey> KeysOfAllRoles() {
  std::vector<NewKey> keys;
  for (const Role role : kKeyRoles) keys.push_back({role, std::string(RoleName(role))});
  return keys;
}

namespace {

// Adds a line to `allowed`. Of earlier lines with the same name only the newest is kept.
Status Allow(const std::string& folder, const NewKey& key, const PublicKey& public_key) {
  const std::string path = (fs::path(folder) / "allowed").string();
  std::string text =
      "# Public keys that may connect, and their roles. Contains no secrets. A removed key is "
      "rejected\n# at its next connection; no restart is required.\n";
  struct stat info {};
  Result<std::string> before = ReadPrivateFile(path, 022, "chmod go-w", kAllowedBytesMax, &info);
  if (!before.ok() && before.status().code() != Code::kNotFound) return before.status();
  if (before.ok()) text = *before;
  if (!text.empty() && text.back() != '\n') text += '\n';
  const std::string end = fmt::format(" {} {}\n", RoleName(key.role), key.name);
  std::vector<std::string> lines;
  std::istringstream all(text);
  for (std::string line; std::getline(all, line);) lines.push_back(line + "\n");
  const auto is_its = [&](const std::string& line) {
    return line.ends_with(end) && line[0] != '#';
  };
  // Keeps the newest old line, which stays valid until the next rotation.
  while (std::ranges::count_if(lines, is_its) > 1) {
    lines.erase(std::ranges::find_if(lines, is_its));
  }
  text.clear();
  for (const std::string& line : lines) text += line;
  // The new line is the last one: lines of a name are ordered by age.
  return WriteOwnFile(path, text + KeyText(public_key) + end, 0600);
}

// Writes these coordinator keys into all key files of the folder.
Status TellCoordinators(const std::string& folder, const std::vector<PublicKey>& coordinators) {
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    if (it->path().extension() != ".key") continue;
    TROOP_ASSIGN_OR_RETURN(const auto ring, LoadKeys(it->path().string()));
    KeyRing renewed = *ring;
    renewed.coordinators = coordinators;
    TROOP_RETURN_IF_ERROR(WriteOwnFile(ring->file, KeyFileText(renewed), 0600));
  }
  return error ? InvalidArgument("{}: {}", folder, error.message()) : Status::Ok();
}

// Creates one key pair and allows it. A new coordinator key is written to all key files, next to
// the previous one.
Status MakeKey(const std::string& folder, const NewKey& key, std::vector<PublicKey> coordinators) {
  TROOP_ASSIGN_OR_RETURN(const CurvePair pair, MakeCurvePair());
  KeyRing ring{.file = (fs::path(folder) / (key.name + ".key")).string(),
               .role = key.role,
               .name = key.name,
               .public_key = pair.public_key,
               .secret_key = pair.secret_key,
               .coordinators = std::move(coordinators)};
  if (key.role != Role::kCoordinator) {
    // Written first: a surplus line in `allowed` is harmless.
    TROOP_RETURN_IF_ERROR(Allow(folder, key, ring.public_key));
    return WriteOwnFile(ring.file, KeyFileText(ring), 0600);
  }
  ring.coordinators.insert(ring.coordinators.begin(), ring.public_key);
  // The previous key stays valid until the next rotation, which drops it here.
  if (ring.coordinators.size() > 2) ring.coordinators.resize(2);
  TROOP_RETURN_IF_ERROR(WriteOwnFile(ring.file, KeyFileText(ring), 0600));
  return TellCoordinators(folder, ring.coordinators);
}

}  // namespace

Status MakeKeys(const std::string& folder, const std::vector<NewKey>& keys, bool rotate) {
  // Validates all keys before anything is written.
  for (const NewKey& key : keys) {
    const bool named_as_role = key.role != Role::kCoordinator || key.name == "coordinator";
    if (!IsKeyName(key.name) || !named_as_role || !RoleOf(RoleName(key.role))) {
      return InvalidArgument(
          "{:?} is not a valid name for a key of the role {}: use 1 to {} characters of a-z, 0-9, "
          "'-' and '_'; the coordinator's key must be named coordinator",
          key.name, RoleName(key.role), kNameMax);
    }
    const std::string path = (fs::path(folder) / (key.name + ".key")).string();
    std::error_code ignored;
    if (rotate || !fs::exists(path, ignored)) continue;
    return AlreadyExists(
        "{} exists; --rotate creates a new key pair and accepts the old one until the next "
        "rotation",
        path);
  }
  if (mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST) {
    return InvalidArgument("can't create {}: {}", folder, strerror(errno));
  }
  for (const NewKey& key : keys) {
    // Loaded for each key, because an earlier one of `keys` may be the coordinator's.
    std::vector<PublicKey> coordinators;
    const auto ring = LoadKeys(KeyFileOf(folder, Role::kCoordinator));
    if (ring.ok()) {
      coordinators = (*ring)->coordinators;
    } else if (ring.status().code() != Code::kNotFound) {
      return ring.status();
    } else if (key.role != Role::kCoordinator) {
      return InvalidArgument("{} has no key of the coordinator; create one first: troop keygen {}",
                             folder, folder);
    }
    TROOP_RETURN_IF_ERROR(MakeKey(folder, key, std::move(coordinators)));
  }
  return Status::Ok();
}

}  // namespace troop
