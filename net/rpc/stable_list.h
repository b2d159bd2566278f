#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

namespace troop {

// A list of the channels or servers of one Network, in the order of addition. Their owners may
// destroy them at any time, also during a visit.
template <class T>
class StableList {
 public:
  void Add(T* item) { items_.push_back(item); }
  void Remove(T* item) {
    std::replace(items_.begin(), items_.end(), item, static_cast<T*>(nullptr));
  }
  // Visits all items. Items removed during the visit are skipped; added ones are visited too.
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
