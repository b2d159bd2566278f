#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

namespace troop {

// The channels or servers of one Network, which their owners may destroy at any time, also while
// they are visited. In the order they were added.
template <class T>
class Roster {
 public:
  void Add(T* item) { items_.push_back(item); }
  void Remove(T* item) {
    std::replace(items_.begin(), items_.end(), item, static_cast<T*>(nullptr));
  }
  template <class Visit>
  void ForEach(const Visit& visit) {
    for (std::size_t i = 0; i < items_.size(); ++i) {
      if (items_[i] != nullptr) visit(*items_[i]);
    }
    std::erase(items_, nullptr);
  }

 private:
  std::vector<T*> items_;
};

}  // namespace troop
