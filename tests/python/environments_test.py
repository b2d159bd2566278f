"""Adapters of Python environments: spaces, seeds, ends, vectors; Gymnasium itself is the oracle."""
import importlib
import os
import random
import subprocess
import sys
import tempfile
import unittest
import unittest.mock

import gymnasium
import numpy
from gymnasium import spaces
from gymnasium.spaces.utils import flatten
from troop_env import adapters, source, vector, worker
from troop_env.convert import Actions, Observations, Refused

NEED_SCREENS = ("MUJOCO_GL", "DISPLAY")
NEEDS = ("gymnasium", "ale_py")


def request(name, *, rows=1, limit=-1, wrappers=(), **options):
    return {
        "id": name,
        "rows": rows,
        "options": options,
        "wrappers": list(wrappers),
        "max_episode_steps": limit,
        "action_repeat": 1,
        "meter": None,
    }


def written(space, value):
    observations = Observations(space)
    out = numpy.full(observations.shape, 7, observations.dtype)
    observations.write(value, out)
    return out


class Echo(gymnasium.Env):
    """An endless environment whose observation is the last action."""

    def __init__(self, observation=None, action=None):
        self.observation_space = observation or spaces.Box(-9, 9, (1,))
        self.action_space = action or spaces.Discrete(3, start=5)
        self.seen = []

    def reset(self, *, seed=None, options=None):
        self.seen.append(("reset", seed))
        return numpy.zeros(1, numpy.float32), {}

    def step(self, action):
        self.seen.append(action)
        return numpy.full(1, 1, numpy.float32), 1, False, False, {}


class Old(Echo):
    def reset(self):  # pylint: disable=arguments-differ
        return numpy.zeros(1, numpy.float32)


class Doubled(gymnasium.RewardWrapper):
    def reward(self, reward):
        return 2 * reward


class Spaces(unittest.TestCase):
    def test_everything_flattens_as_gymnasium_does_it(self):
        examples = [
            spaces.Discrete(5),
            spaces.Discrete(4, start=-2),
            spaces.MultiBinary(6),
            spaces.MultiBinary([2, 3]),
            spaces.MultiDiscrete([3, 4, 2]),
            spaces.MultiDiscrete([[3, 4], [2, 5]]),
            spaces.Dict(z=spaces.Box(-1, 1, (2, 3)), a=spaces.Discrete(3)),
            spaces.Tuple((spaces.Box(0, 255, (2,), numpy.uint8), spaces.MultiBinary(2))),
            spaces.Dict(outer=spaces.Dict(b=spaces.Discrete(2), c=spaces.Box(-3, 3, (1,)))),
        ]
        for space in examples:
            space.seed(3)
            for _ in range(20):
                value = space.sample()
                want = flatten(space, value).astype(numpy.float32)
                numpy.testing.assert_array_equal(written(space, value), want, str(space))

    def test_boxes_keep_their_shape_and_u8_its_type(self):
        for dtype, kept in [("uint8", "u8"), ("float64", "f32"), ("int16", "f32"), ("bool", "f32")]:
            space = spaces.Box(0, 1, (2, 3), numpy.dtype(dtype))
            self.assertEqual(Observations(space).spec(), {"dtype": kept, "shape": [2, 3]})
            value = numpy.array([[0, 1, 0], [1, 1, 0]], dtype)
            numpy.testing.assert_array_equal(written(space, value), value)
        self.assertEqual(Observations(spaces.Box(0, 255, (9, 9), numpy.uint8)).scale, 1 / 255)
        self.assertEqual(Observations(spaces.Box(0, 9, (9, 9), numpy.uint8)).scale, 1)

    def test_what_is_not_of_the_space_is_refused_with_both_types(self):
        with self.assertRaisesRegex(ValueError, r"is f64\[3\], the space says f32\[4\]"):
            written(spaces.Box(-1, 1, (4,)), numpy.zeros(3))
        with self.assertRaisesRegex(ValueError, r"is f32\[4\], the space says u8\[4\]"):
            written(spaces.Box(0, 255, (4,), numpy.uint8), numpy.zeros(4, numpy.float32))
        with self.assertRaisesRegex(ValueError, "observation 7 is not in 1..3"):
            written(spaces.Discrete(3, start=1), 7)

    def test_spaces_that_cannot_be_played_are_named(self):
        for space in (spaces.Text(5), spaces.Dict(a=spaces.Sequence(spaces.Discrete(2)))):
            with self.assertRaisesRegex(Refused, "Text|Sequence"):
                Observations(space)
        for space, why in [
            (spaces.Box(-numpy.inf, 1, (2,)), "infinite bounds"),
            (spaces.Text(3), "MultiDiscrete, MultiBinary or Box"),
            (spaces.Box(0, 3, (2,), numpy.int32), "is not of floats"),
        ]:
            with self.assertRaisesRegex(Refused, why):
                Actions(space)

    def test_bound_replaces_infinite_ones(self):
        infinite = numpy.inf
        for space, low, high in [
            (spaces.Box(-infinite, infinite, (2, 1)), [-5, -5], [5, 5]),
            (spaces.Box(numpy.array([-1, -infinite]), numpy.array([infinite, 2]),
                        dtype=numpy.float64), [-1, -5], [5, 2]),
        ]:
            actions = Actions(space, 5)
            self.assertEqual(actions.spec(), {"kind": "continuous", "low": low, "high": high})
            decoded = actions.decode(numpy.array([-5, 2], numpy.float32))
            self.assertEqual((decoded.shape, decoded.dtype), (space.shape, space.dtype))
            numpy.testing.assert_array_equal(decoded.reshape(-1), [max(-5, low[0]), 2])
        for space, bound, why in [
            (spaces.Box(-1, 1, (2,)), 5, "has finite bounds, which apply; remove env.action_bound"),
            (spaces.Box(7, infinite, (2,)), 5, "no values within env.action_bound = 5; raise it"),
            (spaces.Discrete(3), 5, "env.action_bound is for a Box"),
        ]:
            with self.assertRaisesRegex(Refused, why):
                Actions(space, bound)

    def test_many_combinations_are_one_integer_per_component(self):
        for space, highest in [
            (spaces.MultiDiscrete([100, 100]), [99, 99]),
            (spaces.MultiDiscrete([[100, 2], [3, 50]], start=[[1, 0], [-2, 0]]), [99, 1, 2, 49]),
            (spaces.MultiBinary(13), [1] * 13),
            (spaces.MultiBinary([2, 7]), [1] * 14),
        ]:
            actions = Actions(space)
            self.assertEqual(
                actions.spec(),
                {"kind": "multi_discrete", "low": [0] * len(highest), "high": highest},
            )
            for value in ([0] * len(highest), highest):
                decoded = actions.decode(numpy.array(value, numpy.float32))
                self.assertTrue(space.contains(decoded), decoded)
                flat = decoded - numpy.asarray(getattr(space, "start", 0))
                self.assertEqual(flat.reshape(-1).tolist(), value)
        few = Actions(spaces.MultiBinary(3))
        self.assertEqual(few.spec(), {"kind": "discrete", "count": 8})
        self.assertEqual(few.decode(6).tolist(), [1, 1, 0])
        self.assertTrue(spaces.MultiBinary(3).contains(few.decode(6)))
        with self.assertRaisesRegex(Refused, "at most 4096 combinations"):
            Observations(spaces.Box(-1, 1, (2,)), spaces.MultiDiscrete([100, 100]))

    def test_actions_are_those_of_the_space(self):
        self.assertEqual(Actions(spaces.Discrete(3, start=5)).decode(2), 7)
        many = Actions(spaces.MultiDiscrete([2, 3]))
        self.assertEqual(many.spec(), {"kind": "discrete", "count": 6})
        decoded = [many.decode(i).tolist() for i in range(6)]
        self.assertEqual(decoded, [[0, 0], [0, 1], [0, 2], [1, 0], [1, 1], [1, 2]])
        box = spaces.Box(numpy.array([[-1.0], [0]]), numpy.array([[2.0], [3]]), dtype=numpy.float64)
        bounded = Actions(box)
        self.assertEqual(
            bounded.spec(), {"kind": "continuous", "low": [-1, 0], "high": [2, 3]}
        )
        action = bounded.decode(numpy.array([0.5, 1], numpy.float32))
        self.assertTrue(box.contains(action), action)

    def test_actions_are_of_the_type_and_within_the_bounds_of_the_space(self):
        third = numpy.array([-1 / 3, 0.1])  # whose nearest f32 lies beyond
        examples = [
            spaces.Discrete(3),
            spaces.Discrete(3, start=-1),
            spaces.Discrete(5000),
            spaces.Discrete(3, dtype=numpy.int32),
            spaces.MultiDiscrete([2, 3], dtype=numpy.int32),
            spaces.MultiDiscrete([[2, 3], [1, 2]], dtype=numpy.uint8),
            spaces.Box(third, -2 * third[::-1] + 1, dtype=numpy.float64),
            spaces.Box(-0.1, 0.1, (2, 2), numpy.float64),
            spaces.Box(-0.1, 0.1, (), numpy.float64),
            spaces.Box(-0.1, 0.1, (3,), numpy.float16),
            spaces.Box(-0.1, 0.1, (3,)),
        ]
        for space in examples:
            actions, like = Actions(space), space.sample()
            spec = actions.spec()
            if spec["kind"] == "discrete":
                tried = range(spec["count"])
            else:
                tried = [numpy.float32(spec["low"]), numpy.float32(spec["high"])]
            for number in tried:
                action = actions.decode(number)
                self.assertIs(type(action), type(like), space)
                self.assertEqual(action.dtype, like.dtype, space)
                self.assertTrue(space.contains(action), (space, action))


class Singles(unittest.TestCase):
    def play(self, name, kwargs, action_of, **asked):
        """Compare 700 steps through the adapter with the same steps in Gymnasium."""
        adapter = adapters.make(request(f"gymnasium:{name}", **asked))
        limit = asked.get("limit", -1)
        if limit >= 0:
            kwargs = {**kwargs, "max_episode_steps": limit or -1}
        env = gymnasium.make(name, **kwargs)
        out = numpy.zeros(adapter.spec["observation"]["shape"], numpy.float32)
        lengths, length = [], 0
        adapter.reset(2**40 + 11, out)
        numpy.testing.assert_array_equal(out, env.reset(seed=11)[0])
        for t in range(700):
            ours, theirs = action_of(t)
            want, reward, terminated, truncated, _ = env.step(theirs)
            self.assertEqual(adapter.step(ours, out), (reward, terminated, truncated))
            numpy.testing.assert_array_equal(out, want.astype(numpy.float32))
            length += 1
            if terminated or truncated:
                lengths.append(length)
                length = 0
                adapter.reset(t, out)
                numpy.testing.assert_array_equal(out, env.reset(seed=t)[0])
        return adapter.spec, lengths

    def test_an_episode_is_gymnasiums_with_the_same_seed(self):
        spec, lengths = self.play("CartPole-v1", {}, lambda t: (t // 2 % 2,) * 2)
        self.assertEqual(spec["action"], {"kind": "discrete", "count": 2})
        self.assertEqual(spec["max_episode_steps"], 500)
        self.assertGreater(len(lengths), 5)

    def test_continuous_actions_arrive_in_their_shape(self):
        def action(t):
            torque = numpy.array([t % 5 - 2], numpy.float32)
            return torque, torque

        spec, lengths = self.play("Pendulum-v1", {}, action)
        self.assertEqual(spec["action"], {"kind": "continuous", "low": [-2], "high": [2]})
        self.assertEqual(lengths, [200, 200, 200])  # the clock's, which counts from 1

    def test_a_limit_of_ours_truncates(self):
        spec, lengths = self.play("MountainCar-v0", {}, lambda t: (t % 3,) * 2, limit=30)
        self.assertEqual(set(lengths), {30})
        self.assertEqual(spec["max_episode_steps"], 30)
        spec, lengths = self.play("MountainCar-v0", {}, lambda t: (1, 1), limit=0)
        self.assertEqual((spec["max_episode_steps"], lengths), (0, []))

    def test_a_limit_of_gymnasiums_own_counts_as_ours(self):
        for name in ("gymnasium", "gymnasium_vector"):
            make = adapters.make if name == "gymnasium" else vector.VectorRows
            for given, limit in [(7, 7), (-1, 0), (None, 200 if name == "gymnasium" else 0)]:
                made = make(request(f"{name}:MountainCar-v0", max_episode_steps=given))
                self.assertEqual(made.spec["max_episode_steps"], limit)
            with self.assertRaisesRegex(Refused, "both given"):
                make(request(f"{name}:MountainCar-v0", limit=3, max_episode_steps=7))
            for wrong in (0, -2, True, "7", 7.0):
                with self.assertRaisesRegex(Refused, "give a number of steps"):
                    make(request(f"{name}:MountainCar-v0", max_episode_steps=wrong))
        repeated = adapters.make(
            {**request("gymnasium:MountainCar-v0", max_episode_steps=7), "action_repeat": 2})
        self.assertEqual(repeated.spec["max_episode_steps"], 4)
        adapter = adapters.make(request("gymnasium:MountainCar-v0", max_episode_steps=7))
        out = numpy.zeros(2, numpy.float32)
        adapter.reset(1, out)
        self.assertEqual([adapter.step(1, out)[2] for _ in range(7)], [False] * 6 + [True])

    def test_the_old_gym_is_named(self):
        with self.assertRaisesRegex(Refused, "reset of Old takes no seed: .* old gym"):
            adapters.make(request(f"python:{__name__}:Old"))

    def test_plain_classes_wrappers_starts_and_seeds(self):
        here = __name__
        adapter = adapters.make(
            request(f"python:{here}:Echo", limit=4, wrappers=[f"{here}:Doubled"])
        )
        out = numpy.zeros(1, numpy.float32)
        adapter.reset(2**63 + 5, out)
        answers = [adapter.step(t % 3, out) for t in range(4)]
        self.assertEqual(answers, [(2, False, False)] * 3 + [(2, False, True)])
        env = adapter._env.unwrapped  # pylint: disable=protected-access
        self.assertEqual(env.seen, [("reset", 5), 5, 6, 7, 5])

    def test_pictures_are_drawn_where_there_are_some(self):
        class Painted(Echo):
            metadata = {"render_modes": ["rgb_array"]}

            def __init__(self, render_mode=None):
                super().__init__()
                self.render_mode = render_mode

            def render(self):
                return numpy.zeros((2, 3, 3), numpy.uint8) if self.render_mode else None

        class Claims(Echo):  # pictures, and its constructor takes no render_mode
            metadata = {"render_modes": ["rgb_array"]}

            def __init__(self):
                super().__init__()

        gymnasium.register("Painted-v0", Painted)
        gymnasium.register("Echo-v0", Echo)
        adapters.make(request(f"gymnasium:{__name__}:Echo-v0"))
        painted = adapters.make(request("gymnasium:Painted-v0"))
        painted.reset(1, numpy.zeros(1, numpy.float32))
        self.assertEqual(painted.render().shape, (2, 3, 3))
        adapters.make(request("gymnasium:Echo-v0"))  # has no render_mode
        gymnasium.register("Claims-v0", Claims)
        adapters.make(request("gymnasium:Claims-v0")).reset(1, numpy.zeros(1, numpy.float32))

    def test_pictures_without_a_screen_name_the_remedy(self):
        bare = {name: text for name, text in os.environ.items() if name not in NEED_SCREENS}
        for modules, environment, hint in [
            ({"mujoco": None}, bare, "MUJOCO_GL=egl"),
            ({"mujoco": None}, {**bare, "MUJOCO_GL": "egl"}, ""),
            ({"mujoco": None}, {**bare, "DISPLAY": ":0"}, ""),
            ({}, bare, ""),
        ]:
            with unittest.mock.patch.dict(sys.modules, modules):
                with unittest.mock.patch.dict(os.environ, environment, clear=True):
                    self.assertIn(hint, worker.no_screen())
                    self.assertEqual(bool(worker.no_screen()), bool(hint))

    def test_what_is_missing_is_named(self):
        for name, why in [
            ("gymnasium:CartPoel-v1", "gymnasium: .*CartPole"),
            ("python:nowhere.to_be:found", "no module named nowhere"),
            (f"python:{__name__}:nothing", "has no nothing"),
            ("python:math:floor:", "math has no floor:"),
            ("pyton:x:y", "no such environment"),
        ]:
            with self.assertRaisesRegex(Refused, why):
                adapters.make(request(name))
        # Started one folder too high: my_env/my_env.py is not next to my_env.
        with tempfile.TemporaryDirectory() as folder:
            os.mkdir(os.path.join(folder, "one_too_high"))
            with unittest.mock.patch.object(sys, "path", [folder, *sys.path]):
                with self.assertRaisesRegex(Refused, "one_too_high is a folder.*one_too_high.py"):
                    adapters.make(request("python:one_too_high:make_env"))
        modules = sys.modules.copy()
        sys.modules["gymnasium"] = None
        try:
            with self.assertRaisesRegex(Refused, "not installed for .*pip install gymnasium"):
                adapters.make(request("gymnasium:CartPole-v1"))
        finally:
            sys.modules.update(modules)


class NoMasks(gymnasium.vector.SyncVectorEnv):
    """A vector of the time before masks: reset() resets all environments."""

    def reset(self, *, seed=None, options=None):
        return super().reset()


def make_no_masks(num_envs):
    return NoMasks([lambda: gymnasium.make("CartPole-v1")] * num_envs)


class Vectors(unittest.TestCase):
    ROWS = 3

    def test_every_autoreset_mode_gives_the_episodes_of_single_environments(self):
        for mode in gymnasium.vector.AutoresetMode:
            made = vector.VectorRows(
                request("gymnasium_vector:CartPole-v1", rows=self.ROWS, autoreset_mode=mode.value)
            )
            with self.subTest(mode=mode):
                self.assertGreater(self.compare(made._env), 20)  # pylint: disable=protected-access

    def compare(self, env):
        """Returns how many episodes ended."""
        singles = [gymnasium.make("CartPole-v1") for _ in range(self.ROWS)]
        rows = list(range(self.ROWS))
        episode = [0] * self.ROWS

        def reset(over):
            seeds = [1000 * row + episode[row] for row in over]
            for row, seed, first in zip(over, seeds, env.reset(over, seeds)):
                numpy.testing.assert_array_equal(first, singles[row].reset(seed=seed)[0])
                episode[row] += 1

        reset(rows)
        random = numpy.random.default_rng(0)
        for _ in range(250):
            actions = random.integers(0, 2, self.ROWS)
            observations, rewards, terminated, truncated = env.step(actions)
            over = []
            for row in rows:
                want = singles[row].step(actions[row])
                numpy.testing.assert_array_equal(observations[row], want[0])
                self.assertEqual((rewards[row], terminated[row], truncated[row]), want[1:4])
                if want[2] or want[3]:
                    over.append(row)
            if over:
                reset(over)
        return sum(episode) - self.ROWS

    def test_a_vector_that_resets_all_at_once_is_refused_when_it_does(self):
        made = vector.VectorRows(request(f"python_vector:{__name__}:make_no_masks", rows=2))
        env = made._env  # pylint: disable=protected-access
        env.reset([0, 1], [1, 2])
        env.step(numpy.array([0, 1]))
        with self.assertRaisesRegex(RuntimeError, "reset_mask"):
            env.reset([1], [3])


class Ahead(unittest.TestCase):
    """The modules that a spare process imports; each case in a separate interpreter."""

    CODE = "import json, sys; from troop_env import ahead; ahead.load(json.loads(sys.argv[1])); " \
           "print(*sys.modules)"

    def loaded(self, name, *wrappers):
        asked = f'{{"id": "{name}", "wrappers": [{", ".join(wrappers)}], "options": {{}}}}'
        paths = os.pathsep.join(sys.path[:1] + [entry for entry in sys.path[1:] if entry])
        run = subprocess.run([sys.executable, "-c", self.CODE, asked], capture_output=True,
                             text=True, check=True, env={**os.environ, "PYTHONPATH": paths})
        return run.stdout.split()

    def test_the_modules_of_every_kind_of_environment_are_loaded(self):
        for name, module in [
            ("gymnasium:CartPole-v1", "gymnasium.envs.classic_control.cartpole"),
            ("gymnasium_vector:Acrobot-v1", "gymnasium.envs.classic_control.acrobot"),
            ("gymnasium:ALE/Pong-v5", "ale_py.env"),
            ("gymnasium:wave:CartPole-v1", "wave"),
            ("python:colorsys:make", "colorsys"),
            ("python_vector:colorsys:make", "colorsys"),
            ("ale_vector:pong", "ale_py.vector_env"),
            ("ALE/Pong-v5", "ale_py"),
        ]:
            with self.subTest(name):
                self.assertIn(module, self.loaded(name))
                self.assertNotIn(module, self.loaded("python:abc:make"))
        self.assertIn("wave", self.loaded("python:colorsys:make", '"wave:Wave_read"'))

    def test_what_cannot_be_imported_is_left_to_who_makes_it(self):
        for name in ["python:no_such_module:make", "gymnasium:NoSuchGame-v0", "envpool:Pong-v5"]:
            self.assertIn("troop_env.ahead", self.loaded(name, '"no_such_wrappers:One"'))


class Atari(unittest.TestCase):
    """Lives show whether the ball was served: without a served ball, waiting costs no life."""

    def lives_lost_by_waiting(self, seed, **options):
        game = adapters.make(
            {**request("ALE/Breakout-v5", **options), "action_repeat": 4, "noop_max": 30,
             "sticky_actions": 0.25})
        out = numpy.zeros(game.spec["observation"]["shape"], numpy.uint8)
        game.reset(seed, out)
        lives = game._ale.lives()  # pylint: disable=protected-access
        for _ in range(100):
            game.step(0, out)
        return lives - game._ale.lives()  # pylint: disable=protected-access

    def test_fire_reset_serves_whatever_action_sticks(self):
        for seed in range(20):
            self.assertGreater(self.lives_lost_by_waiting(seed, fire_reset=True), 0, seed)
        self.assertEqual(self.lives_lost_by_waiting(0), 0)

    def test_an_episode_does_not_depend_on_those_before_it(self):
        # Regression: the memory of these games survived a reset.
        for name in ["Assault", "BeamRider", "Berzerk", "DemonAttack", "ElevatorAction",
                     "FishingDerby", "Pong"]:
            game = adapters.make({**request(f"ALE/{name}-v5"), "action_repeat": 4,
                                  "noop_max": 30, "sticky_actions": 0.25})
            out = numpy.zeros(game.spec["observation"]["shape"], numpy.uint8)

            def play(seed, game=game, out=out):
                draw = random.Random(seed)
                game.reset(seed, out)
                seen = [out.tobytes()]
                for _ in range(130):
                    game.step(draw.randrange(game.spec["action"]["count"]), out)
                    seen.append(out.tobytes())
                return seen

            first = play(1)
            play(2)
            self.assertTrue(play(1) == first, name)  # no list of differences: it takes minutes

    def test_fire_reset_is_refused_where_there_is_no_such_button(self):
        with self.assertRaisesRegex(Refused, "no fire button"):
            adapters.make({**request("ALE/Freeway-v5", fire_reset=True), "noop_max": 0,
                           "sticky_actions": 0.0})


class SourceTest(unittest.TestCase):
    """The code that fleets compare: the same wherever it lies, another with each byte."""

    def describe(self, files, name="python:mine:Env", wrappers=()):
        with tempfile.TemporaryDirectory() as folder:
            for path, text in files.items():
                os.makedirs(os.path.dirname(f"{folder}/{path}"), exist_ok=True)
                with open(f"{folder}/{path}", "w", encoding="utf-8") as file:
                    file.write(text)
            sys.path.insert(0, folder)
            importlib.invalidate_caches()
            try:
                asked = request(name, wrappers=wrappers)
                for module in source.modules(asked):
                    importlib.import_module(module)
                return source.describe(asked)
            finally:
                sys.path.remove(folder)
                for module in [m for m in sys.modules if m.partition(".")[0] in ("mine", "theirs")]:
                    del sys.modules[module]

    def test_module(self):
        code = self.describe({"mine.py": "Env = 1\n"})
        self.assertRegex(code, "^1 Python file of 8 bytes, checksum [0-9a-f]{8}$")
        self.assertEqual(self.describe({"mine.py": "Env = 1\n"}), code)  # in another folder
        self.assertEqual(self.describe({"mine.py": "Env = 1\n", "other.py": ""}), code)
        self.assertNotEqual(self.describe({"mine.py": "Env = 2\n"}), code)

    def test_package(self):
        files = {"mine/__init__.py": "", "mine/a.py": "Env = 1\n", "mine/data.txt": "x"}
        code = self.describe(files, "python:mine.a:Env")
        self.assertRegex(code, "^2 Python files of 8 bytes")
        self.assertEqual(self.describe({**files, "mine/data.txt": "y"}, "python:mine.a:Env"), code)
        for change in ({"mine/a.py": "Env = 2\n"}, {"mine/b.py": ""}, {"mine/__init__.py": "#"}):
            self.assertNotEqual(self.describe({**files, **change}, "python:mine.a:Env"), code)

    def test_wrappers_and_registering_modules_count(self):
        files = {"mine.py": "Env = 1\n", "theirs.py": "Wrap = 1\n"}
        self.assertIn("2 Python files", self.describe(files, wrappers=["theirs:Wrap"]))
        self.assertIn("1 Python file ", self.describe(files, "gymnasium:theirs:Env-v0"))
        for name in ("gymnasium:CartPole-v1", "ALE/Pong-v5", "envpool:Pong-v5"):
            self.assertEqual(source.describe(request(name, wrappers=["gymnasium.wrappers:X"])), "")


if __name__ == "__main__":
    unittest.main()
