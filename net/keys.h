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

#include "core/status.h"
#include "net/message.h"

namespace troop {

// Keys of CurveZMQ (rfc.zeromq.org/spec/26): Curve25519, 32 bytes. In files and endpoints as 64
// hexadecimal digits.
using PublicKey = std::array<std::byte, 32>;
std::string KeyText(const PublicKey& key);
std::optional<PublicKey> ParseKeyText(std::string_view text);  // nullopt: not 64 digits

// A secret half: wiped when it goes, never printed; only key files hold it as text.
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

// Public keys that may connect, and as what: a text file, "<64 digits> <role> <name>" a line, `#`
// begins a comment. Nothing in it is secret; who may write it decides who comes in. It is read
// again when it has changed, so a key is taken away, or added, while servers run. A file that can't
// be read or has a bad line lets nobody in, until it is mended. Thread safe.
class AllowList {
 public:
  struct Entry {
    Role role = Role::kNone;
    std::string name;
  };
  explicit AllowList(std::string path) : path_(std::move(path)) {}
  // Errors: kNotFound: no such key; else why the file can't be used.
  Result<Entry> Find(const PublicKey& key);
  const std::string& path() const { return path_; }

 private:
  struct Stamp {  // of the file as it was read
    std::uint64_t device = 0, inode = 0, bytes = 0;
    std::int64_t changed_ns = -1;
    bool operator==(const Stamp&) const = default;
  };
  Status ReadAgain();

  const std::string path_;
  std::mutex mutex_;
  Stamp stamp_;
  Status status_;
  std::map<PublicKey, Entry> entries_;
};

// What a process needs to talk with keys: its own pair, and whom it trusts. Of a key file:
//   role = "actor"
//   name = "actor"            for people
//   public = "<64 digits>"
//   secret = "<64 digits>"
//   coordinator = "<64 digits>"   of the coordinator; may come several times (rotation)
// Servers also look into the file `allowed` beside it.
struct KeyRing {
  std::string file;
  Role role = Role::kNone;
  std::string name;
  PublicKey public_key{};
  SecretKey secret_key;
  std::vector<PublicKey> coordinators;
  std::shared_ptr<AllowList> allowed;
  std::string domain;  // of ZAP: tells the rings of one process apart
};
// Errors: kNotFound; kInvalidArgument: others than its owner can read it, it belongs to somebody
// else, is damaged, or its halves don't belong together. Each says what to do.
Result<std::shared_ptr<const KeyRing>> LoadKeys(const std::string& file);
// The key file of a role in a folder of keys.
std::string KeyFileOf(const std::string& folder, Role role);

struct NewKey {
  Role role = Role::kNone;
  std::string name;  // of its file: [a-z0-9_-], at most 64
};
// One for each role, named as it; the coordinator first.
std::vector<NewKey> KeysOfAllRoles();
// Makes new pairs: a file <name>.key each (0600), and a line in the folder's `allowed`. With
// `rotate` a name may be there: its public key before stays allowed until the next rotation, and
// all key files of the folder know the coordinator's key before and the new one. Errors:
// kAlreadyExists without `rotate`; kInvalidArgument: a name, or no coordinator's key is there yet.
Status MakeKeys(const std::string& folder, const std::vector<NewKey>& keys, bool rotate);

}  // namespace troop
