"""Atari games as raw frames; the owner of this process makes the agent's observations from them.

An observation here is the last two gray frames of a step, [2, height, width], which the emulator
writes to shared memory; envs/atari/atari_vector_env.cc takes their maximum and resizes it.
Everything else is done here, as in Gymnasium's AtariPreprocessing: frame skip, no-op starts,
episode ends. Sticky actions are drawn here per frame instead of by the emulator, whose generator
can be seeded only by loading the game again: an episode depends on its seed and actions alone.
"""

import importlib
import random
import sys

import numpy

from .convert import Refused

FRAMES_MAX = 108_000  # per episode, half an hour of play: Bellemare et al. 2013
STICKY = 0.25  # default of "-v5": Machado et al. 2018


def import_ale():
    """Imports the emulator, or raises one sentence for the user."""
    try:
        return importlib.import_module("ale_py")
    except ModuleNotFoundError:
        raise Refused(
            f"ale-py is not installed for {sys.executable}; `pip install ale-py`, or set "
            "env.python to another interpreter"
        ) from None


def rom_of(ale_py, name):
    """Path of the ROM for an id such as "SpaceInvaders-v5"."""
    game, _, version = name.rpartition("-")
    if version != "v5" or not game:
        raise Refused(f'"ALE/{name}" is not a game; write "ALE/Pong-v5" for example')
    known = sorted(ale_py.roms.get_all_rom_ids())
    found = [rom for rom in known if rom.replace("_", "") == game.lower()]
    if not found:
        raise Refused(f'ale-py has no game "{game}"; known: {", ".join(known)}')
    return ale_py.roms.get_rom_path(found[0])


def flag(given, name):
    """Removes a boolean from the options and returns it."""
    value = given.pop(name, False)
    if not isinstance(value, bool):
        raise Refused(f"env.options.{name} = {value!r}: give true or false")
    return value


class Options:
    """Options from [env.options] and [env], with their defaults."""

    def __init__(self, request):
        given = dict(request["options"])
        self.skip = request["action_repeat"]
        self.noop_max = request["noop_max"]
        self.life_loss = flag(given, "terminal_on_life_loss")
        self.fire = flag(given, "fire_reset")
        self.all_actions = flag(given, "full_action_space")
        self.mode = given.pop("mode", None)
        self.difficulty = given.pop("difficulty", None)
        if given:
            raise Refused(
                f"env.options.{min(given)} is not an option of an Atari game; known: "
                "difficulty, fire_reset, full_action_space, mode, screen_size, "
                "terminal_on_life_loss"
            )
        sticky = request["sticky_actions"]
        self.sticky = STICKY if sticky < 0 else sticky
        self.limit = request["max_episode_steps"]
        if request["wrappers"]:
            raise Refused('env.wrappers: "ALE/..." takes no wrappers; use "gymnasium:ALE/..."')


class AleAdapter:
    """Adapter of one game."""

    def __init__(self, request):
        ale_py = import_ale()
        options = self._options = Options(request)
        ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)
        ale = self._ale = ale_py.ALEInterface()
        ale.setFloat("repeat_action_probability", 0.0)
        ale.setInt("max_num_frames_per_episode", FRAMES_MAX if options.limit < 0 else 0)
        ale.setInt("random_seed", 0)
        ale.loadROM(rom_of(ale_py, request["id"].partition("/")[2]))
        if options.mode is not None:
            ale.setMode(options.mode)
        if options.difficulty is not None:
            ale.setDifficulty(options.difficulty)
        # reset_game keeps the console's memory of the previous episode, which some games read, so
        # an episode would depend on earlier ones. Restoring this state prevents it; it includes
        # mode and difficulty.
        self._loaded = ale.cloneSystemState()
        self._actions = ale.getLegalActionSet() if options.all_actions else (
            ale.getMinimalActionSet())
        self._noop, self._fire = ale_py.Action.NOOP, ale_py.Action.FIRE
        if options.fire and self._fire not in self._actions:
            raise Refused("env.options.fire_reset: this game has no fire button")
        self._held = self._noop
        self._draw = random.Random(0).random
        self._steps = self._lives = 0
        self._goes_on = False  # the game continues, although a lost life ended the episode
        if request["meter"] is not None:
            self.step = request["meter"].wrap(self.step)
            self.reset = request["meter"].wrap(self.reset)
        self._second = numpy.zeros(ale.getScreenDims(), numpy.uint8)
        own = -(-FRAMES_MAX // options.skip)
        self.spec = {
            "observation": {"dtype": "u8", "shape": [2, *ale.getScreenDims()]},
            "observation_scale": 1 / 255,
            "action": {"kind": "discrete", "count": len(self._actions)},
            "max_episode_steps": options.limit if options.limit >= 0 else own,
        }

    def _act(self, action):
        if self._options.sticky == 0 or self._draw() >= self._options.sticky:
            self._held = action
        return self._ale.act(self._held)

    def _begin(self):
        self._ale.restoreSystemState(self._loaded)
        self._ale.reset_game()
        self._held = self._noop

    def _ended(self):
        return self._ale.game_over(with_truncation=True)

    def reset(self, seed, out):
        """Begins an episode; after the loss of a life that ended an episode, the game continues."""
        rng = random.Random(seed)
        self._draw = rng.random
        if self._goes_on:
            noops = 1
        else:
            self._begin()
            noops = rng.randint(1, self._options.noop_max) if self._options.noop_max else 0
        self._goes_on = False
        for _ in range(noops):
            self._act(self._noop)
            if self._ended():
                self._begin()
        if self._options.fire:
            self._held = self._fire  # not subject to sticky actions
            self._ale.act(self._fire)
            if self._ended():
                self._begin()
        self._steps = 0
        self._lives = self._ale.lives()
        self._ale.getScreenGrayscale(out[0])
        out[1] = 0

    def step(self, action, out):
        """Repeats an action for some frames; the last two frames are the observation.

        If the game ends earlier, frames of the previous step are used, as in AtariPreprocessing,
        whose first buffer has the maximum of both frames at that point.
        """
        ale, skip = self._ale, self._options.skip
        action = self._actions[action]
        reward = 0
        for frame in range(skip):
            reward += self._act(action)
            over = terminated = ale.game_over(with_truncation=False)
            truncated = ale.game_truncated()
            if self._options.life_loss:
                lives = ale.lives()
                terminated = terminated or lives < self._lives
                self._lives = lives
            if terminated or truncated:
                break
            if frame == skip - 2:
                ale.getScreenGrayscale(self._second)
            elif frame == skip - 1:
                ale.getScreenGrayscale(out[0])
                out[1] = self._second if skip > 1 else 0
        if (terminated or truncated) and skip > 1:
            numpy.maximum(out[0], out[1], out=out[0])
            if frame == skip - 1:
                out[1] = self._second
        self._steps += 1
        if 0 < self._options.limit <= self._steps and not terminated:
            truncated = True
        self._goes_on = terminated and not over and not truncated
        return reward, terminated, truncated

    def render(self):
        """Returns the screen in color."""
        return self._ale.getScreenRGB()

    def close(self):
        """Does nothing: the emulator is freed with the object."""
