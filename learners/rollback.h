#pragma once

#include <cstdint>
#include <string>

#include "core/config.h"
#include "core/spec.h"
#include "core/storage.h"
#include "learners/algorithm.h"

namespace troop {

// Decides what bad numbers lead to: an update is skipped; after kSkippedMax in a row, or at once
// when a weight is bad, the learner goes back to the last good version; when that has not helped
// kRollbacksMax times, it gives up. kGoodMin good updates begin anew.
class RollbackRule {
 public:
  static constexpr int kSkippedMax = 100;
  static constexpr int kRollbacksMax = 3;
  static constexpr int kGoodMin = 1000;

  void CountGood() {
    skipped_row_ = 0;
    if (++good_ >= kGoodMin) rollbacks_row_ = 0;
  }
  // True: it is time to go back.
  bool CountSkipped() { return ++skipped_row_ >= kSkippedMax; }
  // False: too often already.
  bool GoBack() {
    skipped_row_ = good_ = 0;
    return ++rollbacks_row_ <= kRollbacksMax;
  }

 private:
  int skipped_row_ = 0;    // updates, since the last good one
  int good_ = 0;           // updates, since the last roll-back
  int rollbacks_row_ = 0;  // without kGoodMin good updates after one of them
};

// Puts `algorithm` back to the newest whole checkpoint of which all numbers are finite; where there
// is none, to the weights of a new run. Returns what it went back to, in words. Blocks on the disk.
Result<std::string> RollBack(Algorithm* algorithm, Storage* run, const Config& config,
                             const EnvSpec& env);

}  // namespace troop
