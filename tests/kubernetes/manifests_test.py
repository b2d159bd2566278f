"""What `troop train --engine kubernetes` writes, read by others: the schemas of Kubernetes,
strictly, and this file, which checks what has to fit to what. Usage: manifests_test.py
(TROOP_PROGRAM, TROOP_SOURCE_DIR). Exit code 77 where PyYAML or kubernetes-validate are missing."""

import json
import os
import pathlib
import re
import stat
import subprocess
import sys
import tempfile
import tomllib
import unittest

try:
    import kubernetes_validate
    import yaml
except ImportError as error:
    print(f"skipped: {error} (tools/test-requirements.txt)")
    sys.exit(77)

PROGRAM = os.environ["TROOP_PROGRAM"]
CONFIGS = pathlib.Path(os.environ["TROOP_SOURCE_DIR"]) / "configs"
# The oldest that has all fields, the first in which they are all stable, and the newest.
VERSIONS = ["1.29", "1.33", kubernetes_validate.latest_version()]
LABELS = {"app.kubernetes.io/name": "troop"}
SERVERS = {"coordinator", "replay", "paramserver"}

# config, overrides, pods of each Job, roles that the coordinator's pod plays, (cores, MiB) of pods.
CASES = {
    "actors": ("apex_cartpole.toml",
               ["name=my_Run.1", "fleet.actors=6", "kubernetes.actors_per_pod=3"],
               {"coordinator": 1, "actor": 2},
               ["replay", "paramserver", "learner", "evaluator"],
               # 1 + 1 + 1 + 2 + 1 cores; 2 + 4 + 2 + 4 + 1 GiB.
               {"coordinator": (6, 13 * 1024), "actor": (3, 3 * 1024)}),
    "all": ("apex_cartpole.toml",
            ["fleet.external_roles=['learner', 'replay', 'paramserver', 'evaluator', 'actor']",
             "fleet.actors=3", "replay.shards=2", "kubernetes.learner_gpus=1",
             "kubernetes.learner_memory=96Gi", "kubernetes.actor_cpu=0.25",
             "kubernetes.namespace=rl", "kubernetes.storage_class=fast.rwx"],
            {"coordinator": 1, "learner": 1, "replay": 2, "paramserver": 1, "evaluator": 1,
             "actor": 3}, [],
            {"coordinator": (1, 2048), "learner": (2, 96 * 1024), "replay": (1, 4096),
             "paramserver": (1, 2048), "evaluator": (1, 1024), "actor": (0.25, 1024)}),
    "gorila": ("gorila_cartpole.toml",
               ["kubernetes.claim=shared-runs", "kubernetes.data_claim=data"],
               None, ["replay", "paramserver", "learner", "evaluator"], {}),
    "reviews": ("imdb_small.toml",
                ["kubernetes.data_claim=imdb", "kubernetes.image=r.io/x/troop:1"],
                {"coordinator": 1}, ["paramserver", "learner", "evaluator"], {}),
    "jobset": ("apex_cartpole.toml", ["kubernetes.jobset=true", "fleet.actors=2"],
               {"coordinator": 1, "actor": 2},
               ["replay", "paramserver", "learner", "evaluator"], {}),
}

# Schema of jobset/api/jobset/v1alpha2; the Jobs in it are checked with the schemas of Kubernetes.
JOBSET = {
    "apiVersion": str, "kind": str, "metadata": {"name": str, "namespace": str, "labels": dict},
    "spec": {
        "network": {"enableDNSHostnames": bool, "subdomain": str, "publishNotReadyAddresses": bool},
        "successPolicy": {"operator": str, "targetReplicatedJobs": [str]},
        "failurePolicy": {"maxRestarts": int},
        "replicatedJobs": [{"name": str, "replicas": int,
                            "template": {"metadata": dict, "spec": dict}}],
    },
}

FAKE_KUBECTL = """#!{python}
import json, os, pathlib, sys
words = sys.argv[1:]
log = open(os.environ["KUBECTL_LOG"], "a")
if words[:3] == ["create", "secret", "generic"]:
    files = [w.split("=", 1)[1] for w in words if w.startswith("--from-file=")]
    for f in files:
        open(f).read()
    print(json.dumps([words[3], words[words.index("--namespace") + 1],
                      [pathlib.Path(f).name for f in files]]))
elif words[0] == "apply":
    print(sys.stdin.read().strip(), file=log)
elif words[0] != "label":
    sys.exit(1)
"""


def run(words, **options):
    return subprocess.run(words, capture_output=True, text=True, timeout=100, **options)


def matches(shape, value):
    if isinstance(shape, dict):
        return (isinstance(value, dict) and set(value) == set(shape)
                and all(matches(shape[k], value[k]) for k in shape))
    if isinstance(shape, list):
        return isinstance(value, list) and all(matches(shape[0], v) for v in value)
    return isinstance(value, shape)


class Run:
    """One config as the cluster gets it."""

    def __init__(self, case, folder, keys, extra=()):
        config, overrides, self.pods, self.inside, self.sizes = CASES[case]
        words = [PROGRAM, "train", str(CONFIGS / config), "--engine", "kubernetes", "--dry-run",
                 f"log.dir={folder}", *([f"security.keys={keys}"] if keys else []), *overrides,
                 *extra]
        self.done = run(words)
        self.text = self.done.stdout
        self.objects = [o for o in yaml.safe_load_all(self.text) if o is not None]
        self.script = "".join(
            line[4:] + "\n" for line in self.text.split("# keys.sh\n")[-1].splitlines()
            if line.startswith("#   "))
        self.jobs = {o["metadata"]["labels"]["app.kubernetes.io/component"]: o
                     for o in self.objects if o["kind"] == "Job"}
        for job_set in self.of_kind("JobSet"):
            for job in job_set["spec"]["replicatedJobs"]:
                self.jobs[job["name"]] = {
                    "apiVersion": "batch/v1", "kind": "Job",
                    "metadata": {"name": f"{job_set['metadata']['name']}-{job['name']}",
                                 **job["template"]["metadata"]},
                    "spec": job["template"]["spec"]}

    def of_kind(self, kind):
        return [o for o in self.objects if o["kind"] == kind]

    def template(self, group):
        return self.jobs[group]["spec"]["template"]

    def container(self, group):
        (container,) = self.template(group)["spec"]["containers"]
        return container

    def config(self):
        (found,) = self.of_kind("ConfigMap")
        return tomllib.loads(found["data"]["config.toml"])


class ManifestsTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.temp = tempfile.TemporaryDirectory()
        cls.folder = cls.temp.name
        cls.keys = os.path.join(cls.folder, "it's keys")
        made = run([PROGRAM, "keygen", cls.keys])
        assert made.returncode == 0, made.stderr
        cls.runs = {case: Run(case, cls.folder, cls.keys) for case in CASES}

    @classmethod
    def tearDownClass(cls):
        cls.temp.cleanup()

    def each(self):
        for case, made in self.runs.items():
            with self.subTest(case):
                self.assertEqual(made.done.returncode, 0, made.done.stderr)
                yield made

    def test_the_schemas_of_kubernetes_know_every_field(self):
        for made in self.each():
            for version in VERSIONS:
                for o in made.objects + list(made.jobs.values()):
                    if o["kind"] != "JobSet":
                        kubernetes_validate.validate(o, version, strict=True)
            for job_set in made.of_kind("JobSet"):
                self.assertTrue(matches(JOBSET, job_set), job_set)

    def test_the_schemas_would_notice(self):
        job = json.loads(json.dumps(self.runs["actors"].jobs["actor"]))
        job["spec"]["template"]["spec"]["terminationGracePeriod"] = 1
        with self.assertRaises(kubernetes_validate.ValidationError):
            kubernetes_validate.validate(job, VERSIONS[0], strict=True)

    def test_there_are_as_many_pods_as_the_config_wants(self):
        for made in self.each():
            pods = {name: job["spec"]["completions"] for name, job in made.jobs.items()}
            if made.pods is not None:
                self.assertEqual(pods, made.pods)
            for job in made.jobs.values():
                self.assertEqual(job["spec"]["parallelism"], job["spec"]["completions"])
                self.assertEqual(job["spec"]["completionMode"], "Indexed")
            config = made.config()
            actors = pods.get("actor", 0) * config["kubernetes"]["actors_per_pod"]
            self.assertEqual(actors, config["fleet"]["actors"] if "actor" in pods else 0)
            self.assertEqual(set(config["fleet"]["external_roles"]), set(pods) - {"coordinator"})

    def test_each_pod_has_the_share_of_what_it_plays(self):
        for made in self.each():
            for group, (cores, mib) in made.sizes.items():
                share = made.container(group)["resources"]
                self.assertEqual(share["limits"], share["requests"])
                self.assertEqual(share["limits"]["cpu"], f"{int(1000 * cores)}m")
                self.assertEqual(share["limits"]["memory"], f"{mib}Mi")
        gpu = "nvidia.com/gpu"
        learner = self.runs["all"].container("learner")["resources"]["limits"]
        self.assertEqual(learner[gpu], "1")
        self.assertNotIn(gpu, self.runs["all"].container("actor")["resources"]["limits"])

    def test_selectors_find_all_pods_of_the_run_and_no_others(self):
        names = set()
        for made in self.each():
            (policy,) = made.of_kind("NetworkPolicy")
            chosen = [policy["spec"]["podSelector"]["matchLabels"]]
            for service in made.of_kind("Service"):
                chosen.append(service["spec"]["selector"])
            for selector in chosen:
                self.assertEqual(selector.items() & LABELS.items(), LABELS.items())
                name = selector["app.kubernetes.io/instance"]
                for group in made.jobs:
                    labels = made.template(group)["metadata"]["labels"]
                    self.assertLessEqual(selector.items(), labels.items())
                    self.assertEqual(labels["app.kubernetes.io/component"], group)
            names.add(name)
            all_names = [(o["kind"], o["metadata"]["name"]) for o in made.objects]
            self.assertEqual(len(all_names), len(set(all_names)))
            self.assertEqual(len({o["metadata"]["namespace"] for o in made.objects}), 1)
            for _, object_name in all_names:
                self.assertRegex(object_name, "^[a-z]([-a-z0-9]*[a-z0-9])?$")
        self.assertIn("my-run-1", names)

    def test_nobody_else_reaches_the_pods_and_they_reach_nobody_else(self):
        for made in self.each():
            (policy,) = made.of_kind("NetworkPolicy")
            spec = policy["spec"]
            fleet = [{"podSelector": spec["podSelector"]}]
            self.assertEqual(set(spec["policyTypes"]), {"Ingress", "Egress"})
            (ingress,) = spec["ingress"]
            self.assertEqual(ingress["from"], fleet)
            inside, names = spec["egress"]
            self.assertEqual(inside["to"], fleet)
            self.assertEqual({p["port"] for p in names["ports"]}, {53})
            self.assertTrue(all(set(t) == {"namespaceSelector"} for t in names["to"]))

    def test_those_who_join_know_where_the_coordinator_listens(self):
        for made in self.each():
            container = made.container("coordinator")
            (port,) = container["ports"]
            listen = f"fleet.listen=tcp://$(POD_IP):{port['containerPort']}"
            self.assertIn(listen, container["args"])
            self.assertIn("POD_IP", [e["name"] for e in container["env"]])
            subdomain = made.template("coordinator")["spec"]["subdomain"]
            for service in made.of_kind("Service"):
                (served,) = service["spec"]["ports"]
                self.assertEqual(served["targetPort"], port["name"])
                self.assertEqual(served["port"], port["containerPort"])
                self.assertEqual(service["metadata"]["name"], subdomain)
                self.assertEqual(service["spec"]["clusterIP"], "None")
                self.assertTrue(service["spec"]["publishNotReadyAddresses"])
            name = made.jobs["coordinator"]["metadata"]["name"]
            pod = f"{name}-0-0" if made.of_kind("JobSet") else f"{name}-0"
            for group in set(made.jobs) - {"coordinator"}:
                words = made.container(group)["args"]
                self.assertEqual(words[0], "join")
                self.assertEqual(words[1], f"tcp://{pod}.{subdomain}:{port['containerPort']}")
                self.assertEqual(words[words.index("--role") + 1], group)
                self.assertEqual("--advertise-host" in words, group in SERVERS)
                variables = {e["name"] for e in made.container(group)["env"]}
                self.assertLessEqual(set(re.findall(r"\$\((\w+)\)", " ".join(words))), variables)

    def test_containers_have_no_right_that_they_do_not_need(self):
        for made in self.each():
            for group in made.jobs:
                pod = made.template(group)["spec"]
                self.assertFalse(pod["automountServiceAccountToken"])
                rights = pod["securityContext"]
                self.assertTrue(rights["runAsNonRoot"])
                self.assertGreaterEqual(rights["runAsUser"], 10000)
                self.assertEqual(rights["seccompProfile"]["type"], "RuntimeDefault")
                for container in pod["containers"] + pod.get("initContainers", []):
                    rights = container["securityContext"]
                    self.assertIs(rights["allowPrivilegeEscalation"], False)
                    self.assertIs(rights["readOnlyRootFilesystem"], True)
                    self.assertEqual(rights["capabilities"], {"drop": ["ALL"]})
                    self.assertIn("memory", container["resources"]["limits"])
                for forbidden in ("hostNetwork", "hostPID", "hostIPC"):
                    self.assertNotIn(forbidden, pod)
                self.assertFalse([v for v in pod["volumes"] if "hostPath" in v])

    def test_what_is_mounted_is_there(self):
        for made in self.each():
            claims = {o["metadata"]["name"] for o in made.of_kind("PersistentVolumeClaim")}
            cluster = made.config()["kubernetes"]
            claims |= {cluster["claim"], cluster["data_claim"]}
            for group in made.jobs:
                pod = made.template(group)["spec"]
                volumes = {v["name"]: v for v in pod["volumes"]}
                containers = pod["containers"] + pod.get("initContainers", [])
                mounted = {m["name"] for c in containers for m in c["volumeMounts"]}
                self.assertEqual(mounted, set(volumes))
                paths = {m["mountPath"]: m for m in made.container(group)["volumeMounts"]}
                self.assertEqual(volumes[paths["/dev/shm"]["name"]]["emptyDir"]["medium"], "Memory")
                self.assertNotIn("readOnly", paths["/tmp"])
                for volume in volumes.values():
                    if "persistentVolumeClaim" in volume:
                        self.assertIn(volume["persistentVolumeClaim"]["claimName"], claims)
                writes = group in ("coordinator", "learner")
                self.assertEqual("/runs" in paths, writes or group == "paramserver" and
                                 made.config()["learner"]["sync"] == "paramserver")
                self.assertEqual("/data" in paths, made.config()["kubernetes"]["data_claim"] != "")
        (claim,) = self.runs["all"].of_kind("PersistentVolumeClaim")
        self.assertEqual(claim["spec"]["accessModes"], ["ReadWriteMany"])
        self.assertEqual(claim["spec"]["storageClassName"], "fast.rwx")
        (claim,) = self.runs["actors"].of_kind("PersistentVolumeClaim")
        self.assertEqual(claim["spec"]["accessModes"], ["ReadWriteOnce"])
        self.assertFalse(self.runs["gorila"].of_kind("PersistentVolumeClaim"))

    def test_pods_that_the_cluster_takes_away_come_again(self):
        for made in self.each():
            for group, job in made.jobs.items():
                spec, pod = job["spec"], job["spec"]["template"]["spec"]
                self.assertEqual(pod["restartPolicy"], "Never")
                self.assertEqual(pod["terminationGracePeriodSeconds"], 120)
                ignore, hopeless = spec["podFailurePolicy"]["rules"]
                self.assertEqual(ignore["action"], "Ignore")
                self.assertEqual(ignore["onPodConditions"][0]["type"], "DisruptionTarget")
                self.assertEqual(set(hopeless["onExitCodes"]["values"]), {2, 4})
                self.assertEqual(hopeless["onExitCodes"]["containerName"],
                                 made.container(group)["name"])
                restarts = made.config()["fleet"]["restarts_max"]
                limit = "backoffLimit" if group == "coordinator" else "backoffLimitPerIndex"
                self.assertEqual(spec[limit], restarts)
            self.assertLess(made.config()["fleet"]["shutdown_grace_s"], 120)
            self.assertIn("--continue", made.container("coordinator")["args"])

    def test_probes_ask_what_answers(self):
        for made in self.each():
            for group in made.jobs:
                container = made.container(group)
                for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
                    command = container[probe]["exec"]["command"]
                    self.assertEqual(command[0], "troop")
                    if group == "coordinator":
                        folder = f"{made.config()['log']['dir']}/{made.config()['name']}"
                        self.assertEqual(command[1:], ["status", folder])
                    else:
                        words = container["args"]
                        file = words[words.index("--health") + 1]
                        self.assertEqual(command[1:3], ["health", file])
                        self.assertEqual("--ready" in command, probe == "readinessProbe")

    def secrets_of(self, made):
        """By running keys.sh with a kubectl that notes what it is given."""
        folder = pathlib.Path(tempfile.mkdtemp(dir=self.folder))
        kubectl = folder / "kubectl"
        kubectl.write_text(FAKE_KUBECTL.format(python=sys.executable))
        kubectl.chmod(0o755)
        (folder / "keys.sh").write_text(made.script)
        log = folder / "log"
        path = f"{folder}:{os.environ['PATH']}"
        done = run(["sh", folder / "keys.sh"], env={"PATH": path, "KUBECTL_LOG": str(log)})
        self.assertEqual(done.returncode, 0, done.stderr)
        return [json.loads(line) for line in log.read_text().splitlines()]

    def test_each_role_gets_its_own_key_and_no_other(self):
        for made in self.each():
            secrets = {name: set(files) for name, _, files in self.secrets_of(made)}
            self.assertEqual({space for _, space, _ in self.secrets_of(made)},
                             {made.config()["kubernetes"]["namespace"]})
            self.assertEqual(len(secrets), len(made.jobs))
            for group in made.jobs:
                pod = made.template(group)["spec"]
                (mounted,) = [v["secret"]["secretName"] for v in pod["volumes"] if "secret" in v]
                want = {f"{group}.key"}
                if group == "coordinator":
                    want |= {f"{role}.key" for role in ["tool", *made.inside]}
                if group in SERVERS:
                    want.add("allowed")
                self.assertEqual(secrets[mounted], want)
                (copier,) = pod["initContainers"]
                copied = set(re.findall(r"/secrets/([a-z.]+)", copier["command"][-1]))
                self.assertEqual(copied, want)
                if group != "coordinator":
                    words = made.container(group)["args"]
                    self.assertEqual(words[words.index("--key") + 1], f"/keys/{group}.key")

    def test_no_secret_is_in_any_text(self):
        secrets = []
        for file in pathlib.Path(self.keys).glob("*.key"):
            secrets += re.findall(r'secret = "(\w{64})"', file.read_text())
        self.assertGreaterEqual(len(secrets), 7)
        for made in self.each():
            self.assertFalse(made.of_kind("Secret"))
            for secret in secrets:
                self.assertNotIn(secret, made.text)
            self.assertEqual(made.config()["security"]["keys"], "/keys")

    def test_files_are_what_is_printed(self):
        words = ["--engine", "kubernetes", f"log.dir={self.folder}", f"security.keys={self.keys}"]
        config = str(CONFIGS / "apex_cartpole.toml")
        done = run([PROGRAM, "train", config, "name=files", *words])
        self.assertEqual(done.returncode, 0, done.stderr)
        printed = run([PROGRAM, "train", config, "name=files", "--dry-run", *words]).stdout
        folder = pathlib.Path(self.folder) / "files" / "kubernetes"
        names = sorted(f.name for f in folder.iterdir())
        self.assertEqual(names, ["actor.yaml", "config.yaml", "coordinator.yaml", "keys.sh",
                                 "network.yaml", "service.yaml", "storage.yaml"])
        for name in names:
            text = (folder / name).read_text()
            self.assertIn(text if name != "keys.sh" else text.splitlines()[2], printed)
            self.assertFalse(stat.S_IMODE((folder / name).stat().st_mode) & 0o022)
        again = run([PROGRAM, "train", config, "name=files", *words])
        self.assertEqual(again.returncode, 3, again.stderr)
        self.assertIn("--overwrite", again.stderr)

    def test_what_a_cluster_can_not_be_asked_for_is_refused(self):
        for override, says in [
                ("kubernetes.actors_per_pod=4", "does not divide"),
                ("kubernetes.actor_memory=1G", "not a quantity"),
                ("kubernetes.namespace=Mine", "not a valid namespace"),
                ("kubernetes.image=a b", "not a valid image name"),
                ("kubernetes.storage_class=a_b", "not a valid Kubernetes name"),
                ("fleet.listen=tcp://10.0.0.1:7701", "omit it"),
                ("fleet.external_roles=['actr']", "is not an external role"),
                ("name=" + 50 * "x", "valid Service name")]:
            config, overrides = CASES["actors"][:2]
            done = run([PROGRAM, "train", str(CONFIGS / config), "--engine", "kubernetes",
                        "--dry-run", f"security.keys={self.keys}", *overrides, override])
            self.assertEqual(done.returncode, 2, override)
            self.assertIn(says, done.stderr)
            self.assertEqual(done.stdout, "")
        done = run([PROGRAM, "train", str(CONFIGS / "apex_cartpole.toml"), "--engine", "kubernetes",
                    "--dry-run"])
        self.assertEqual(done.returncode, 2)
        self.assertIn("--insecure", done.stderr)

    def test_without_keys_pods_are_told_to_be_insecure(self):
        made = Run("actors", self.folder, None, ["--insecure"])
        self.assertEqual(made.done.returncode, 0, made.done.stderr)
        self.assertEqual(made.script, "")
        self.assertIn("--insecure", made.container("coordinator")["args"])
        for group in made.jobs:
            self.assertFalse([v for v in made.template(group)["spec"]["volumes"] if "secret" in v])
            self.assertNotIn("initContainers", made.template(group)["spec"])
            for version in VERSIONS:
                kubernetes_validate.validate(made.jobs[group], version, strict=True)

    def test_the_image_is_what_the_manifests_and_the_build_expect(self):
        source = CONFIGS.parent
        text = (source / "Containerfile").read_text().replace("\\\n", " ")
        stages = re.split(r"^FROM ", text, flags=re.M)[1:]
        self.assertEqual([stage.split()[0] for stage in stages],
                         2 * ["docker.io/library/debian:12-slim"])
        listed = re.search(r"build_packages=\(([^)]*)\)", (source / "tools/common.sh").read_text())
        self.assertLessEqual(set(listed[1].split()), set(stages[0].split()))
        user = self.runs["actors"].template("actor")["spec"]["securityContext"]
        (said,) = re.findall(r"^USER (.*)$", stages[1], re.M)
        self.assertEqual(said, f"{user['runAsUser']}:{user['runAsGroup']}")
        self.assertIn(f"useradd --uid {user['runAsUser']} ", stages[1])
        (entry,) = re.findall(r"^ENTRYPOINT (.*)$", stages[1], re.M)
        self.assertEqual(json.loads(entry)[-1], "troop")
        for stage in stages:
            self.assertIn("--no-install-recommends", stage)
            self.assertIn("rm -rf /var/lib/apt/lists/*", stage)


if __name__ == "__main__":
    unittest.main()
