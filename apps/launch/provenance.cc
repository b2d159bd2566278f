// Implements the entries of provenance.jsonl.
#include "apps/launch/provenance.h"

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <sched.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string_view>
#include <utility>

#include "apps/launch/build_info.h"
#include "core/base/time.h"
#include "core/base/version.h"
#include "core/metrics/package_version.h"
#include "core/storage/sha256.h"
#include "envs/environment.h"
#include "envs/subprocess/subproc_vector_env.h"
#include "fleet/launcher/subprocess.h"
#include "fleet/run/task_info.h"
#include "kernels/onednn/onednn_layer.h"
#include "kernels/simd/cpu_features.h"
#include "net/transport/zmq_socket.h"
#include "replay/codec/codec_packages.h"

namespace troop {
namespace {

namespace fs = std::filesystem;

// A run that is resumed every minute for a month writes about 45,000 entries of 2 KiB; a file of
// this size is damaged or not Troop's. It is also the limit for what a start reads into memory.
constexpr std::size_t kFileBytesMax = std::size_t{128} << 20;

// The value of the first line that begins with `name`, without the separator (one of ":=\t ") and
// quotes; empty if there is none.
std::string FieldOf(const std::string& path, std::string_view name) {
  std::ifstream lines(path);
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with(name)) continue;
    const std::size_t begin = line.find_first_not_of(":=\t \"", name.size());
    const std::size_t end = line.find_last_not_of("\t \"");
    if (begin != std::string::npos && end >= begin) return line.substr(begin, end - begin + 1);
  }
  return "";
}

// The words of this process's command line. The kernel keeps them, so main need not pass them on.
std::vector<std::string> CommandWords() {
  std::vector<std::string> words;
  std::ifstream text("/proc/self/cmdline", std::ios::binary);
  for (std::string word; std::getline(text, word, '\0');) words.push_back(word);
  return words;
}

// The C library names the kernel, and /etc/os-release (systemd, os-release(5)) the distribution.
JsonObject DescribeSystem() {
  utsname system{};
  uname(&system);
  return JsonObject()
      .Add("name", system.sysname)
      .Add("distribution", FieldOf("/etc/os-release", "PRETTY_NAME"))
      .Add("kernel", system.release)
      .Add("kernel_build", system.version)
      .Add("machine", system.machine);
}

// The instruction sets that the choice of kernels depends on.
JsonArray InstructionSets() {
  const CpuFeatures has = ReadCpuFeatures();
  const std::pair<const char*, bool> all[] = {
      {"avx2", has.avx2},         {"fma", has.fma},
      {"bmi2", has.bmi2},         {"avx512f", has.avx512f},
      {"avx512bw", has.avx512bw}, {"avx512dq", has.avx512dq},
      {"avx512vl", has.avx512vl}, {"avx512_bf16", has.avx512bf16}};
  JsonArray names;
  for (const auto& [name, present] : all) {
    if (present) names.Add(name);
  }
  return names;
}

// `usable`: processors that this process may run on (taskset, a container's set of CPUs).
JsonObject DescribeProcessor() {
  cpu_set_t set;
  CPU_ZERO(&set);
  const bool known = sched_getaffinity(0, sizeof set, &set) == 0;
  JsonObject processor;
  processor.Add("model", FieldOf("/proc/cpuinfo", "model name"))
      .Add("count", std::int64_t(sysconf(_SC_NPROCESSORS_ONLN)));
  if (known) processor.Add("usable", CPU_COUNT(&set));
  return processor.Add("instruction_sets", InstructionSets())
      .Add("kernels", CpuLevelName(BestCpuLevel()))
      .Add("memory", FieldOf("/proc/meminfo", "MemTotal"));
}

// Reads the driver's files only: no GPU is opened in the launcher's process.
JsonArray DescribeGpus() {
  std::vector<std::string> models;
  std::error_code error;
  for (fs::directory_iterator it("/proc/driver/nvidia/gpus", error), end; !error && it != end;
       it.increment(error)) {
    models.push_back(FieldOf((it->path() / "information").string(), "Model"));
  }
  return JsonArray::Of(models);
}

// The libraries of each folder, then those of a build with GPU support.
JsonObject DescribePackages() {
  std::vector<PackageVersion> packages = CorePackages();
  std::ranges::copy(CodecPackages(), std::back_inserter(packages));
  packages.push_back(DnnlPackage());
  packages.push_back(ZmqPackage());
  JsonObject versions;
  for (const PackageVersion& package : packages) versions.Add(package.name, package.version);
  const std::string_view cuda = GetBuildInfo().cuda;
  if (cuda.empty()) return versions;
  return versions.Add("CUDA", cuda)
      .Add("NVIDIA driver", FieldOf("/proc/driver/nvidia/version", "NVRM version"));
}

// Supervised runs have data in place of an environment.
JsonObject DescribeEnvironment(const Config& config, const EnvSpec& env) {
  JsonObject described;
  if (IsSupervised(config)) {
    const bool images = ClassifiesImages(config.model.architecture);
    return described.Add(images ? "images" : "reviews", SourceOfExamples(config))
        .Add("identity", config.data_identity);
  }
  described.Add("id", config.env.id).Add("code", env.code);
  if (!config.env.plugin.empty()) return described.Add("plugin", config.env.plugin);
  if (!IsPythonEnvironment(config.env.id)) return described;
  return described.Add("python", PythonPackages(config.env.python, config.env.id));
}

// The library of own algorithms and layers, with its checksum; empty members: none is used.
JsonObject DescribeExtension(const Config& config) {
  const std::string& path = config.learner.library;
  if (path.empty()) return JsonObject().Add("library", "");
  const Result<std::string> code = PluginCode(path);
  return JsonObject().Add("library", path).Add("code", code.ok() ? *code : code.status().message());
}

// Prints the version of the interpreter and of each installed distribution among the arguments. It
// reads the packages' metadata and imports none of them.
constexpr char kVersionsScript[] =
    R"(import importlib.metadata, json, sys
found = {"python": sys.version.split()[0], "executable": sys.executable}
for name in sys.argv[1:]:
    try:
        found[name] = importlib.metadata.version(name)
    except Exception:
        pass
print(json.dumps(found)))";

// The top-level module of an id: "my_module" of "python:my_module.sub:make_env"; empty without one.
std::string ModuleOf(const std::string& id) {
  const std::size_t begin = id.find(':');
  if (begin == std::string::npos) return "";
  const std::string rest = id.substr(begin + 1);
  const std::size_t colon = rest.find(':');
  return colon == std::string::npos ? "" : rest.substr(0, std::min(colon, rest.find('.')));
}

}  // namespace

JsonObject PythonPackages(const std::string& python, const std::string& id) {
  // The time of a few file reads, with room for a slow network file system.
  constexpr Duration kPatience = Seconds(10);
  std::vector<std::string> words{python,      "-c",     kVersionsScript, "numpy",
                                 "gymnasium", "ale-py", "envpool",       "mujoco"};
  if (const std::string module = ModuleOf(id); !module.empty() && module != "gymnasium") {
    words.push_back(module);
  }
  const auto failed = [](std::string_view why) { return JsonObject().Add("error", why); };
  const Result<ProgramResult> ended = RunProgram(words, kPatience);
  if (!ended.ok()) return failed(ended.status().message());
  // The last line: an interpreter may print warnings first.
  std::string text = ended->output;
  while (text.ends_with('\n')) text.pop_back();
  text.erase(0, text.rfind('\n') + 1);
  const Result<JsonValue> found = ParseJson(text);
  if (ended->code != 0 || !found.ok()) {
    return failed(fmt::format("exit code {}: {}", ended->code, text.substr(0, 200)));
  }
  JsonObject versions;
  for (const auto& [name, value] : found->object) versions.Add(name, value.string);
  return versions;
}

// The whole value is replaced, since a table in it may have further members.
std::vector<std::string> WithoutSecrets(std::vector<std::string> words) {
  constexpr std::string_view kNames[] = {"token",  "secret",     "password",
                                         "passwd", "credential", "api_key",
                                         "apikey", "access_key", "private_key"};
  for (std::string& word : words) {
    std::string lower = word;
    std::ranges::transform(lower, lower.begin(), [](unsigned char c) { return std::tolower(c); });
    const std::size_t equals = word.find('=');
    const bool named = std::ranges::any_of(
        kNames, [&](std::string_view name) { return lower.find(name) != std::string::npos; });
    if (named && equals != std::string::npos) word.replace(equals + 1, std::string::npos, "***");
  }
  return words;
}

// Order of the members: what happened when, then the program, the machine and the run.
JsonObject DescribeProvenance(const ProvenanceSource& source) {
  const Config& config = *source.config;
  const BuildInfo build = GetBuildInfo();
  char host[256] = {};
  gethostname(host, sizeof host - 1);
  const double now_s = WallSeconds();
  std::error_code error;
  JsonObject entry;
  entry.Add("event", source.start == nullptr ? "start" : "resume")
      .Add("time", fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(std::time_t(now_s))))
      .Add("time_s", JsonText::Fixed(now_s, 3));
  if (source.start != nullptr) {
    entry.Add("checkpoint", source.start->checkpoint).Add("steps", source.start->steps);
  }
  return entry.Add("version", kTroopVersion)
      .Add("commit", build.commit)
      .Add("build", JsonObject().Add("compiler", build.compiler).Add("type", build.type))
      .Add("command", JsonArray::Of(WithoutSecrets(CommandWords())))
      .Add("folder", fs::current_path(error).string())
      .Add("process", std::int64_t(getpid()))
      .Add("host", host)
      .Add("system", DescribeSystem())
      .Add("processor", DescribeProcessor())
      .Add("gpus", DescribeGpus())
      .Add("packages", DescribePackages())
      .Add("environment", DescribeEnvironment(config, *source.env))
      .Add("extension", DescribeExtension(config))
      .Add("seed", config.seed)
      .Add("config_sha256", Sha256Hex(ToToml(config)));
}

// The file is small and rarely written, so it is replaced as a whole: an append that a crash cuts
// off would join the next line.
Status AppendProvenance(Storage* run, const JsonObject& entry) {
  std::string text;
  if (run->Exists(kProvenanceFile)) {
    TROOP_ASSIGN_OR_RETURN(const Buffer old, run->Read(kProvenanceFile, kFileBytesMax));
    text = old.text();
    if (!text.empty() && !text.ends_with('\n')) text += '\n';
  }
  return run->WriteAtomic(kProvenanceFile, text + entry.str() + "\n");
}

}  // namespace troop
