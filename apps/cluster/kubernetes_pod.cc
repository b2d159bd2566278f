// Pod and Job specifications: resources, privileges, volumes, probes and failure policy.
#include "apps/cluster/kubernetes_pod.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "net/security/access_control.h"

namespace troop {
namespace {

constexpr std::int64_t kUser = 10001;  // created by the Containerfile
constexpr char kContainer[] = "troop", kSecretsAt[] = "/secrets";
// A pod is killed after a minute without an answer: 6 probes, one each 10 s.
constexpr int kProbeEveryS = 10, kProbePatienceS = 10, kProbesMissed = 6;

Yaml Quantity(double cores) { return fmt::format("{}m", std::llround(std::ceil(1000 * cores))); }

// Requests equal limits (QoS class "Guaranteed"), so that a pod that exceeds its memory is killed,
// not its neighbors.
Yaml Resources(const PodGroup& group) {
  Yaml amounts = Yaml::Map(
      {{"cpu", Quantity(group.cores)}, {"memory", fmt::format("{}Mi", group.memory_mib)}});
  if (group.gpus > 0) amounts.Add("nvidia.com/gpu", std::to_string(group.gpus));
  return Yaml::Map({{"requests", amounts}, {"limits", amounts}});
}

// No privileges, and a read-only root file system.
Yaml ContainerRights() {
  return Yaml::Map({{"allowPrivilegeEscalation", false},
                    {"readOnlyRootFilesystem", true},
                    {"capabilities", Yaml::Map({{"drop", Yaml::Strings({"ALL"})}})}});
}

// A fixed unprivileged user; the group owns the volumes.
Yaml PodRights() {
  return Yaml::Map({{"runAsNonRoot", true},
                    {"runAsUser", kUser},
                    {"runAsGroup", kUser},
                    {"fsGroup", kUser},
                    {"fsGroupChangePolicy", "OnRootMismatch"},
                    {"seccompProfile", Yaml::Map({{"type", "RuntimeDefault"}})}});
}

Yaml FromField(const char* name, const char* path) {
  return Yaml::Map(
      {{"name", name}, {"valueFrom", Yaml::Map({{"fieldRef", Yaml::Map({{"fieldPath", path}})}})}});
}

Yaml EnvironmentVariables() {
  return Yaml::List(
      {FromField("POD_IP", "status.podIP"), Yaml::Map({{"name", "HOME"}, {"value", "/tmp"}})});
}

Yaml Probe(const std::vector<std::string>& command, std::int64_t missed) {
  return Yaml::Map({{"exec", Yaml::Map({{"command", Yaml::Strings(command)}})},
                    {"periodSeconds", kProbeEveryS},
                    {"timeoutSeconds", kProbePatienceS},
                    {"failureThreshold", missed}});
}

Yaml Mount(const std::string& name, const std::string& path, bool read_only) {
  Yaml mount = Yaml::Map({{"name", name}, {"mountPath", path}});
  if (read_only) mount.Add("readOnly", true);
  return mount;
}

// Mount points; each has its volume in Volumes().
Yaml Mounts(const Config& config, const PodGroup& group) {
  Yaml mounts = Yaml::List({Mount("tmp", "/tmp", false), Mount("shm", "/dev/shm", false)});
  if (!group.keys.empty()) {
    mounts.Append(Mount("keys", kKeysAt, true)).Append(Mount("secrets", kSecretsAt, true));
  }
  if (group.name == RoleName(Role::kCoordinator)) mounts.Append(Mount("config", "/config", true));
  if (group.writes) mounts.Append(Mount("runs", kRunsAt, false));
  if (!config.kubernetes.data_claim.empty()) mounts.Append(Mount("data", "/data", true));
  return mounts;
}

// A memory-backed volume; /dev/shm needs one for shared-memory buffers.
Yaml InMemory(const std::string& name, const std::string& size) {
  return Yaml::Map(
      {{"name", name}, {"emptyDir", Yaml::Map({{"medium", "Memory"}, {"sizeLimit", size}})}});
}

Yaml Claim(const std::string& name, const std::string& claim, bool read_only) {
  Yaml source = Yaml::Map({{"claimName", claim}});
  if (read_only) source.Add("readOnly", true);
  return Yaml::Map({{"name", name}, {"persistentVolumeClaim", source}});
}

Yaml Volumes(const Config& config, const PodGroup& group) {
  Yaml volumes =
      Yaml::List({Yaml::Map({{"name", "tmp"}, {"emptyDir", Yaml::Map({{"sizeLimit", "1Gi"}})}}),
                  InMemory("shm", config.kubernetes.shared_memory)});
  if (!group.keys.empty()) {
    volumes.Append(InMemory("keys", "1Mi"));
    volumes.Append(Yaml::Map(
        {{"name", "secrets"},
         {"secret", Yaml::Map({{"secretName", KeySecretName(group)}, {"defaultMode", 288}})}}));
  }
  if (group.name == RoleName(Role::kCoordinator)) {
    volumes.Append(Yaml::Map(
        {{"name", "config"}, {"configMap", Yaml::Map({{"name", ConfigMapName(group.run)}})}}));
  }
  if (group.writes) volumes.Append(Claim("runs", RunClaimName(config, group.run), false));
  const std::string& data = config.kubernetes.data_claim;
  if (!data.empty()) volumes.Append(Claim("data", data, true));
  return volumes;
}

// An init container that copies the keys into memory with mode 0600: the kubelet makes a Secret's
// files group-readable (0440, 288 above), and Troop refuses keys that others can read. The allow
// list is a link into the Secret, so that updates of the Secret take effect.
Yaml KeyCopier(const Config& config, const PodGroup& group) {
  std::string script = "set -e\n";
  for (const Role role : group.keys) {
    script += fmt::format("install -m 0600 {}/{}.key {}/\n", kSecretsAt, RoleName(role), kKeysAt);
  }
  if (group.serves) script += fmt::format("ln -sf {}/allowed {}/allowed\n", kSecretsAt, kKeysAt);
  Yaml small = Yaml::Map({{"cpu", "100m"}, {"memory", "64Mi"}});
  return Yaml::Map({{"name", "keys"},
                    {"image", config.kubernetes.image},
                    {"command", Yaml::List({"/bin/sh", "-c", Yaml::Text(script)})},
                    {"securityContext", ContainerRights()},
                    {"resources", Yaml::Map({{"requests", small}, {"limits", small}})},
                    {"volumeMounts", Yaml::List({Mount("keys", kKeysAt, false),
                                                 Mount("secrets", kSecretsAt, true)})}});
}

// The startup probe allows start_patience_s; later, missed liveness probes kill the pod.
Yaml Container(const Config& config, const PodGroup& group) {
  Yaml container = Yaml::Map({{"name", kContainer},
                              {"image", config.kubernetes.image},
                              {"args", Yaml::Strings(group.command)},
                              {"env", EnvironmentVariables()},
                              {"securityContext", ContainerRights()},
                              {"resources", Resources(group)},
                              {"volumeMounts", Mounts(config, group)}});
  if (group.name == RoleName(Role::kCoordinator)) {
    container.Add("ports", Yaml::List({Yaml::Map({{"name", "coordinator"},
                                                  {"containerPort", config.kubernetes.port},
                                                  {"protocol", "TCP"}})}));
  }
  const std::int64_t started = group.start_patience_s / kProbeEveryS + 1;
  container.Add("startupProbe", Probe(group.started, started));
  container.Add("readinessProbe", Probe(group.ready, 1));
  container.Add("livenessProbe", Probe(group.alive, kProbesMissed));
  return container;
}

// Short DNS timeouts: ZeroMQ resolves names in its I/O thread, so that an unresponsive name server
// would stall all sockets of a process.
Yaml NameLookup() {
  return Yaml::Map({{"options", Yaml::List({Yaml::Map({{"name", "timeout"}, {"value", "1"}}),
                                            Yaml::Map({{"name", "attempts"}, {"value", "2"}})})}});
}

// The pod itself never restarts: the Job replaces failed pods by its policy.
Yaml PodSpec(const Config& config, const PodGroup& group) {
  Yaml pod = Yaml::Map({{"subdomain", group.run},
                        {"restartPolicy", "Never"},
                        {"terminationGracePeriodSeconds",
                         std::int64_t(std::ceil(config.kubernetes.termination_grace_s))},
                        {"automountServiceAccountToken", false},
                        {"enableServiceLinks", false},
                        {"securityContext", PodRights()},
                        {"dnsConfig", NameLookup()}});
  if (!group.keys.empty()) pod.Add("initContainers", Yaml::List({KeyCopier(config, group)}));
  pod.Add("containers", Yaml::List({Container(config, group)}));
  pod.Add("volumes", Volumes(config, group));
  return pod;
}

// Evicted pods (node drain, preemption) do not count as failures. Exit codes 2 and 4 are permanent
// (docs/reference/commands.md) and fail the Job or its index at once.
Yaml FailurePolicy(bool each_index) {
  const auto exit_code = [](int code) { return Yaml(code); };
  Yaml disrupted = Yaml::Map({{"type", "DisruptionTarget"}, {"status", "True"}});
  Yaml hopeless = Yaml::Map({{"containerName", kContainer},
                             {"operator", "In"},
                             {"values", Yaml::List({exit_code(2), exit_code(4)})}});
  return Yaml::Map(
      {{"rules",
        Yaml::List({Yaml::Map({{"action", "Ignore"}, {"onPodConditions", Yaml::List({disrupted})}}),
                    Yaml::Map({{"action", each_index ? "FailIndex" : "FailJob"},
                               {"onExitCodes", hopeless}})})}});
}

}  // namespace

// Names of the objects, all with the run's name first: several runs can share a namespace.
std::string ObjectName(const PodGroup& group) { return group.run + "-" + group.name; }
std::string KeySecretName(const PodGroup& group) { return ObjectName(group) + "-keys"; }
std::string ConfigMapName(const std::string& run) { return run + "-config"; }

std::string RunClaimName(const Config& config, const std::string& run) {
  return config.kubernetes.claim.empty() ? run + "-runs" : config.kubernetes.claim;
}

// Pods of an Indexed Job are named <job>-<index>, of a JobSet <set>-<job>-<replica>-<index>.
std::string CoordinatorHost(const Config& config, const std::string& run) {
  const char* const pod = config.kubernetes.jobset ? "-coordinator-0-0." : "-coordinator-0.";
  return run + pod + run;
}

Yaml RunLabels(const std::string& run) {
  return Yaml::Map({{"app.kubernetes.io/name", "troop"}, {"app.kubernetes.io/instance", run}});
}

Yaml GroupLabels(const PodGroup& group) {
  return RunLabels(group.run).Add("app.kubernetes.io/component", group.name);
}

// The coordinator's Job fails as a whole; in a role's Job each index fails separately, and the
// others continue.
Yaml JobSpec(const Config& config, const PodGroup& group) {
  const bool many = group.name != RoleName(Role::kCoordinator);
  Yaml job = Yaml::Map(
      {{"completionMode", "Indexed"}, {"completions", group.pods}, {"parallelism", group.pods}});
  if (many) job.Add("backoffLimitPerIndex", config.fleet.restarts_max);
  if (many) job.Add("maxFailedIndexes", group.pods);  // the other indices continue
  if (!many) job.Add("backoffLimit", config.fleet.restarts_max);
  job.Add("podReplacementPolicy", "Failed");  // never two pods of one index at a time
  job.Add("podFailurePolicy", FailurePolicy(many));
  job.Add("template", Yaml::Map({{"metadata", Yaml::Map({{"labels", GroupLabels(group)}})},
                                 {"spec", PodSpec(config, group)}}));
  return job;
}

}  // namespace troop
