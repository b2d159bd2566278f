// Implements the numbers that are never reused, reserved in blocks on disk.
#include "fleet/coordinator/incarnation_sequence.h"

#include <charconv>
#include <string>

namespace troop {
namespace {

// Holds the next unreserved incarnation in decimal; no number is used twice, also after a crash.
constexpr char kIncarnationFile[] = "incarnation";
constexpr std::size_t kIncarnationBytesMax = 64;
// Streams and versions keep incarnations in 32 bits, evaluations in 23.
constexpr std::uint64_t kIncarnationMax = (1u << 23) - 1;
// Numbers reserved per disk write, so that a starting fleet waits for few of them.
constexpr std::uint64_t kIncarnationsAhead = 32;

}  // namespace

Result<std::uint64_t> IncarnationSequence::Take() {
  if (next_ >= kept_) {
    const std::uint64_t kept = next_ + kIncarnationsAhead;
    TROOP_RETURN_IF_ERROR(run_->WriteAtomic(kIncarnationFile, std::to_string(kept)));
    kept_ = kept;
  }
  return next_++;
}

// A run that has issued numbers has the file, so a missing one is damage there.
Status IncarnationSequence::Load(bool fresh) {
  if (fresh && !run_->Exists(kIncarnationFile)) return Status::Ok();
  const Result<Buffer> text = run_->Read(kIncarnationFile, kIncarnationBytesMax);
  const Code read = text.status().code();
  const bool damaged = read == Code::kResourceExhausted || read == Code::kNotFound;
  if (!text.ok() && !damaged) return text.status();
  std::string_view digits = text.ok() ? text->text() : std::string_view();
  while (!digits.empty() && digits.back() == '\n') digits.remove_suffix(1);
  const char* const end = digits.data() + digits.size();
  const auto [stop, error] = std::from_chars(digits.data(), end, next_);
  if (error != std::errc() || stop != end || next_ == 0 || next_ > kIncarnationMax) {
    return DataLoss(
        "the file {} in the run folder is damaged (it holds the next incarnation number); write a "
        "number there that is larger than every incarnation in the logs",
        kIncarnationFile);
  }
  return Status::Ok();
}

}  // namespace troop
