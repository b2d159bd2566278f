"""Suites `faults` (cost of deaths, detection time, simulated hours) and `soak` (half an hour in
which a role is killed every ten seconds)."""
import os
import random
import signal
import statistics
import subprocess
import time

import harness
from fleet import Fleet
from harness import ROOT, BenchError, say

CONFIG = "bench/faults_cartpole.toml"
DEATH_EVERY_S = 10.0
ACTORS = 4
SIMULATED_SEEDS, SIMULATED_QUICK_SEEDS = 20, 4


def add(sides, case, metric, unit, values, better=None):
    line = {"case": case, "metric": metric, "unit": unit, "values": values}
    harness.collect([line if better is None else {**line, "better": better}], sides)


def steps_per_second(build, seconds, deaths):
    """Agent steps per second of four actors with a lightly loaded learner; `deaths`: kills one
    actor every ten seconds."""
    keys = {"replay.samples_per_insert": 1, "evaluator.enabled": "false"}
    with Fleet(build, CONFIG, **keys) as fleet:
        fleet.await_steps(5000)
        first, begin = fleet.steps()
        for turn in range(int(seconds / DEATH_EVERY_S)):
            actor = fleet.roles().get(f"actor-{turn % ACTORS}")
            if deaths and actor:
                os.kill(actor, signal.SIGKILL)
            time.sleep(DEATH_EVERY_S)
        last, end = fleet.steps()
        return (last - first) / (end - begin)


def throughput(build, quick, ours):
    """Speed with deaths, relative to that of the surviving actors: three of four while one is down.
    """
    seconds = DEATH_EVERY_S if quick else 4 * DEATH_EVERY_S
    shares = []
    for _ in range(1 if quick else 3):
        calm = steps_per_second(build, seconds, False)
        rough = steps_per_second(build, seconds, True)
        shares.append(rough / calm)
        say(f"faults: {calm:.0f} steps/s, with deaths {rough:.0f}")
    add(ours, "an actor of four dies every 10 s", "share_of_throughput", "share", shares, "higher")


def notice(build, quick, ours):
    """Time until the launcher reports a death, and until the role is a member again; and the time
    to detect a role that is stopped."""
    dead, back, stopped = [], [], []
    with Fleet(build, CONFIG) as fleet:
        fleet.await_steps(5000)
        names = ["actor-0", "learner-0", "replay-0", "paramserver-0", "evaluator-0"]
        for name in names[:2] if quick else names * 2:
            time.sleep(2)
            after = len(fleet.log())
            os.kill(fleet.roles()[name], signal.SIGKILL)
            told, joined = fleet.await_log(after, rf"{name} ended \(killed by signal 9",
                                           f"{name} joined")
            dead.append(told)
            back.append(joined - told)
        for name in names[:1] if quick else names:
            time.sleep(2)
            after, process = len(fleet.log()), fleet.roles()[name]
            os.kill(process, signal.SIGSTOP)
            stopped += fleet.await_log(after, f"{name} (hangs|disconnected)")
            os.kill(process, signal.SIGCONT)
    add(ours, "a role is killed", "noticed_after", "s", dead)
    add(ours, "a role is killed", "a_member_again_after", "s", back)
    add(ours, "a role is stopped", "noticed_after", "s", stopped)


def pauses(fleet, seconds):
    """Longest time without a new update in the metrics."""
    longest, last, since = 0.0, fleet.metric("learner/updates"), time.monotonic()
    end = since + seconds
    while time.monotonic() < end:
        time.sleep(0.005)
        now = fleet.metric("learner/updates")
        if now > last:
            longest, last, since = max(longest, time.monotonic() - since), now, time.monotonic()
    return max(longest, time.monotonic() - since)


def takeover(build, quick, ours):
    """Longest pause of a synchronous learner with two replicated parameter shards while a shard's
    primary and backup are killed in turn; and without kills, as the resolution of the metrics."""
    keys = {"learner.sync": '"paramserver"', "paramserver.shards": 2, "paramserver.backup": "true",
            "log.metrics_every_s": 0.02, "evaluator.enabled": "false"}
    still, undisturbed = [], []
    with Fleet(build, CONFIG, **keys) as fleet:
        fleet.await_steps(5000)
        for turn in range(2 if quick else 8):
            undisturbed.append(pauses(fleet, 3))
            name = f"paramserver-{turn % 4}"
            process = fleet.roles().get(name)
            if process is None:
                raise BenchError(f"{name} is not running: {fleet.log()[-300:]}")
            os.kill(process, signal.SIGKILL)
            still.append(pauses(fleet, 4))
    case = "a shard's primary or backup is killed"
    add(ours, case, "longest_pause_of_updates", "s", still)
    add(ours, case, "longest_pause_undisturbed", "s", undisturbed)


def simulated(build, quick, ours):
    """Simulated hours per second on one core, and the number of them that violated a guarantee."""
    rates, breaches = [], 0
    for seed in range(1, 1 + (SIMULATED_QUICK_SEEDS if quick else SIMULATED_SEEDS)):
        begin = time.monotonic()
        hour = subprocess.run([build / "bench/simulation_bench", "--first-seed", str(seed),
                               "--seeds", "1", "--hours", "1", "--jobs", "1", "--no-shrink"],
                              check=False, capture_output=True, text=True, cwd=ROOT)
        rates.append(1 / (time.monotonic() - begin))
        breaches += hour.returncode != 0
    add(ours, "simulated fleet", "hours_per_s", "1/s", rates)
    add(ours, "simulated fleet", "seeds_that_broke_a_promise", "seeds", [float(breaches)], "lower")


def faults(build, quick, machine, only):
    ours = {}
    for part in (simulated, notice, takeover, throughput):
        if not only or part.__name__ in only:
            part(build, quick, ours)
    return harness.pair("faults", ours, {}, machine)


def slope_per_minute(samples):
    """Slope of (seconds, bytes) by least squares, relative to the mean."""
    times, sizes = zip(*samples)
    return 60 * statistics.linear_regression(times, sizes).slope / statistics.fmean(sizes)


def live(build, seconds, deaths):
    """Memory growth after the first third, deaths, steps/s and score of a fleet that trains for
    this time."""
    rng, killed, samples = random.Random(1), 0, []
    with Fleet(build, CONFIG) as fleet:
        fleet.await_steps(5000)
        first, begin_s = fleet.steps()
        begin = time.monotonic()
        next_death = begin + DEATH_EVERY_S
        while (now := time.monotonic()) < begin + seconds:
            if fleet.process.poll() is not None:
                raise BenchError(f"the fleet ended: {fleet.log()[-300:]}")
            if deaths and now >= next_death:
                next_death += DEATH_EVERY_S
                os.kill(rng.choice(sorted(fleet.roles().values())), signal.SIGKILL)
                killed += 1
            elif now - begin > seconds / 3:
                samples.append((now - begin, fleet.resident_bytes()))
            time.sleep(1)
        last, end_s = fleet.steps()
        fleet.stop()
        return samples, killed, (last - first) / (end_s - begin_s), fleet.score()


def soak(build, quick, machine):
    ours = {}
    minutes = 0.5 if quick else 30
    for case, seconds, deaths in (("undisturbed", minutes * 20, False),
                                  ("a death every 10 s", minutes * 60, True)):
        samples, killed, rate, score = live(build, seconds, deaths)
        say(f"soak: {case}: {killed} deaths, {rate:.0f} steps/s, score {score:.1f}")
        add(ours, case, "deaths", "deaths", [float(killed)])
        add(ours, case, "agent_steps_per_s", "1/s", [rate])
        add(ours, case, "score", "return", [score])
        add(ours, case, "memory_slope_per_minute", "share", [slope_per_minute(samples)], "lower")
    return harness.pair("soak", ours, {}, machine)
