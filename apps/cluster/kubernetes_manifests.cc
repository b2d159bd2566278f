// Kubernetes manifests of a run: groups roles into Jobs and writes the objects as YAML.
#include "apps/cluster/kubernetes_manifests.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <cmath>
#include <cstdio>

#include "apps/cluster/kubernetes_pod.h"
#include "fleet/config/config_keys.h"
#include "fleet/launcher/exit_code.h"
#include "fleet/run/run_directory.h"
#include "fleet/serial/serial_fleet.h"
#include "net/security/keys.h"

namespace troop {
namespace {

constexpr std::array kPodRoles{Role::kReplay, Role::kParamServer, Role::kLearner,
                               Role::kActor,  Role::kEvaluator,   Role::kInference};
// How long pods wait for a missing coordinator: its image may have to be pulled, and its volume to
// be provisioned.
constexpr std::int64_t kJoinPatienceS = 600;
// Folder of the manifests inside the run folder.
constexpr char kFolder[] = "kubernetes";

// Resources of one process of a role.
struct ResourceShare {
  double cores = 0;
  std::string memory;
};
// The configured CPU and memory; the default case is the coordinator.
ResourceShare ResourceShareOf(const Config& config, Role role) {
  const auto& k = config.kubernetes;
  switch (role) {
    case Role::kReplay:
      return {k.replay_cpu, k.replay_memory};
    case Role::kParamServer:
      return {k.paramserver_cpu, k.paramserver_memory};
    case Role::kLearner:
      return {k.learner_cpu, k.learner_memory};
    case Role::kActor:
      return {k.actor_cpu, k.actor_memory};
    case Role::kEvaluator:
      return {k.evaluator_cpu, k.evaluator_memory};
    case Role::kInference:
      return {k.inference_cpu, k.inference_memory};
    default:
      return {k.coordinator_cpu, k.coordinator_memory};
  }
}

// Parses a quantity like "4Gi"; REQUIRES: a validated config.
std::int64_t MemoryMib(const std::string& quantity) {
  std::int64_t number = 0;
  std::from_chars(quantity.data(), quantity.data() + quantity.size(), number);
  // The letter before the "i" of Ki, Mi, Gi or Ti; Ki is rounded up.
  switch (quantity[quantity.size() - 2]) {
    case 'K':
      return (number + 1023) / 1024;
    case 'M':
      return number;
    case 'G':
      return number * 1024;
    default:
      return number * 1024 * 1024;
  }
}

// Adds the resources of `processes` processes of a role to a pod.
void Grant(const Config& config, Role role, std::int64_t processes, PodGroup* group) {
  const ResourceShare share = ResourceShareOf(config, role);
  group->cores += share.cores * double(processes);
  group->memory_mib += MemoryMib(share.memory) * processes;
  if (role == Role::kLearner) group->gpus = config.kubernetes.learner_gpus;
}

// Number of processes of a role, local and external.
std::int64_t CountOf(Config config, Role role) {
  config.fleet.external_roles.clear();
  const auto roles = RolesOf(config);
  return std::ranges::count(roles, role, &FleetRole::role);
}

// Without keys the fleet's connections are neither encrypted nor authenticated.
bool HasKeys(const Config& config) { return !config.security.keys.empty(); }

// The run's name as a DNS label. Pod names "<run>-paramserver-<index>" are limited to 63
// characters, hence 40 for the run.
Result<std::string> RunName(const Config& config) {
  std::string name;
  for (const char c : config.name) {
    name += c == '_' || c == '.' ? '-' : char(std::tolower(static_cast<unsigned char>(c)));
  }
  constexpr std::size_t kNameMax = 40;
  if (name.size() <= kNameMax && std::isalpha(static_cast<unsigned char>(name.front())) &&
      name.back() != '-') {
    return name;
  }
  return InvalidArgument(
      "name is \"{}\", must be a valid Service name: begin it with a letter, end it with a letter "
      "or a digit, and use at most {} characters",
      config.name, kNameMax);
}

// The roles that run in separate pods.
Result<std::vector<Role>> RolesElsewhere(const Config& config) {
  // By default the actors run elsewhere: their number grows most, and they need no volume.
  if (config.fleet.external_roles.empty()) {
    return HasActors(config) ? std::vector{Role::kActor} : std::vector<Role>();
  }
  std::vector<Role> roles;
  for (const std::string& name : config.fleet.external_roles) {
    const auto* const role =
        std::ranges::find_if(kPodRoles, [&](Role r) { return RoleName(r) == name; });
    if (role == kPodRoles.end()) {
      return InvalidArgument("fleet.external_roles: {} is not a role that can join",
                             TomlString(name));
    }
    if (CountOf(config, *role) > 0 && std::ranges::count(roles, *role) == 0) roles.push_back(*role);
  }
  return roles;
}

// The coordinator's pod: `troop train` with all roles that have no separate pods.
PodGroup CoordinatorGroup(const Config& config, const std::string& run,
                          const std::vector<Role>& elsewhere) {
  const std::string folder = fmt::format("{}/{}", kRunsAt, config.name);
  PodGroup group{.run = run,
                 .name = std::string(RoleName(Role::kCoordinator)),
                 .serves = true,
                 .writes = true,
                 .start_patience_s = kJoinPatienceS};
  // The tool's key is for `troop status`, which the probes run.
  if (HasKeys(config)) group.keys = {Role::kCoordinator, Role::kTool};
  Grant(config, Role::kCoordinator, 1, &group);
  for (const Role role : kPodRoles) {
    const std::int64_t processes = CountOf(config, role);
    if (processes == 0 || std::ranges::count(elsewhere, role) > 0) continue;
    if (HasKeys(config)) group.keys.push_back(role);
    Grant(config, role, processes, &group);
  }
  // --continue resumes after a restart of the pod, from the newest checkpoint on the volume.
  group.command = {"train", "/config/config.toml", "--plain", "--continue",
                   fmt::format("fleet.listen=tcp://$(POD_IP):{}", config.kubernetes.port)};
  if (!HasKeys(config)) group.command.push_back("--insecure");
  // A coordinator that answers is started, ready and alive.
  group.started = group.ready = group.alive = {"troop", "status", folder};
  return group;
}

// The pods of one external role: `troop join`, with readiness and liveness by `troop health`.
PodGroup RoleGroup(const Config& config, const std::string& run, Role role) {
  const bool actors = role == Role::kActor;
  // Only actors share a pod; any other role has one pod per process.
  const std::int64_t processes = actors ? config.kubernetes.actors_per_pod : 1;
  PodGroup group{
      .run = run,
      .name = std::string(RoleName(role)),
      .pods = CountOf(config, role) / processes,
      .serves = Serves(role),
      .writes = role == Role::kLearner ||
                (role == Role::kEvaluator &&
                 (config.evaluator.keep_best || config.evaluator.video_every > 0)) ||
                (role == Role::kParamServer && config.learner.sync == LearnerSync::kParamServer) ||
                (role == Role::kReplay && config.replay.persist),
      .start_patience_s = kJoinPatienceS};
  Grant(config, role, processes, &group);
  group.command = {
      "join",    fmt::format("tcp://{}:{}", CoordinatorHost(config, run), config.kubernetes.port),
      "--role",  group.name,
      "--count", std::to_string(processes)};
  if (group.serves) group.command.insert(group.command.end(), {"--advertise-host", "$(POD_IP)"});
  if (HasKeys(config)) {
    group.keys = {role};
    group.command.insert(group.command.end(),
                         {"--key", fmt::format("{}/{}.key", kKeysAt, group.name)});
  }
  group.command.insert(group.command.end(), {"--wait", std::to_string(kJoinPatienceS), "--rejoin",
                                             "--logs", "/tmp/logs", "--health", kHealthAt});
  group.started = group.alive = {"troop", "health", kHealthAt};
  group.ready = {"troop", "health", kHealthAt, "--ready"};
  return group;
}

// The config for the coordinator's pod, with the paths inside the pod. A config holds no secrets.
Config ConfigInPod(const Config& config, const std::vector<Role>& elsewhere) {
  Config pod = config;
  pod.fleet.engine = LaunchEngine::kLocal;
  pod.fleet.external_roles.clear();
  for (const Role role : elsewhere) pod.fleet.external_roles.emplace_back(RoleName(role));
  // The drain must end before the kubelet sends SIGKILL after grace_s.
  pod.fleet.shutdown_grace_s = std::max(config.kubernetes.termination_grace_s / 2,
                                        config.kubernetes.termination_grace_s - 10);
  pod.log.dir = kRunsAt;
  if (HasKeys(config)) pod.security.keys = kKeysAt;
  return pod;
}

// The common part of all objects.
Yaml Object(const Config& config, const char* api, const char* kind, const std::string& name,
            Yaml labels) {
  return Yaml::Map({{"apiVersion", api},
                    {"kind", kind},
                    {"metadata", Yaml::Map({{"name", name},
                                            {"namespace", config.kubernetes.name_space},
                                            {"labels", std::move(labels)}})}});
}

// The config as a ConfigMap, mounted at /config.
Yaml ConfigObject(const Config& config, const std::string& run,
                  const std::vector<Role>& elsewhere) {
  Yaml data = Yaml::Map({{"config.toml", Yaml::Text(ToToml(ConfigInPod(config, elsewhere)))}});
  return Object(config, "v1", "ConfigMap", ConfigMapName(run), RunLabels(run)).Add("data", data);
}

// A headless Service: DNS names of the pods, no virtual IP. Publishes pods that are not ready,
// since roles must find the coordinator before they become ready.
Yaml ServiceObject(const Config& config, const std::string& run) {
  Yaml port = Yaml::Map({{"name", "coordinator"},
                         {"port", config.kubernetes.port},
                         {"targetPort", "coordinator"},
                         {"protocol", "TCP"}});
  return Object(config, "v1", "Service", run, RunLabels(run))
      .Add("spec", Yaml::Map({{"clusterIP", "None"},
                              {"publishNotReadyAddresses", true},
                              {"selector", RunLabels(run)},
                              {"ports", Yaml::List({port})}}));
}

// Allows traffic between the pods of the run, and to the cluster's DNS; denies everything else.
Yaml NetworkPolicyObject(const Config& config, const std::string& run) {
  const auto port = [](const char* protocol, int number) {
    return Yaml::Map({{"protocol", protocol}, {"port", number}});
  };
  Yaml fleet =
      Yaml::List({Yaml::Map({{"podSelector", Yaml::Map({{"matchLabels", RunLabels(run)}})}})});
  // Roles listen on ports that the system chooses, hence the whole unprivileged range.
  Yaml ports = Yaml::List({port("TCP", 1024).Add("endPort", 65535)});
  Yaml system = Yaml::List({Yaml::Map(
      {{"namespaceSelector", Yaml::Map({{"matchLabels", Yaml::Map({{"kubernetes.io/metadata.name",
                                                                    "kube-system"}})}})}})});
  Yaml names =
      Yaml::Map({{"to", system}, {"ports", Yaml::List({port("UDP", 53), port("TCP", 53)})}});
  return Object(config, "networking.k8s.io/v1", "NetworkPolicy", run, RunLabels(run))
      .Add("spec",
           Yaml::Map(
               {{"podSelector", Yaml::Map({{"matchLabels", RunLabels(run)}})},
                {"policyTypes", Yaml::Strings({"Ingress", "Egress"})},
                {"ingress", Yaml::List({Yaml::Map({{"from", fleet}, {"ports", ports}})})},
                {"egress", Yaml::List({Yaml::Map({{"to", fleet}, {"ports", ports}}), names})}}));
}

// The volume claim of the run folder; ReadWriteMany if several pods write to it.
Yaml ClaimObject(const Config& config, const std::string& run, bool many_write) {
  const auto& k = config.kubernetes;
  Yaml spec =
      Yaml::Map({{"accessModes", Yaml::Strings({many_write ? "ReadWriteMany" : "ReadWriteOnce"})},
                 {"resources", Yaml::Map({{"requests", Yaml::Map({{"storage", k.storage}})}})}});
  if (!k.storage_class.empty()) spec.Add("storageClassName", k.storage_class);
  return Object(config, "v1", "PersistentVolumeClaim", RunClaimName(config, run), RunLabels(run))
      .Add("spec", spec);
}

// A stand-alone Job, without JobSet.
Yaml JobObject(const Config& config, const PodGroup& group) {
  return Object(config, "batch/v1", "Job", ObjectName(group), GroupLabels(group))
      .Add("spec", JobSpec(config, group));
}

// The JobSet succeeds when the coordinator's Job does. A permanently failed Job restarts the whole
// set, and the coordinator resumes from the newest checkpoint.
Yaml JobSetObject(const Config& config, const std::string& run,
                  const std::vector<PodGroup>& groups) {
  Yaml jobs = Yaml::List({});
  for (const PodGroup& group : groups) {
    jobs.Append(Yaml::Map(
        {{"name", group.name},
         {"replicas", 1},
         {"template", Yaml::Map({{"metadata", Yaml::Map({{"labels", GroupLabels(group)}})},
                                 {"spec", JobSpec(config, group)}})}}));
  }
  Yaml network = Yaml::Map(
      {{"enableDNSHostnames", true}, {"subdomain", run}, {"publishNotReadyAddresses", true}});
  Yaml success = Yaml::Map(
      {{"operator", "All"}, {"targetReplicatedJobs", Yaml::Strings({groups.front().name})}});
  return Object(config, "jobset.x-k8s.io/v1alpha2", "JobSet", run, RunLabels(run))
      .Add("spec", Yaml::Map({{"network", network},
                              {"successPolicy", success},
                              {"failurePolicy", Yaml::Map({{"maxRestarts", 3}})},
                              {"replicatedJobs", jobs}}));
}

// Single quotes protect all characters but the single quote itself.
std::string ShellQuote(const std::string& text) {
  std::string quoted = "'";
  for (const char c : text) quoted += c == '\'' ? "'\\''" : std::string(1, c);
  return quoted + "'";
}

// The script that creates the Secrets. Secret manifests would be copies of the keys in files, which
// might be committed by accident.
std::string KeyScript(const Config& config, const std::string& run,
                      const std::vector<PodGroup>& groups) {
  std::string text = fmt::format(
      "#!/bin/sh\n"
      "# Creates the Secrets of {} in the cluster: one per Job, with the keys of its roles and\n"
      "# the list of allowed keys. Run it again after a key rotation. Usage: sh keys.sh [FOLDER]\n"
      "set -eu\n"
      "keys=${{1:-{}}}\n"
      "secret() {{\n"
      "  name=$1\n"
      "  shift\n"
      "  kubectl create secret generic \"$name\" --namespace {} \"$@\" --dry-run=client -o yaml |\n"
      "    kubectl apply --namespace {} -f -\n"
      "  kubectl label secret \"$name\" --namespace {} --overwrite app.kubernetes.io/name=troop "
      "\\\n"
      "    app.kubernetes.io/instance={}\n"
      "}}\n",
      run, ShellQuote(config.security.keys), config.kubernetes.name_space,
      config.kubernetes.name_space, config.kubernetes.name_space, run);
  for (const PodGroup& group : groups) {
    text += fmt::format("secret {}", KeySecretName(group));
    for (const Role role : group.keys) {
      text += fmt::format(" --from-file=\"$keys/{}.key\"", RoleName(role));
    }
    text += group.serves ? " --from-file=\"$keys/allowed\"\n" : "\n";
  }
  return text;
}

// Pods share a network, so keys are mandatory unless security.insecure is set.
Status CheckKeys(const Config& config, const std::vector<PodGroup>& groups) {
  if (!HasKeys(config)) {
    if (config.security.insecure) return Status::Ok();
    return InvalidArgument(
        "security.keys is empty, but pods communicate over a shared network; create keys (troop "
        "keygen keys) and set security.keys=keys, or pass --insecure");
  }
  for (const PodGroup& group : groups) {
    for (const Role role : group.keys) {
      // Loaded only to find missing or unsafe files now, not in a pod.
      TROOP_ASSIGN_OR_RETURN(const auto ring, LoadKeys(KeyFileOf(config.security.keys, role)));
    }
  }
  return Status::Ok();
}

// Prints the manifests as one YAML stream; other files become comments.
void Print(const std::vector<Manifest>& manifests) {
  for (const Manifest& m : manifests) {
    if (m.name.ends_with(".yaml")) {
      fmt::print("---\n# {}\n{}", m.name, m.text);
      continue;
    }
    fmt::print("# {}\n", m.name);
    for (std::size_t at = 0; at < m.text.size();) {
      const std::size_t end = m.text.find('\n', at);
      fmt::print("#   {}\n", m.text.substr(at, end - at));
      at = end + 1;
    }
  }
}

// Writes the files into the run folder and prints the commands that start the run.
Status Write(const Config& config, const std::vector<Manifest>& manifests, bool overwrite) {
  TROOP_ASSIGN_OR_RETURN(const RunFolder folder, OpenRunFolder(config, FolderUse::kFresh));
  if (!overwrite && folder.storage->Exists(fmt::format("{}/{}", kFolder, manifests[0].name))) {
    return AlreadyExists("{}/{} already exists; choose another name (name=…), or --overwrite",
                         folder.path, kFolder);
  }
  for (const Manifest& m : manifests) {
    TROOP_RETURN_IF_ERROR(
        folder.storage->WriteAtomic(fmt::format("{}/{}", kFolder, m.name), m.text));
  }
  const std::string at = fmt::format("{}/{}", folder.path, kFolder);
  fmt::print("wrote {} files to {}; nothing was started. To start the run:\n", manifests.size(),
             at);
  if (HasKeys(config)) fmt::print("  sh {}/keys.sh\n", at);
  fmt::print("  kubectl apply -f {}\n", at);
  return Status::Ok();
}

}  // namespace

// Step 1: group the roles into pods; step 2: check keys; step 3: make one file per object.
Result<std::vector<Manifest>> KubernetesManifests(const Config& config) {
  TROOP_ASSIGN_OR_RETURN(const std::string run, RunName(config));
  TROOP_ASSIGN_OR_RETURN(const std::vector<Role> elsewhere, RolesElsewhere(config));
  std::vector<PodGroup> groups{CoordinatorGroup(config, run, elsewhere)};
  for (const Role role : elsewhere) groups.push_back(RoleGroup(config, run, role));
  TROOP_RETURN_IF_ERROR(CheckKeys(config, groups));
  std::vector<Manifest> manifests{{"config.yaml", ConfigObject(config, run, elsewhere).str()},
                                  {"network.yaml", NetworkPolicyObject(config, run).str()}};
  if (config.kubernetes.claim.empty()) {
    // More than one writing pod, in one group or in several.
    const bool many =
        std::ranges::count(groups, true, &PodGroup::writes) > 1 ||
        std::ranges::any_of(groups, [](const PodGroup& g) { return g.writes && g.pods > 1; });
    manifests.push_back({"storage.yaml", ClaimObject(config, run, many).str()});
  }
  if (config.kubernetes.jobset) {
    manifests.push_back({"jobset.yaml", JobSetObject(config, run, groups).str()});
  } else {
    manifests.push_back({"service.yaml", ServiceObject(config, run).str()});
    for (const PodGroup& group : groups) {
      manifests.push_back({group.name + ".yaml", JobObject(config, group).str()});
    }
  }
  if (HasKeys(config)) manifests.push_back({"keys.sh", KeyScript(config, run, groups)});
  return manifests;
}

// Contacts no cluster: kubectl applies the files.
int WriteForKubernetes(const Config& config, const TrainOptions& options) {
  const Result<std::vector<Manifest>> manifests = KubernetesManifests(config);
  Status status = manifests.status();
  if (status.ok() && options.dry_run) {
    Print(*manifests);
  } else if (status.ok()) {
    status = Write(config, *manifests, options.overwrite);
  }
  if (status.ok()) return kExitOk;
  fmt::print(stderr, "troop: {}\n", status.message());
  return ExitCodeFor(status);
}

}  // namespace troop
