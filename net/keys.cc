#include "net/keys.h"

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

#include "net/own_file.h"
#include "net/zmq_zap.h"

namespace troop {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kKeyFileBytesMax = 64 << 10;
constexpr std::size_t kAllowedBytesMax = 4 << 20;
constexpr std::size_t kNameMax = 64;
constexpr Role kKeyRoles[] = {Role::kCoordinator, Role::kReplay, Role::kParamServer,
                              Role::kLearner,     Role::kActor,  Role::kEvaluator,
                              Role::kInference,   Role::kTool};

std::optional<Role> RoleOf(std::string_view name) {
  for (const Role role : kKeyRoles) {
    if (RoleName(role) == name) return role;
  }
  return std::nullopt;
}

bool IsKeyName(std::string_view name) {
  return !name.empty() && name.size() <= kNameMax && std::ranges::all_of(name, [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '_';
  });
}

// Never there with wider rights, never half.
Status WriteOwnFile(const std::string& path, const std::string& text, mode_t mode) {
  const std::string aside = path + ".new";
  unlink(aside.c_str());
  const int fd = open(aside.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode);
  bool good = fd >= 0 && fchmod(fd, mode) == 0 &&
              write(fd, text.data(), text.size()) == ssize_t(text.size()) && fsync(fd) == 0;
  const int error = errno;
  if (fd >= 0) close(fd);
  if (good && rename(aside.c_str(), path.c_str()) == 0) return Status::Ok();
  const std::string why = strerror(good ? errno : error);
  unlink(aside.c_str());
  return InvalidArgument("{} can't be written: {}", path, why);
}

// `key = "value"` of one line; empty name: nothing stands there.
struct Line {
  std::string name, value;
};
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

std::string KeyFileText(const KeyRing& ring) {
  std::string text = fmt::format(
      "# A key of Troop: a secret. Whoever has this file joins runs as {}.\nrole = \"{}\"\n"
      "name = \"{}\"\npublic = \"{}\"\nsecret = \"{}\"\n",
      RoleName(ring.role), RoleName(ring.role), ring.name, KeyText(ring.public_key),
      KeyText(ring.secret_key.bytes()));
  for (const PublicKey& key : ring.coordinators) {
    text += fmt::format("coordinator = \"{}\"\n", KeyText(key));
  }
  return text;
}

std::string NextDomain() {
  static std::atomic<std::uint64_t> count{0};
  return fmt::format("troop-{}", ++count);
}

}  // namespace

std::string KeyText(const PublicKey& key) {
  std::string text;
  for (const std::byte b : key) text += fmt::format("{:02x}", unsigned(b));
  return text;
}

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

SecretKey::~SecretKey() { explicit_bzero(bytes_.data(), bytes_.size()); }

Result<AllowList::Entry> AllowList::Find(const PublicKey& key) {
  const std::lock_guard lock(mutex_);
  struct stat info {};
  const bool there = stat(path_.c_str(), &info) == 0;
  const Stamp stamp{
      .device = info.st_dev,
      .inode = info.st_ino,
      .bytes = std::uint64_t(info.st_size),
      .changed_ns = there ? info.st_ctim.tv_sec * 1'000'000'000 + info.st_ctim.tv_nsec : -2};
  if (!(stamp == stamp_)) {
    stamp_ = stamp;
    entries_.clear();
    status_ = ReadAgain();
  }
  TROOP_RETURN_IF_ERROR(status_);
  const auto found = entries_.find(key);
  if (found != entries_.end()) return found->second;
  return NotFound("the public key {}… is not in {}", KeyText(key).substr(0, 16), path_);
}

Status AllowList::ReadAgain() {
  struct stat info {};
  TROOP_ASSIGN_OR_RETURN(const std::string text,
                         ReadOwnFile(path_, 022, "chmod go-w", kAllowedBytesMax, &info));
  std::istringstream lines(text);
  std::string line;
  for (int number = 1; std::getline(lines, line); ++number) {
    std::istringstream words(line.substr(0, line.find('#')));
    std::string key_text, role_text, name, rest;
    words >> key_text >> role_text >> name >> rest;
    if (key_text.empty()) continue;
    const std::optional<PublicKey> key = ParseKeyText(key_text);
    const std::optional<Role> role = RoleOf(role_text);
    if (!key || !role || !IsKeyName(name) || !rest.empty()) {
      entries_.clear();
      return InvalidArgument("{}:{}: no \"<64 digits> <role> <name>\"; nobody comes in", path_,
                             number);
    }
    entries_[*key] = {*role, name};
  }
  return Status::Ok();
}

Result<std::shared_ptr<const KeyRing>> LoadKeys(const std::string& file) {
  auto ring = std::make_shared<KeyRing>();
  struct stat info {};
  Result<std::string> read = ReadOwnFile(
      file, 077, "if they had time to, make a new one (troop keygen --rotate), else: chmod 600",
      kKeyFileBytesMax, &info);
  if (read.status().code() == Code::kNotFound) {
    return NotFound("{}; troop keygen makes keys", read.status().message());
  }
  TROOP_ASSIGN_OR_RETURN(std::string text, std::move(read));
  ring->file = file;
  std::set<std::string> seen;
  std::istringstream lines(text);
  std::string line_text;
  for (int number = 1; std::getline(lines, line_text); ++number) {
    const std::optional<Line> line = ParseLine(line_text);
    const auto bad = [&] {
      return InvalidArgument("{}:{}: this is no line of a key file; take it from where it was made",
                             file, number);
    };
    if (!line) return bad();
    if (line->name.empty()) continue;
    const std::optional<PublicKey> key = ParseKeyText(line->value);
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
  explicit_bzero(text.data(), text.size());
  for (const char* name : {"role", "name", "public", "secret"}) {
    if (!seen.contains(name)) return InvalidArgument("{}: a key file has a line {}", file, name);
  }
  TROOP_ASSIGN_OR_RETURN(const PublicKey half, PublicHalf(ring->secret_key));
  if (half != ring->public_key) {
    return InvalidArgument("{}: its public and its secret key do not belong together", file);
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

// `allowed` with one more line. Of a name's lines only the newest stays beside it.
Status Allow(const std::string& folder, const NewKey& key, const PublicKey& public_key) {
  const std::string path = (fs::path(folder) / "allowed").string();
  std::string text =
      "# Public keys that may connect, and as what. No secrets. Who is taken out of here stays out "
      "at its next\n# connection; nothing needs to be started again.\n";
  struct stat info {};
  Result<std::string> before = ReadOwnFile(path, 022, "chmod go-w", kAllowedBytesMax, &info);
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
  while (std::ranges::count_if(lines, is_its) > 1) {
    lines.erase(std::ranges::find_if(lines, is_its));
  }
  text.clear();
  for (const std::string& line : lines) text += line;
  return WriteOwnFile(path, text + KeyText(public_key) + end, 0600);
}

// All key files of the folder know the coordinators that its own file knows.
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

Status MakeKey(const std::string& folder, const NewKey& key, std::vector<PublicKey> coordinators) {
  TROOP_ASSIGN_OR_RETURN(const CurvePair pair, MakeCurvePair());
  KeyRing ring{.file = (fs::path(folder) / (key.name + ".key")).string(),
               .role = key.role,
               .name = key.name,
               .public_key = pair.public_key,
               .secret_key = pair.secret_key,
               .coordinators = std::move(coordinators)};
  if (key.role != Role::kCoordinator) {
    // First: a line too many opens nothing.
    TROOP_RETURN_IF_ERROR(Allow(folder, key, ring.public_key));
    return WriteOwnFile(ring.file, KeyFileText(ring), 0600);
  }
  ring.coordinators.insert(ring.coordinators.begin(), ring.public_key);
  if (ring.coordinators.size() > 2) ring.coordinators.resize(2);
  TROOP_RETURN_IF_ERROR(WriteOwnFile(ring.file, KeyFileText(ring), 0600));
  return TellCoordinators(folder, ring.coordinators);
}

}  // namespace

Status MakeKeys(const std::string& folder, const std::vector<NewKey>& keys, bool rotate) {
  for (const NewKey& key : keys) {
    const bool named_as_role = key.role != Role::kCoordinator || key.name == "coordinator";
    if (!IsKeyName(key.name) || !named_as_role || !RoleOf(RoleName(key.role))) {
      return InvalidArgument(
          "{:?} can't name a key of the role {}: 1 to {} of a-z, 0-9, '-' and '_'; the "
          "coordinator's is called coordinator",
          key.name, RoleName(key.role), kNameMax);
    }
    const std::string path = (fs::path(folder) / (key.name + ".key")).string();
    std::error_code ignored;
    if (rotate || !fs::exists(path, ignored)) continue;
    return AlreadyExists(
        "{} is there; --rotate makes a new pair, and lets the old one in meanwhile", path);
  }
  if (mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST) {
    return InvalidArgument("{} can't be made: {}", folder, strerror(errno));
  }
  for (const NewKey& key : keys) {
    std::vector<PublicKey> coordinators;
    const auto ring = LoadKeys(KeyFileOf(folder, Role::kCoordinator));
    if (ring.ok()) {
      coordinators = (*ring)->coordinators;
    } else if (ring.status().code() != Code::kNotFound) {
      return ring.status();
    } else if (key.role != Role::kCoordinator) {
      return InvalidArgument("{} has no key of the coordinator; begin with: troop keygen {}",
                             folder, folder);
    }
    TROOP_RETURN_IF_ERROR(MakeKey(folder, key, std::move(coordinators)));
  }
  return Status::Ok();
}

}  // namespace troop
