"""README's numbers, made from bench/results/*.jsonl."""
import json

import games
from harness import BenchError

BEGIN, END = "<!-- numbers:begin -->", "<!-- numbers:end -->"
GAMES_BEGIN, GAMES_END = "<!-- games:begin -->", "<!-- games:end -->"
SUITES = ("env", "nn", "supervised", "imdb", "learn", "games", "pong", "gorila", "e2e",
          "replay", "collective", "paramserver", "codec", "sharding", "text", "faults", "soak",
          "fleet")
TITLES = {"env": "Environments", "nn": "Networks", "supervised": "Supervised training",
          "imdb": "Reviews",
          "learn": "Learning", "games": "Games", "pong": "Atari", "gorila": "Gorila",
          "e2e": "End to end",
          "replay": "Replay", "collective": "Collectives",
          "paramserver": "Parameter shards", "codec": "Codecs of gradients",
          "sharding": "Sharding of parameters", "text": "Tokens",
          "faults": "Faults", "soak": "Soak", "fleet": "Fleets"}
NONE = "No full run is recorded yet: `bench/run env nn learn e2e`."


def human(value, unit):
    """A number as a reader wants it: 21.3 M/s, 398 us, 500."""
    if value is None:
        return "–"
    if unit == "1/s":
        for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
            if abs(value) >= size:
                return f"{value / size:.3g} {letter}/s"
        return f"{value:.3g}/s"
    if unit == "share":
        return f"{value:.2%}"
    text = f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
    return f"{text} {unit}" if unit in ("s", "ms", "us", "ns", "bytes") else text


def machine_line(machine):
    when = f", {machine['date']} at {machine['commit']}" if machine.get("commit") else ""
    return (f"Measured on {machine['cpu']}, {machine['cores']} cores{when}: "
            f"{machine.get('fma_gflops', 0):,.0f} GFLOP/s of fp32 FMA on one core, "
            f"{machine.get('copy_gb_s', 0):.3g} GB/s copied, "
            f"{machine.get('fsync_per_s', 0):,.0f} fsyncs/s. Medians.")


def table(rows):
    lines = ["| case | metric | Troop | peer | its figure | ratio |", "|---|---|--:|---|--:|--:|"]
    for row in rows:
        peer = f"{row['peer']} {row['peer_version']}" if row["peer"] else "–"
        ratio = f"{row['ratio']:.3g}×" if row["ratio"] else "–"
        lines.append(f"| {row['case']} | {row['metric'].replace('_', ' ')} "
                     f"| {human(row['value'], row['unit'])} | {peer} "
                     f"| {human(row['peer_value'], row['unit'])} | {ratio} |")
    return "\n".join(lines)


def read_rows(path):
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line]


def brief(rows):
    """Of each case and metric the best peer's row; not those of cold caches, and of games what
    docs/design/evidence.md does not say better."""
    best = {}
    for row in rows:
        key = (row["case"], row["metric"])
        kept = best.get(key)
        if kept is None or (row["ratio"] or 0) < (kept["ratio"] or 0):
            best[key] = row
    return [row for row in best.values() if not row["case"].endswith("-cold")
            and (row.get("suite") != "games" or games.is_headline(row))]


def numbers_of(results):
    """The Markdown between README's markers for a folder of results."""
    parts = []
    said = None
    for suite in SUITES:
        rows = read_rows(results / f"{suite}.jsonl")
        if not rows:
            continue
        line = machine_line(rows[0]["machine"])
        parts.append(f"**{TITLES[suite]}**" + ("" if line == said else f" {line}"))
        parts.append(table(brief(rows)))
        said = line
    return "\n\n".join(parts) if parts else NONE


def between(text, begin, end, inside):
    head, rest = text.split(begin)
    return f"{head}{begin}\n{inside}\n{end}{rest.split(end)[1]}"


def made(root):
    """{path: its text} of all that is made from bench/results."""
    texts = {}
    for name, begin, end, inside in (
            ("README.md", BEGIN, END, numbers_of(root / "bench/results")),
            ("docs/design/evidence.md", GAMES_BEGIN, GAMES_END, games.document())):
        text = (root / name).read_text(encoding="utf-8")
        if begin not in text or end not in text:
            raise BenchError(f"{name}: the markers {begin} and {end} are missing")
        texts[name] = between(text, begin, end, inside)
    return texts


def write_readme(root):
    for name, text in made(root).items():
        (root / name).write_text(text, encoding="utf-8")
