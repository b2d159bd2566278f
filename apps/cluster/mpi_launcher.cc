// Runs under mpirun: rank 0 becomes the launcher, the other ranks become learners.
#include "apps/cluster/mpi_launcher.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <charconv>
#include <cstdio>
#include <fstream>
#include <initializer_list>
#include <sstream>

#include "apps/cluster/slurm_submit.h"
#include "core/storage/json.h"
#include "fleet/config/resolve_supervised.h"
#include "fleet/launcher/endpoints.h"
#include "fleet/launcher/exit_code.h"
#include "fleet/roles/external_roles.h"
#include "fleet/run/run_directory.h"
#include "net/security/keys.h"

namespace troop {
namespace {

// Time limit for rank 0 to write run.json; it may have to load a data set first.
constexpr Duration kPatience = Seconds(120);

// The first of these variables that is set.
// Empty if none is set; an empty variable counts as unset.
std::string FirstOf(std::initializer_list<const char*> names) {
  for (const char* name : names) {
    const char* const value = getenv(name);
    if (value != nullptr && *value != '\0') return value;
  }
  return "";
}

// Parses a non-negative integer.
Result<std::int32_t> NumberOf(const std::string& text, const char* what) {
  std::int32_t number = 0;
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error == std::errc() && stop == text.data() + text.size() && number >= 0) return number;
  return InvalidArgument("{:?} is not a valid {} of mpirun", text, what);
}

// The first non-loopback IPv4 address of an interface that is up; empty if there is none.
std::string OwnAddress() {
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) return "";
  std::string found;
  for (const ifaddrs* i = list; i != nullptr && found.empty(); i = i->ifa_next) {
    const bool up = (i->ifa_flags & IFF_UP) != 0 && (i->ifa_flags & IFF_LOOPBACK) == 0;
    if (!up || i->ifa_addr == nullptr || i->ifa_addr->sa_family != AF_INET) continue;
    char text[INET_ADDRSTRLEN] = {};
    inet_ntop(AF_INET, &reinterpret_cast<const sockaddr_in*>(i->ifa_addr)->sin_addr, text,
              sizeof text);
    found = text;
  }
  freeifaddrs(list);
  return found;
}

// Sets fleet.learners to the number of ranks, and the listen address if there are several machines.
// Only rank 0 listens; the other ranks just use whether fleet.listen is set.
Result<Config> ConfigFor(const Config& asked, const MpiPlace& place) {
  Config config = asked;
  TROOP_RETURN_IF_ERROR(ResolveSupervised(&config));
  // 1 is the default, so it is taken as unset.
  if (config.fleet.learners == 1) config.fleet.learners = place.size;
  if (config.fleet.learners != place.size) {
    return InvalidArgument(
        "mpirun started {} ranks, but fleet.learners is {}: each rank is one learner; make them "
        "equal",
        place.size, config.fleet.learners);
  }
  // Fewer ranks here than in total: some run on other machines.
  if (config.fleet.listen.empty() && place.here != place.size) {
    const std::string address = OwnAddress();
    if (address.empty()) {
      return FailedPrecondition(
          "ranks on other machines can't reach this one: it has no address; set fleet.listen");
    }
    config.fleet.listen = fmt::format("tcp://{}:0", address);
  }
  if (!config.fleet.listen.empty()) config.fleet.external_roles = {"learner"};
  return ParseConfig(ToToml(config), "the config for mpirun", {});  // checks it as a whole
}

// The coordinator's endpoint that rank 0 wrote in this launch; nullopt: not yet.
std::optional<std::string> CoordinatorOf(const Config& config, const MpiPlace& place) {
  std::ostringstream text;
  text << std::ifstream(RunPath(config) + "/run.json").rdbuf();
  // A missing file is an empty text, which does not parse.
  const Result<JsonValue> run = ParseJson(text.str());
  if (!run.ok()) return std::nullopt;
  const Result<std::string> launch = run->String("launch"), endpoint = run->String("coordinator");
  // A run.json of an earlier launch names a coordinator that no longer exists.
  if (!launch.ok() || !endpoint.ok() || *launch != place.launch) return std::nullopt;
  return *endpoint;
}

// Replaces this process by `troop role learner`. Returns only on failure.
Status BecomeLearner(const Config& config, const MpiPlace& place, const std::string& coordinator) {
  std::vector<std::string> words{"troop",
                                 "role",
                                 "learner",
                                 "--index",
                                 std::to_string(place.rank),
                                 "--coordinator",
                                 coordinator,
                                 "--heartbeat-timeout",
                                 fmt::format("{}", config.fleet.heartbeat_timeout_s)};
  if (!config.fleet.listen.empty()) {
    TROOP_ASSIGN_OR_RETURN(const std::string reach, LocalAddressTo(coordinator));
    words.insert(words.end(), {"--advertise-host", reach});
  }
  const std::string keys = config.security.keys;
  if (!keys.empty()) words.insert(words.end(), {"--key", KeyFileOf(keys, Role::kLearner)});
  if (config.security.insecure) words.push_back("--insecure");
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  setenv("OMP_NUM_THREADS", "1", 0);  // like the roles that rank 0 starts
  setenv("OMP_WAIT_POLICY", "passive", 0);
  execv("/proc/self/exe", argv.data());
  return ResourceExhausted("exec failed: {}", strerror(errno));
}

// Polls run.json of the shared run folder for rank 0's endpoint, then becomes a learner.
Status PlayRank(const Config& config, const MpiPlace& place) {
  const SystemClock clock;
  const Time end = clock.Now() + kPatience;
  for (;;) {
    if (const auto coordinator = CoordinatorOf(config, place)) {
      return BecomeLearner(config, place, *coordinator);
    }
    if (clock.Now() > end) {
      return Unavailable(
          "rank {}: rank 0 wrote no {}/run.json within {:.0f} s; log.dir must be a folder that all "
          "ranks share",
          place.rank, RunPath(config), ToSeconds(kPatience));
    }
    usleep(50'000);
  }
}

// Runs this rank: the launcher (rank 0) or a learner. Rank 0 creates keys for a run without any.
Result<int> Play(const Config& asked, TrainOptions options) {
  TROOP_ASSIGN_OR_RETURN(const MpiPlace place, FindMpiPlace());
  TROOP_ASSIGN_OR_RETURN(Config config, ConfigFor(asked, place));
  if (!config.fleet.listen.empty() && config.security.keys.empty() && !config.security.insecure) {
    // Outside the run folder, which rank 0 opens only later and may replace.
    const std::string folder = RunPath(config) + ".mpi/keys";
    if (place.rank == 0) TROOP_RETURN_IF_ERROR(GiveKeys(&config, folder));
    config.security.keys = folder;
  }
  // Other ranks exec the role; PlayRank returns only on failure.
  if (place.rank > 0) {
    TROOP_RETURN_IF_ERROR(PlayRank(config, place));
    return kExitFailed;
  }
  options.external_learners = true;
  options.launch = place.launch;
  options.plain = true;
  return Train(config, options);
}

}  // namespace

// Variables of Open MPI, PMIx, MPICH / Intel MPI (PMI) and Slurm, in this order.
Result<MpiPlace> FindMpiPlace() {
  const std::string rank =
      FirstOf({"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID"});
  const std::string size = FirstOf({"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_NTASKS"});
  const std::string here = FirstOf({"OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS"});
  if (rank.empty() || size.empty()) {
    return FailedPrecondition(
        "not under mpirun (no OMPI_COMM_WORLD_RANK, PMI_RANK or SLURM_PROCID); start it with: "
        "mpirun -n N troop train CONFIG --engine mpi");
  }
  MpiPlace place;
  TROOP_ASSIGN_OR_RETURN(place.rank, NumberOf(rank, "rank"));
  TROOP_ASSIGN_OR_RETURN(place.size, NumberOf(size, "size"));
  if (!here.empty()) {
    TROOP_ASSIGN_OR_RETURN(place.here, NumberOf(here, "number of ranks here"));
  }
  if (place.rank >= place.size) {
    return InvalidArgument("rank {} of {} ranks", place.rank, place.size);
  }
  // An id that all ranks of one mpirun have and that a later mpirun does not have.
  place.launch = FirstOf({"PMIX_NAMESPACE", "OMPI_MCA_orte_ess_jobid", "OMPI_MCA_ess_base_jobid",
                          "PMI_JOBID", "HYDI_CONTROL_FD", "SLURM_JOB_ID"});
  return place;
}

int TrainMpi(const Config& config, const TrainOptions& options) {
  const Result<int> code = Play(config, options);
  if (code.ok()) return *code;
  fmt::print(stderr, "troop: {}\n", code.status().message());
  return ExitCodeFor(code.status());
}

}  // namespace troop
