// Random fault schedules of the simulation.
#include "tests/simulation/faults.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "core/base/philox.h"

namespace troop::simulation {
namespace {

constexpr std::array kNames = {"kill",  "tear", "freeze", "replace", "block", "isolate",
                               "break", "slow", "disk",   "power",   "scale"};
// Probability of each kind in percent, in the order of Fault::Kind.
constexpr std::array kChances = {24u, 8u, 12u, 8u, 10u, 10u, 12u, 6u, 7u, 3u};

Fault::Kind DrawKind(Rng* rng) {
  std::uint32_t at = rng->Below(100);
  for (std::size_t i = 0; i < kChances.size(); ++i) {
    if (at < kChances[i]) return Fault::Kind(i);
    at -= kChances[i];
  }
  return Fault::kKill;
}

// Most are short; some exceed every timeout.
Duration DrawLength(Rng* rng) {
  const double seconds = rng->Below(4) == 0 ? rng->Uniform(10, 40) : rng->Uniform(0.05, 5);
  return Seconds(seconds);
}

}  // namespace

std::string ToString(const Fault& fault) {
  std::string text =
      fmt::format("{:9.3f} s {}", ToSeconds(fault.at - Time{}), kNames[std::size_t(fault.kind)]);
  if (!fault.role.empty()) text += " " + fault.role;
  if (!fault.other.empty()) text += " to " + fault.other;
  if (fault.kind == Fault::kScale) text += fmt::format(" to {}", fault.count);
  if (fault.lasts > Duration(0)) text += fmt::format(" for {:.3f} s", ToSeconds(fault.lasts));
  return text;
}

std::vector<Fault> MakeFaults(std::uint64_t seed, Duration length, int count,
                              const std::vector<std::string>& roles) {
  Rng rng({.run_seed = seed, .index = 1});
  std::vector<Fault> faults;
  const auto any = [&] { return roles[rng.Below(std::uint32_t(roles.size()))]; };
  for (int i = 0; i < count; ++i) {
    Fault fault{.kind = DrawKind(&rng), .at = Time{} + Seconds(rng.Uniform() * ToSeconds(length))};
    if (fault.kind >= Fault::kFreeze && fault.kind != Fault::kBreak &&
        fault.kind != Fault::kPower) {
      fault.lasts = DrawLength(&rng);
    }
    if (fault.kind < Fault::kDisk) fault.role = any();
    if (fault.kind >= Fault::kBlock && fault.kind <= Fault::kBreak) {
      fault.other = rng.Below(3) == 0 ? "coordinator" : any();
    }
    if (fault.role.empty() || fault.role != fault.other) faults.push_back(std::move(fault));
  }
  std::ranges::stable_sort(faults, {}, &Fault::at);
  return faults;
}

std::vector<Fault> MakeScales(std::uint64_t seed, Duration length, int count) {
  Rng rng({.run_seed = seed, .index = 4});
  std::vector<Fault> scales;
  Time at{};
  for (int i = 0; i < count; ++i) {
    const bool soon = i > 0 && rng.Below(4) == 0;
    at = soon ? at + Seconds(rng.Uniform(0, 3))
              : Time{} + Seconds(rng.Uniform() * ToSeconds(length));
    scales.push_back({.kind = Fault::kScale,
                      .at = at,
                      .role = "paramserver",
                      .count = 1 + std::int32_t(rng.Below(4))});
  }
  return scales;
}

std::vector<Fault> MakeFleetScales(std::uint64_t seed, Duration length, int count) {
  Rng rng({.run_seed = seed, .index = 5});
  constexpr std::pair<const char*, std::uint32_t> kRoles[] = {
      {"actors", 6}, {"replay", 4}, {"learners", 3}};
  std::vector<Fault> scales = MakeScales(seed, length, count);
  for (Fault& scale : scales) {
    const auto& [role, most] = kRoles[rng.Below(3)];
    scale.role = role;
    scale.count = 1 + std::int32_t(rng.Below(most));
  }
  return scales;
}

}  // namespace troop::simulation
