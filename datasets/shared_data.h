#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <string>

#include "core/base/status.h"

namespace troop {

// Finds a data set that another owner in this process has in memory: an algorithm finds that of its
// role, a copy of an algorithm that of the first one. Holds no data itself. Thread safe.
template <class T>
class SharedData {
 public:
  using Loader = std::function<Result<std::shared_ptr<const T>>()>;

  // Returns the data of the last call if its key was the same and some owner still holds them, else
  // those of `load`. Callers wait for each other, so that two of them never load the same data. An
  // empty key is that of no data. Errors: those of `load`.
  Result<std::shared_ptr<const T>> Get(const std::string& key, const Loader& load) {
    if (key.empty()) return load();
    const std::scoped_lock lock(mutex_);
    if (std::shared_ptr<const T> held = held_.lock(); held != nullptr && key == key_) return held;
    Result<std::shared_ptr<const T>> loaded = load();
    if (!loaded.ok()) return loaded;
    key_ = key;
    held_ = *loaded;
    return loaded;
  }

 private:
  std::mutex mutex_;
  std::string key_;  // guarded by mutex_, as the next
  std::weak_ptr<const T> held_;
};

}  // namespace troop
