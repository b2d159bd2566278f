#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/status.h"
#include "net/message.h"

namespace troop {

// A public key of CurveZMQ (rfc.zeromq.org/spec/26): Curve25519, 32 bytes. Files and endpoints
// contain it as 64 hexadecimal digits.
using PublicKey = std::array<std::byte, 32>;
std::string KeyText(const PublicKey& key);
std::optional<PublicKey> ParseKeyText(std::string_view text);  // nullopt unless 64 digits

// A secret key, wiped by the destructor and never printed; only key files contain it as text.
class SecretKey {
 public:
  SecretKey() = default;
  explicit SecretKey(const std::array<std::byte, 32>& bytes) : bytes_(bytes) {}
  SecretKey(const SecretKey&) = default;
  SecretKey& operator=(const SecretKey&) = default;
  ~SecretKey();
  const std::array<std::byte, 32>& bytes() const { return bytes_; }

 private:
  std::array<std::byte, 32> bytes_{};
};

// The public keys that may connect, and their roles. A text file with one "<64 digits> <role>
// <name>" per line; `#` begins a comment. It contains no secrets, but write access to it controls
// admission. The file is read again when it has changed, so keys can be added and removed while
// servers run. A file that is unreadable or has an invalid line admits no key. Thread safe.
class AllowList {
 public:
  struct Entry {
    Role role = Role::kNone;
    std::string name;
  };
  explicit AllowList(std::string path) : path_(std::move(path)) {}
  // Looks up a key. Errors: kNotFound: no such key; else the reason why the file is unusable.
  Result<Entry> Find(const PublicKey& key);
  const std::string& path() const { return path_; }

 private:
  struct Stamp {  // identifies the version of the file that was read
    std::uint64_t device = 0, inode = 0, bytes = 0;
    std::int64_t changed_ns = -1;
    bool operator==(const Stamp&) const = default;
  };
  Status ReadAgain();

  const std::string path_;
  // Guards the members below.
  std::mutex mutex_;
  Stamp stamp_;
  Status status_;
  std::map<PublicKey, Entry> entries_;
};

// The keys of a process: its own pair and the trusted coordinators. Format of a key file:
//   role = "actor"
//   name = "actor"            human-readable
//   public = "<64 digits>"
//   secret = "<64 digits>"
//   coordinator = "<64 digits>"   of the coordinator; repeated during rotation
//
// Servers also read the file `allowed` next to it.
struct KeyRing {
  std::string file;
  Role role = Role::kNone;
  std::string name;
  PublicKey public_key{};
  SecretKey secret_key;
  std::vector<PublicKey> coordinators;
  std::shared_ptr<AllowList> allowed;
  std::string domain;  // ZAP domain, unique among the rings of a process
};
// Loads a key file. Errors: kNotFound; kInvalidArgument if other users can read it, it has another
// owner, is malformed, or its keys do not match. Each message has a remedy.
Result<std::shared_ptr<const KeyRing>> LoadKeys(const std::string& file);
// Returns the path of the key file of a role in a folder of keys.
std::string KeyFileOf(const std::string& folder, Role role);

// A key pair to create.
struct NewKey {
  Role role = Role::kNone;
  std::string name;  // name of its file: [a-z0-9_-], at most 64 characters
};
// Returns one key per role, named like the role; the coordinator first.
std::vector<NewKey> KeysOfAllRoles();
// Creates new key pairs: a file <name>.key each (mode 0600), and a line in the folder's `allowed`.
// With `rotate` a key may exist already: its previous public key stays allowed until the next
// rotation, and all key files of the folder list the previous and the new coordinator key. Errors:
// kAlreadyExists without `rotate`; kInvalidArgument: an invalid name, or the coordinator has no key
// yet.
Status MakeKeys(const std::string& folder, const std::vector<NewKey>& keys, bool rotate);

}  // namespace troop
