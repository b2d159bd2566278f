// Hostile text against the config. An input is a file, perhaps followed by a line of three dashes
// and by overrides, a line each. What is accepted is in range and writes out as text that reads
// back as the same config; what is refused says why, in lines of text that name their place.
#include <algorithm>
#include <string>
#include <vector>

#include "core/base/check.h"
#include "fleet/config/config.h"
#include "fleet/config/config_keys.h"
#include "fleet/config/config_migration.h"
#include "replay/service/options_from_config.h"
#include "tests/fuzz/fuzz.h"

namespace troop {
namespace {

constexpr std::string_view kDashes = "\n---\n";

std::vector<std::string> Lines(std::string_view text) {
  std::vector<std::string> lines;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    lines.emplace_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return lines;
}

void CheckAccepted(const Config& config) {
  TROOP_CHECK(FindConflicts(config).empty(), "conflicts were accepted");
  const std::string text = ToToml(config);
  const Result<Config> again = ParseConfig(text, "again", {});
  TROOP_CHECK(again.ok(), "{}\n{}", again.status().ToString(), text);
  TROOP_CHECK(*again == config, "another config came back:\n{}", text);
  TROOP_CHECK(ToToml(*again) == text, "the text is not the same");
  // ReplayTableFor() may return any error, but never an empty table.
  for (const ReplayTableConfig& table : config.replay.tables) {
    const auto options = ReplayTableFor(table, config.seed, config.replay.shards);
    if (options.ok()) TROOP_CHECK(options->table.capacity_items >= 1, "a table of nothing");
  }
}

// Each problem is a readable line, and names where it is; the last may count the rest.
void CheckRefused(const std::string& message) {
  TROOP_CHECK(!message.empty(), "no reason is given");
  const std::vector<std::string> lines = Lines(message);
  for (const std::string& line : lines) {
    const bool rest = &line == &lines.back() && lines.size() > 1 && line.starts_with("and ") &&
                      line.ends_with(" more like these");
    TROOP_CHECK(rest || line.starts_with("fuzz.toml:") || line.starts_with("command line: "),
                "no place: {}", line);
    for (const char c : line) TROOP_CHECK(static_cast<unsigned char>(c) >= 0x20, "byte {}", int(c));
  }
}

}  // namespace

void VisitSeeds(const SeedWriter& write) {
  write("defaults", ToToml(Config()));
  write("layers",
        "seed = 3\n[network]\nlayers = [{type = \"conv2d\", filters = 32, kernel = 8, stride = 4},"
        " {type = \"linear\", units = 512}]\ndueling_units = 256\n");
  write("tables",
        "[[replay.tables]]\nname = \"main\"\nobservation = \"u8[84, 84]\"\naction = \"i32[]\"\n"
        "view = \"sequence\"\nlength = 80\nburn_in = 40\nstate = \"f32[2, 512]\"\n"
        "[[replay.tables]]\nname = \"other\"\nsampler = \"uniform\"\nremover = \"fifo\"\n");
  write("overrides",
        "[replay]\nalpha = 0.5\n---\nreplay.alpha=0.7\nenv.id=Breakout\nactor.envs=1e1\n"
        "network.layers=[{type=\"linear\",units=8}]\n");
  write("unknown", "[replay]\nalfa = 1\n[repaly]\nbeta = 2\n---\nnonsense\nx=\n=x\na.b.c=1\n");
  write("wrong",
        "version = 2\nname = 7\n[replay]\nalpha = \"x\"\nbeta = nan\ncapacity_items = 1.5\n"
        "min_items = -1\ncompression = \"zip\"\n[network]\nlayers = [1, {units = 4}, {type = "
        "\"rnn\"}]\n");
  write("lines_in_keys", "\"a\\nb\" = 1\n[\"replay\\u001b[2J\"]\nx = 1\n---\nc\td=1\n");
  write("odd", "a.b = 1979-05-27T07:32:00Z\nc = '''x\ny'''\nd = \"\\u00e9\\n\"\n[e.f]\n[[g]]\n");
}

}  // namespace troop

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace troop;
  FuzzInput input(data, size);
  const std::string text = StringOf(input.TakeRest());
  const std::size_t dashes = text.find(kDashes);
  const std::string_view file = std::string_view(text).substr(0, std::min(dashes, text.size()));
  std::vector<std::string> overrides;
  if (dashes != text.npos) {
    overrides = Lines(std::string_view(text).substr(dashes + kDashes.size()));
  }
  // A migrated text has nothing left to migrate.
  if (const auto migrated = MigrateConfig(file, "fuzz.toml"); migrated.ok()) {
    const auto again = MigrateConfig(migrated->text, "fuzz.toml");
    TROOP_CHECK(again.ok() && again->text == migrated->text, "{}", migrated->text);
  }
  const Result<Config> config = ParseConfig(file, "fuzz.toml", overrides);
  if (config.ok()) {
    CheckAccepted(*config);
    return 0;
  }
  TROOP_CHECK(config.status().code() == Code::kInvalidArgument, "{}", config.status().ToString());
  CheckRefused(config.status().message());
  return 0;
}
