"""The code of a page of docs/guide. A block that the tests use has its name in a comment before it:
`<!-- name -->`."""
import pathlib
import re

GUIDE = pathlib.Path(__file__).resolve().parents[2] / "docs/guide"


def blocks(name, page="replay_from_python"):
    """The code of all blocks of a name, in order."""
    pattern = rf"^<!-- {re.escape(name)} -->\n```python\n(.*?)^```$"
    return re.findall(pattern, (GUIDE / f"{page}.md").read_text(encoding="utf-8"), re.M | re.S)


def local_dqn():
    """The DQN with its replay in process: the page says which lines take the place of which."""
    (dqn,), (lines,) = blocks("dqn_troop.py"), blocks("in process")
    first, last = dqn.index("server = "), dqn.index("write = ")
    return dqn[:first] + lines + dqn[last:]
