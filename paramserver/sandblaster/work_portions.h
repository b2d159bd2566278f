#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace troop {

// Numbered portions of work that workers take one after another, so that a fast worker takes more
// of them than a slow one (Dean et al. 2012, sec. 4.2). A worker continues after its last portion
// where possible, from its own start in the sequence, so that it can read ahead. When none is left,
// an idle worker takes a copy of an unfinished one: the first copy that is finished counts.
// Invariant: Finish returns true once for each portion. Deterministic. One owner thread.
class WorkPortions {
 public:
  struct Options {
    int portions = 0;
    int workers = 1;
    bool backups = true;
    int copies_max = 2;  // copies of a portion at any time, with the first one
  };
  explicit WorkPortions(const Options& options);

  // A portion for that worker; nullopt: there is none now. O(portions). REQUIRES: worker is from 0
  // to workers - 1.
  std::optional<int> Take(int worker);
  // Ends that worker's copy. Returns true if the portion counts, false if another copy has been
  // counted, or if the worker has no copy: it was dropped meanwhile.
  bool Finish(int worker, int portion);
  // Ends all copies of a dead worker; others can take these portions again.
  void Drop(int worker);
  // Counts a portion that was finished before this object existed.
  void MarkFinished(int portion);

  bool done() const { return finished_ == std::int64_t(portions_.size()); }
  std::int64_t finished() const { return finished_; }
  std::int64_t backups() const { return backups_; }  // copies taken besides the first ones

 private:
  struct Portion {
    bool finished = false;
    std::vector<int> holders;  // workers with a copy
  };
  Options options_;
  std::vector<Portion> portions_;
  std::vector<int> next_;  // [workers] portion after the last one
  std::int64_t finished_ = 0, backups_ = 0;
};

}  // namespace troop
