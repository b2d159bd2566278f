#!/usr/bin/env python3
"""Tests of the harness: pairing, ratios, verification, the README's table. Starts no benchmark."""
import json
import os
import pathlib
import re
import stat
import sys
import tempfile
import unittest
import unittest.mock

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
# pylint: disable=wrong-import-position
import curves  # noqa: E402
import games  # noqa: E402
import harness  # noqa: E402
import onpolicy  # noqa: E402
import readme  # noqa: E402
import replay  # noqa: E402
import runs  # noqa: E402
import sharding  # noqa: E402

MACHINE = {"cpu": "test", "cores": 2, "fma_gflops": 100.0, "copy_gb_s": 10.0, "fsync_per_s": 1e3}


def line(case="c", unit="us", values=(1, 2, 3), **more):
    return {"case": case, "metric": "m", "unit": unit, "values": list(values), **more}


def rows_of(ours, peers):
    sides = ({}, {})
    harness.collect(ours, sides[0])
    harness.collect(peers, sides[1])
    return harness.pair("s", *sides, MACHINE)


def rows_of_peer(rows, peer):
    return [row for row in rows if row["peer"] == peer]


class CurvesTest(unittest.TestCase):
    def test_an_interval_is_around_the_mean_and_narrows_with_more_seeds(self):
        self.assertEqual(curves.interval([5.0, 5.0, 5.0]), (5.0, 5.0))
        few, many = curves.interval([0.0, 1.0] * 4), curves.interval([0.0, 1.0] * 40)
        # 80 draws: a standard deviation of 0.056, so 95 % are 0.39 to 0.61.
        self.assertAlmostEqual(many[0], 0.39, delta=0.03)
        self.assertAlmostEqual(many[1], 0.61, delta=0.03)
        self.assertLess(few[0], many[0])
        self.assertGreater(few[1], many[1])

    def test_a_curve_is_the_mean_of_lines_between_evaluations(self):
        runs = [{"curve": [(0, 0.0), (50, 50.0), (100, 0.0)]}, {"curve": [(40, 10.0), (90, 10.0)]}]
        curve = dict(curves.mean_curve(runs, 100))
        for steps, value in ((0, 5.0), (25, 17.5), (50, 30.0), (100, 5.0)):
            self.assertAlmostEqual(curve[steps], value)


class OnPolicyTest(unittest.TestCase):
    def test_a_score_counts_down_to_the_lower_end_of_the_peers_interval(self):
        # 480 to 500: mean 490, variance 62.5, so 2.776 * sqrt(62.5 / 5) = 9.8 below.
        peer = [480.0, 485.0, 490.0, 495.0, 500.0]
        self.assertTrue(onpolicy.reached([480.5] * 5, peer))
        self.assertFalse(onpolicy.reached([480.0] * 5, peer))
        self.assertTrue(onpolicy.reached([500.0], [500.0]))
        self.assertFalse(onpolicy.reached([499.0], [500.0]))


TRAINS = r"""#!/bin/sh
echo "$@" >> "$(dirname "$0")/calls"
for word; do
  case "$word" in
    name=*) name=$(echo "$word" | tr -d "'" | cut -c6-);;
    log.dir=*) folder=$(echo "$word" | tr -d "'" | cut -c9-);;
    seed=*) seed=${word#seed=};;
  esac
done
run=$folder/$name
[ "$1" = resume ] && run=$2 && seed=7
[ "$seed" = 9 ] && mkdir -p "$run/restore" && echo "broken off" >&2 && exit 1
mkdir -p "$run"
echo '{"final_return_mean": '$seed'.5, "steps": 100, "updates": 90}' > "$run/result.json"
echo '{"steps": 0, "return_mean": 1}' > "$run/evaluations.jsonl"
"""


class RecordedGamesTest(unittest.TestCase):
    """The committed rows of the suite `games`."""

    def test_each_recorded_run_belongs_to_a_case_of_today(self):
        # A changed config would train 56 million steps again: change it only on purpose.
        lines = games.RUNS.read_text(encoding="utf-8").splitlines()
        self.assertEqual(len(games.read_runs()), len(lines))


class GamesTest(unittest.TestCase):
    """Tests with a stub program: which runs are started, recorded, resumed and reported."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        (self.root / "bench/results").mkdir(parents=True)
        (self.root / "configs").mkdir()
        self.config("total_steps = 5")
        program = self.root / "troop"
        program.write_text(TRAINS, encoding="utf-8")
        program.chmod(program.stat().st_mode | stat.S_IXUSR)
        for name, value in (("ROOT", self.root), ("RUNS", self.root / "bench/results/runs.jsonl"),
                            ("CASES", {"scores": [self.case(1, 2)]})):
            patch = unittest.mock.patch.object(games, name, value)
            patch.start()
            self.addCleanup(patch.stop)

    def config(self, text):
        (self.root / "configs/apex_asterix.toml").write_text(f"# says\n{text}  # why\n",
                                                             encoding="utf-8")

    @staticmethod
    def case(*seeds, **keys):
        return games.case("scores", "Asterix", "Asterix", keys, seeds)

    def train(self, *cases):
        games.CASES["scores"][:] = cases
        with unittest.mock.patch.object(games, "say"):
            games.train_all(self.root, cases, {"commit": "abc"})

    def calls(self):
        path = self.root / "calls"
        return path.read_text(encoding="utf-8").splitlines() if path.exists() else []

    def test_a_run_that_is_done_is_kept_and_not_run_again(self):
        self.train(self.case(1, 2))
        self.assertEqual(len(self.calls()), 2)
        self.assertTrue(all("fleet.mode=serial" in call for call in self.calls()))
        self.assertEqual([line["return"] for line in games.read_runs().values()], [1.5, 2.5])
        self.train(self.case(1, 2, 3))
        self.assertEqual(len(self.calls()), 3)

    def test_runs_of_another_config_do_not_count(self):
        self.train(self.case(1))
        self.config("total_steps = 6")
        self.assertEqual(games.read_runs(), {})
        self.train(self.case(1))
        self.assertEqual(len(self.calls()), 2)
        games.CASES["scores"][:] = [self.case(1, **{"actor.n_step": 1})]
        self.assertEqual(games.read_runs(), {})

    def test_a_comment_does_not_make_another_config(self):
        self.train(self.case(1))
        path = self.root / "configs/apex_asterix.toml"
        path.write_text("# says more\n\ntotal_steps = 5  # and why not\n", encoding="utf-8")
        self.assertEqual(len(games.read_runs()), 1)

    def test_one_that_was_broken_off_is_resumed_and_the_others_are_kept(self):
        with self.assertRaises(harness.BenchError):
            self.train(self.case(1, 9))
        self.train(self.case(1, 9))
        self.assertEqual([call.split()[0] for call in self.calls()],
                         ["train", "train", "resume"])
        self.assertEqual([line["seed"] for line in games.read_runs().values()], [1, 9])

    def test_rows_and_table_have_mean_interval_and_the_published_figure(self):
        self.train(self.case(1, 2))
        rows = {row["metric"]: row for row in games.rows_of(MACHINE, ["scores"])}
        self.assertEqual(rows["return"]["value"], 2.0)
        self.assertEqual(rows["return"]["peer_value"], games.GAMES["Asterix"])
        self.assertEqual(rows["return, 95 % from"]["value"], 1.5)
        self.assertIn("| Asterix | 2 | 2.0 | 1.5 to 2.5 | 1.5, 2.5 | 6.9 |", games.document())
        games.CASES["scores"][:] = [self.case(5)]
        self.assertIn("none yet", games.document())

    def test_a_curve_is_thinned_from_its_end(self):
        points = games.thin(list(range(1001)))
        self.assertLessEqual(len(points), games.POINTS)
        self.assertEqual(points[-1], 1000)
        self.assertEqual(games.thin([1, 2]), [1, 2])


class HarnessTest(unittest.TestCase):
    def script(self, name, text):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        path = pathlib.Path(folder.name) / name
        path.write_text(text, encoding="utf-8")
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
        return path

    def test_less_time_is_better(self):
        row = rows_of([line(values=[2, 2, 2])], [line(values=[8, 8, 8], peer="p")])[0]
        self.assertEqual((row["ratio"], row["value"], row["peer_value"]), (4, 2, 8))

    def test_more_per_second_is_better(self):
        row = rows_of([line(unit="1/s", values=[9])], [line(unit="1/s", values=[3], peer="p")])[0]
        self.assertEqual(row["ratio"], 3)

    def test_a_line_may_say_which_way_is_better(self):
        row = rows_of([line(unit="loss", values=[1], better="lower")],
                      [line(unit="loss", values=[2], peer="p")])[0]
        self.assertEqual(row["ratio"], 2)

    def test_absent_peer_is_null_and_has_no_ratio(self):
        row = rows_of([line()], [line(case="other", peer="p")])[0]
        self.assertEqual((row["peer"], row["ratio"], row["verified"]), (None, None, None))

    def test_every_peer_of_a_case_gets_a_row(self):
        rows = rows_of([line()], [line(peer="p"), line(peer="q")])
        self.assertEqual([row["peer"] for row in rows], ["p", "q"])

    def test_different_results_have_no_ratio(self):
        row = rows_of([line(check=[1.0, 2.0])], [line(check=[1.0, 2.1], peer="p")])[0]
        self.assertEqual((row["verified"], row["ratio"]), (False, None))

    def test_results_within_the_tolerance_agree(self):
        row = rows_of([line(check=[1.0, 100.0], check_tolerance=1e-3)],
                      [line(check=[1.09, 100.0], peer="p")])[0]
        self.assertIs(row["verified"], True)

    def test_results_of_different_length_differ(self):
        row = rows_of([line(check=[1.0])], [line(check=[1.0, 1.0], peer="p")])[0]
        self.assertIs(row["verified"], False)

    def test_a_round_that_differs_is_seen_although_the_last_agrees(self):
        row = rows_of([line(check=[1.0]), line(check=[1.0])],
                      [line(check=[2.0], peer="p"), line(check=[1.0], peer="p")])[0]
        self.assertIs(row["verified"], False)

    def test_random_play_is_compared_within_its_own_tolerance(self):
        ours = [line(check=[7.0], play=[-0.60], play_tolerance=0.05)]
        for play, verified in ((-0.62, True), (-0.65, False)):
            row = rows_of(ours, [line(play=[play], peer="p")])[0]
            self.assertIs(row["verified"], verified)

    def test_different_units_are_refused(self):
        with self.assertRaises(harness.BenchError):
            rows_of([line(unit="us")], [line(unit="ms", peer="p")])

    def test_rounds_are_gathered_and_spread_is_relative(self):
        sides = {}
        for values in ([1, 2], [3], [4, 5]):
            harness.collect([line(values=values)], sides)
        row = harness.pair("s", sides, {}, MACHINE)[0]
        self.assertEqual((row["value"], row["samples"]), (3, 5))
        self.assertAlmostEqual(row["spread"], 0.67)

    def test_rows_have_the_documented_keys(self):
        row = rows_of([line()], [])[0]
        for key in ("suite case metric unit value spread peer peer_version peer_value ratio "
                    "machine").split():
            self.assertIn(key, row)

    def test_programs_take_turns(self):
        log = self.script("log", "")
        program = self.script("ours", f"#!/bin/sh\necho ours >> {log}\necho '{json.dumps(line())}'")
        peer = self.script("peer.py", f"open('{log}', 'a').write('peer\\n')\n"
                           f"print('{json.dumps(line(peer='p'))}')")
        self.set_python(sys.executable)
        rows = harness.take_turns("s", program, peer, False, MACHINE)
        self.assertEqual(log.read_text(encoding="utf-8").split(), ["ours", "peer"] * 5)
        self.assertEqual((rows[0]["samples"], rows[0]["peer"]), (15, "p"))

    def test_peer_that_fails_is_absent(self):
        program = self.script("ours", f"#!/bin/sh\necho '{json.dumps(line())}'")
        peer = self.script("peer.py", "raise SystemExit('no torch here')")
        self.set_python(sys.executable)
        self.assertIsNone(harness.take_turns("s", program, peer, False, MACHINE)[0]["peer"])

    def test_program_that_fails_says_so_in_one_line(self):
        program = self.script("ours", "#!/bin/sh\necho first >&2\necho why >&2\nexit 3")
        with self.assertRaisesRegex(harness.BenchError, "exited with 3: why$"):
            harness.run_program([program])

    def build_with(self, **programs):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        build = pathlib.Path(folder.name)
        (build / "bench").mkdir()
        for name, text in programs.items():
            path = build / "bench" / name
            path.write_text(f"#!/bin/sh\n{text}", encoding="utf-8")
            path.chmod(path.stat().st_mode | stat.S_IXUSR)
        return build

    def test_a_part_of_the_replay_is_told_its_name_and_rounds(self):
        build = self.build_with(
            program="[ \"$1 $2 $3\" = \"--part tree \" ] && echo '" + json.dumps(line()) + "'")
        ours = {}
        replay.run_part(replay.Part("program", "tree", 1, rounds=2), build, False, ours, {})
        self.assertEqual(len(ours[("c", "m", None)].values), 6)

    def test_a_program_of_the_replay_that_is_not_built_has_no_rows(self):
        ours = {}
        replay.run_part(replay.Part("program", "tree", 1), self.build_with(), False, ours, {})
        self.assertEqual(ours, {})

    def test_the_frames_games_are_the_same_for_all(self):
        games = [re.findall(r'"([a-z_]+)"', re.search(pattern, (HERE / path).read_text(
            encoding="utf-8"), re.S).group(1)) for path, pattern in (
                ("replay_cases.cc", r"kGames = \{(.*?)\}"),
                ("peers/record_atari.py", r"GAMES = \((.*?)\)"),
                ("peers/replay_peers.py", r"GAMES = \((.*?)\)"),
                ("peers/replay_reverb.py", r"GAMES = \((.*?)\)"))]
        self.assertEqual(len(games[0]), 10)
        self.assertTrue(all(names == games[0] for names in games))

    def test_a_share_is_shown_as_percent(self):
        self.assertEqual(readme.human(0.0123, "share"), "1.23%")

    def set_python(self, python):
        before = os.environ.get("TROOP_PEERS_PYTHON")
        os.environ["TROOP_PEERS_PYTHON"] = str(python)
        self.addCleanup(lambda: os.environ.pop("TROOP_PEERS_PYTHON") if before is None
                        else os.environ.update(TROOP_PEERS_PYTHON=before))

    def test_worst_seed_is_a_row_of_its_own(self):
        sides = {}
        for value in (500, 18, 499):
            runs.add(sides, "CartPole-v1", "return", "return", value)
        runs.add_worst(sides)
        rows = {row["metric"]: row["value"] for row in harness.pair("s", sides, {}, MACHINE)}
        self.assertEqual(rows, {"return": 499, "worst_return": 18})

    def test_readme_shows_every_suite_that_has_results(self):
        with tempfile.TemporaryDirectory() as folder:
            folder = pathlib.Path(folder)
            self.assertEqual(readme.numbers_of(folder), readme.NONE)
            row = rows_of([line(unit="1/s", values=[21.3e6])],
                          [line(unit="1/s", values=[2.13e6], peer="gym", peer_version="1")])[0]
            (folder / "env.jsonl").write_text(json.dumps(row) + "\n", encoding="utf-8")
            text = readme.numbers_of(folder)
        self.assertIn("| c | m | 21.3 M/s | gym 1 | 2.13 M/s | 10× |", text)
        self.assertIn("100 GFLOP/s", text)

    # Bytes of the largest of 2 or 4 shards of a tenth of VGG-16: fc6 alone, or equal bytes.
    LARGEST = {("layer", 4): 41105856, ("memory", 4): 27672000,
               ("layer", 8): 41105856, ("memory", 8): 13836032}

    def test_sharding_has_the_model_of_the_published_setting(self):
        for workers, ratio in ((4, 1.18), (8, 1.73)):   # 1.5 s of computing for each crossing
            layer, memory = (sharding.step_model(self.LARGEST[kind, workers], workers)
                             for kind in sharding.SHARDINGS)
            self.assertAlmostEqual(layer / memory, ratio, delta=0.005)

    def sharding_rows(self, factor):
        """Rows of an experiment whose steps by layer take `factor` times the model's time."""
        ours, peers, medians = {}, {}, {}
        for (kind, workers), largest in self.LARGEST.items():
            model = sharding.step_model(largest, workers)
            medians[kind, workers] = (model * (factor if kind == "layer" else 1), model)
        sharding.add_ratios(medians, ours, peers)
        return harness.pair("sharding", ours, peers, MACHINE)

    @unittest.mock.patch("sharding.say")
    def test_sharding_is_verified_where_the_model_is_near(self, _):
        for factor, near in ((1.0, True), (1.1, True), (0.9, True), (1.3, False), (0.7, False)):
            rows = rows_of_peer(self.sharding_rows(factor), "model")
            self.assertEqual([row["verified"] for row in rows], [near, near], factor)
        published = [row["peer_value"] for row in rows_of_peer(self.sharding_rows(1), "published")]
        self.assertEqual(published, [1.2, 1.66])

    @unittest.mock.patch("sharding.say")
    def test_shardings_that_give_other_weights_are_not_verified(self, _):
        for other, same in ((7, True), (8, False)):
            ours, peers = {}, {}
            told = {"layer": [7, 7], "memory": [7, other]}
            lines = [{"digits": kind, "workers": [{"crc": crc, "accuracy": 0.9} for crc in crcs]}
                     for kind, crcs in told.items()]
            sharding.add_digits(lines, ours, peers)
            self.assertIs(harness.pair("s", ours, peers, MACHINE)[0]["verified"], same)

    @unittest.mock.patch("sharding.say")
    def test_sharding_without_its_tools_is_skipped_with_a_line(self, say):
        with unittest.mock.patch("shutil.which", return_value=None):
            self.assertEqual(sharding.run(pathlib.Path("none"), True, MACHINE), [])
        self.assertIn("skipped: unshare is absent", say.call_args.args[0])


if __name__ == "__main__":
    unittest.main()
