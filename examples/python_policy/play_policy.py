"""Plays an environment of Gymnasium with an exported policy: play_policy.py FILE [ENVIRONMENT].

Prints the return of each of ten episodes. LD_LIBRARY_PATH names the folder of libtroop_policy.so.
"""
import ctypes
import sys

import gymnasium
import numpy

ABI = 1  # TROOP_POLICY_ABI, for which the structures below are declared
DTYPES = {1: numpy.uint8, 2: numpy.int32, 3: numpy.float32}
DISCRETE = 1


class Source(ctypes.Structure):
    """troop_policy_source."""
    _fields_ = [("size", ctypes.c_size_t), ("abi", ctypes.c_int), ("path", ctypes.c_char_p),
                ("bytes", ctypes.c_void_p), ("byte_count", ctypes.c_size_t),
                ("message", ctypes.c_char_p), ("message_bytes", ctypes.c_size_t)]


class Observation(ctypes.Structure):
    """troop_policy_observation."""
    _fields_ = [("name", ctypes.c_char_p), ("dtype", ctypes.c_int32), ("rank", ctypes.c_int32),
                ("shape", ctypes.c_int64 * 8), ("bytes", ctypes.c_int64),
                ("frame_stack", ctypes.c_int64)]


class Action(ctypes.Structure):
    """troop_policy_action."""
    _fields_ = [("name", ctypes.c_char_p), ("kind", ctypes.c_int32), ("count", ctypes.c_int64),
                ("low", ctypes.POINTER(ctypes.c_float)), ("high", ctypes.POINTER(ctypes.c_float))]


class Call(ctypes.Structure):
    """troop_policy_call."""
    _fields_ = [("size", ctypes.c_size_t), ("first", ctypes.c_int64), ("count", ctypes.c_int64),
                ("observations", ctypes.POINTER(ctypes.c_void_p)),
                ("masks", ctypes.POINTER(ctypes.c_void_p)),
                ("actions", ctypes.POINTER(ctypes.c_void_p)), ("values", ctypes.c_void_p)]


def load_library():
    """libtroop_policy with the types of its functions."""
    library = ctypes.CDLL("libtroop_policy.so.1")
    for name in ("troop_policy_observation_at", "troop_policy_action_at"):
        getattr(library, name).argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    library.troop_policy_observation_at.restype = ctypes.POINTER(Observation)
    library.troop_policy_action_at.restype = ctypes.POINTER(Action)
    library.troop_policy_session_create.argtypes = [ctypes.c_void_p, ctypes.c_int64,
                                                    ctypes.POINTER(ctypes.c_void_p)]
    library.troop_policy_session_message.argtypes = [ctypes.c_void_p]
    library.troop_policy_session_message.restype = ctypes.c_char_p
    library.troop_policy_reset.argtypes = [ctypes.c_void_p, ctypes.c_int64]
    library.troop_policy_act.argtypes = [ctypes.c_void_p, ctypes.POINTER(Call)]
    library.troop_policy_session_destroy.argtypes = [ctypes.c_void_p]
    library.troop_policy_unload.argtypes = [ctypes.c_void_p]
    return library


class Policy:
    """The greedy policy in a file of `troop export`, for one sequence of observations."""

    def __init__(self, path):
        self._policy, self._session = ctypes.c_void_p(), ctypes.c_void_p()
        self._library = library = load_library()
        message = ctypes.create_string_buffer(256)
        source = Source(size=ctypes.sizeof(Source), abi=ABI, path=str(path).encode(),
                        message=ctypes.cast(message, ctypes.c_char_p), message_bytes=len(message))
        if library.troop_policy_load(ctypes.byref(source), ctypes.byref(self._policy)):
            raise ValueError(message.value.decode())
        observation = library.troop_policy_observation_at(self._policy, 0).contents
        self.shape = tuple(observation.shape[:observation.rank])
        self.dtype = DTYPES[observation.dtype]
        action = library.troop_policy_action_at(self._policy, 0).contents
        self.discrete, self.count = action.kind == DISCRETE, action.count
        if library.troop_policy_session_create(self._policy, 1, ctypes.byref(self._session)):
            raise MemoryError("no memory for a session")

    def reset(self):
        """The next observation begins an episode."""
        self._library.troop_policy_reset(self._session, -1)

    def act(self, observation):
        """The action: a number, or for continuous actions an array."""
        frame = numpy.ascontiguousarray(observation, self.dtype)
        if frame.shape != self.shape:
            raise ValueError(f"an observation of {frame.shape}, but the policy needs {self.shape}")
        action = numpy.empty(1 if self.discrete else self.count,
                             numpy.int32 if self.discrete else numpy.float32)
        call = Call(size=ctypes.sizeof(Call), count=1,
                    observations=(ctypes.c_void_p * 1)(frame.ctypes.data),
                    actions=(ctypes.c_void_p * 1)(action.ctypes.data))
        if self._library.troop_policy_act(self._session, ctypes.byref(call)):
            raise ValueError(self._library.troop_policy_session_message(self._session).decode())
        return int(action[0]) if self.discrete else action

    def close(self):
        """Frees the session and the policy."""
        if self._session:
            self._library.troop_policy_session_destroy(self._session)
        self._library.troop_policy_unload(self._policy)
        self._policy, self._session = ctypes.c_void_p(), ctypes.c_void_p()


def play(policy, environment, seed):
    """The return of one episode."""
    observation, _ = environment.reset(seed=seed)
    policy.reset()
    total, done = 0.0, False
    while not done:
        observation, reward, terminated, truncated, _ = environment.step(policy.act(observation))
        total += float(reward)
        done = terminated or truncated
    return total


def main(path, environment_id="CartPole-v1"):
    try:
        policy = Policy(path)
    except ValueError as error:
        sys.exit(str(error))
    environment = gymnasium.make(environment_id)
    for episode in range(10):
        print(f"{play(policy, environment, episode):g}")
    environment.close()
    policy.close()


if __name__ == "__main__":
    if len(sys.argv) not in (2, 3):
        sys.exit(f"usage: {sys.argv[0]} FILE [ENVIRONMENT]")
    main(*sys.argv[1:])
