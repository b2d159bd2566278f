// Reads and writes the decisions of successive halving.
#include "apps/sweep/halving_journal.h"

#include <algorithm>
#include <limits>
#include <string_view>
#include <utility>

#include "core/storage/json.h"

namespace troop {
namespace {

constexpr std::size_t kFileBytesMax = 64 << 20;  // above two lines per rung of kSweepRunsMax trials

// The first line, which is compared as text.
std::string SettingsLine(const HalvingSettings& s) {
  return JsonObject()
      .Add("resource", EnumName(s.resource))
      .Add("min_resource", s.min_resource)
      .Add("max_resource", s.max_resource)
      .Add("reduction_factor", s.reduction_factor)
      .Add("early_stopping_rate", s.early_stopping_rate)
      .str();
}

// Applies the lines of a journal one by one.
class Replay {
 public:
  Replay(HalvingJournal::History* history, const HalvingSettings& settings,
         std::span<const std::string> names)
      : history_(history), settings_(settings), names_(names) {}

  // Errors: see HalvingJournal::Read; messages name the line.
  Status Apply(std::string_view line) {
    ++number_;
    if (number_ == 1) return CheckSettings(line);
    const Result<JsonValue> value = ParseJson(line);
    if (!value.ok()) return Damaged("it is not JSON");
    const bool begins = value->Find("begin") != nullptr;
    const Result<std::string> name = value->String(begins ? "begin" : "end");
    const Result<std::int64_t> trial = value->Integer("trial"), rung = value->Integer("rung");
    if (!name.ok() || !trial.ok() || !rung.ok() || *trial < 0 || *rung < 0) {
      return Damaged("it is neither a begin nor an end");
    }
    TROOP_RETURN_IF_ERROR(CheckTrial(std::size_t(*trial), *name));
    const SuccessiveHalving::Job job{std::size_t(*trial), std::size_t(*rung)};
    return begins ? Begin(job) : End(job, *value, line);
  }

 private:
  Status Damaged(std::string_view why) const {
    return DataLoss("{} line {} is damaged: {}; restart all runs with --overwrite",
                    HalvingJournal::kFile, number_, why);
  }
  Status CheckSettings(std::string_view line) const {
    if (line == SettingsLine(settings_)) return Status::Ok();
    return AlreadyExists(
        "the folder holds a sweep with other settings of --asha (there {}, now {}); choose another "
        "folder (name=...), or restart all runs with --overwrite",
        line, SettingsLine(settings_));
  }
  // The number of trials may grow, but the trials that were there must stay.
  Status CheckTrial(std::size_t trial, const std::string& name) const {
    if (trial < names_.size() && names_[trial] == name) return Status::Ok();
    return AlreadyExists(
        "{} line {}: trial {} is {}, but in this command {}; give the same values and at least as "
        "many trials, choose another folder (name=...), or restart all runs with --overwrite",
        HalvingJournal::kFile, number_, trial, name,
        trial < names_.size() ? "it is " + names_[trial] : "there is none");
  }
  // The decision is made again: a line that was edited, or an error in the rule, is found here.
  Status Begin(const SuccessiveHalving::Job& job) {
    const auto next = history_->halving.NextJob();
    if (next != job) return Damaged("this job does not follow from the lines before it");
    history_->halving.Begin(job);
    return Status::Ok();
  }
  // A failed job has no score, a completed one must have it.
  Status End(const SuccessiveHalving::Job& job, const JsonValue& value, std::string_view line) {
    if (std::ranges::count(history_->halving.open(), job) == 0) {
      return Damaged("it ends a job that has not begun");
    }
    const Result<std::string> status = value.String("status");
    std::optional<SweepScore> score = ParseScore(line);
    if (!status.ok() || (*status == "ok") != score.has_value()) return Damaged("no score");
    history_->End(job, std::move(score));
    return Status::Ok();
  }

  HalvingJournal::History* const history_;
  const HalvingSettings& settings_;
  const std::span<const std::string> names_;
  std::size_t number_ = 0;
};

}  // namespace

// A score is a number (ParseScore), so a trial without one has failed.
void HalvingJournal::History::End(const SuccessiveHalving::Job& job,
                                  std::optional<SweepScore> score) {
  halving.End(job, score ? std::optional(score->mean) : std::nullopt);
  std::optional<SweepScore>& kept = scores[job.trial];
  if (score) {
    kept = std::move(score);
    kept->rung = job.rung;
    return;
  }
  if (!kept) kept.emplace().mean = std::numeric_limits<double>::quiet_NaN();
  kept->failed = true;
}

// A crash can cut off only the last line, since lines are appended one by one.
Result<HalvingJournal::History> HalvingJournal::Read(Storage* folder,
                                                     const HalvingSettings& settings,
                                                     std::span<const std::string> names) {
  History history{.halving = SuccessiveHalving(settings, names.size()),
                  .scores = SweepScores(names.size())};
  if (!folder->Exists(kFile)) return history;
  TROOP_ASSIGN_OR_RETURN(const Buffer bytes, folder->Read(kFile, kFileBytesMax));
  std::string_view text = bytes.text();
  Replay replay(&history, settings, names);
  for (std::size_t end; (end = text.find('\n')) != text.npos; text.remove_prefix(end + 1)) {
    TROOP_RETURN_IF_ERROR(replay.Apply(text.substr(0, end)));
    history.intact_bytes += end + 1;
  }
  return history;
}

// The cut-off line is removed first, so that the next line does not become its end.
Result<HalvingJournal> HalvingJournal::Open(Storage* folder, const HalvingSettings& settings,
                                            std::vector<std::string> names,
                                            std::size_t intact_bytes) {
  if (folder->Exists(kFile)) TROOP_RETURN_IF_ERROR(folder->Truncate(kFile, intact_bytes));
  TROOP_ASSIGN_OR_RETURN(auto file, folder->OpenAppend(kFile));
  HalvingJournal journal(std::move(file), std::move(names));
  if (intact_bytes == 0) TROOP_RETURN_IF_ERROR(journal.Append(SettingsLine(settings)));
  return journal;
}

// Durable before it takes effect: a decision that was acted on is never lost.
Status HalvingJournal::Append(const std::string& line) {
  TROOP_RETURN_IF_ERROR(file_->Append(line + "\n"));
  return file_->Sync();
}

// The members that both kinds of lines have.
JsonObject HalvingJournal::LineOf(const char* event, const SuccessiveHalving::Job& job) const {
  return std::move(JsonObject()
                       .Add(event, names_[job.trial])
                       .Add("trial", std::int64_t(job.trial))
                       .Add("rung", std::int64_t(job.rung)));
}

Status HalvingJournal::Begin(const SuccessiveHalving::Job& job) {
  return Append(LineOf("begin", job).str());
}

// The members of result.json, so that ParseScore reads them.
Status HalvingJournal::End(const SuccessiveHalving::Job& job, const SweepScore& score) {
  return Append(LineOf("end", job)
                    .Add("status", "ok")
                    .Add("final_return_mean", score.mean)
                    .Add("final_return_std", score.std)
                    .Add("final_return_min", score.low)
                    .Add("final_return_max", score.high)
                    .Add("final_episodes", score.episodes)
                    .Add("steps", score.steps)
                    .Add("updates", score.updates)
                    .Add("wall_s", score.wall_s)
                    .Add("version", score.version)
                    .str());
}

// The reason is for readers; a later call decides by the status alone.
Status HalvingJournal::EndFailed(const SuccessiveHalving::Job& job, const std::string& reason) {
  return Append(LineOf("end", job).Add("status", "failed").Add("reason", reason).str());
}

}  // namespace troop
