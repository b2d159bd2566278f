#!/usr/bin/env python3
"""Writes datasets/tokenizers/unicode_data.cc from Python's unicodedata; with --digest
prints the digest that tests/datasets/tokenizers/unicode_test.cc checks.

    tools/make_unicode_tables.py [--digest]

Needs a Python with Unicode 14.0 (3.11), which the reference tokenizers ran on. The tables are one
stream of varints (7 bits per byte, lowest first), in base 64; the functions that write them
document their format. datasets/tokenizers/unicode.cc reads them.
"""

import base64
import hashlib
import pathlib
import sys
import unicodedata

PATH = pathlib.Path(__file__).resolve().parent.parent / "datasets/tokenizers/unicode_data.cc"
VERSION = "14.0.0"
END = 0x110000
SURROGATES = range(0xD800, 0xE000)
HANGUL = range(0xAC00, 0xD7A4)   # decomposed by arithmetic
(CONTROL, SPACE, PUNCTUATION, MARK, CASED, CASE_IGNORABLE, DIGIT, LETTER, NUMBER, COMBINING,
 UNASSIGNED, NOT_COMPOSED, WORD) = (1 << bit for bit in range(13))
# Symbols with the property Other_Alphabetic (PropList.txt): letters in circles and boxes.
ALPHABETIC_SYMBOLS = (range(0x24B6, 0x24EA), range(0x1F130, 0x1F14A), range(0x1F150, 0x1F16A),
                      range(0x1F170, 0x1F18A))
JOIN_CONTROL = range(0x200C, 0x200E)


def flags_of(code):
    """CharFlags of datasets/tokenizers/unicode.h."""
    char = chr(code)
    category = unicodedata.category(char)
    flags = CONTROL if category[0] == "C" else 0
    if code in SURROGATES:
        return flags
    flags |= SPACE if char.isspace() else 0
    flags |= PUNCTUATION if category[0] == "P" else 0
    flags |= MARK if category == "Mn" else 0
    flags |= DIGIT if char.isdigit() else 0
    flags |= LETTER if category[0] == "L" else 0
    flags |= NUMBER if category[0] == "N" else 0
    flags |= COMBINING if category[0] == "M" else 0
    flags |= UNASSIGNED if category == "Cn" else 0
    # Unicode Technical Standard 18, annex C: \w.
    word = category[0] in "LM" or category in ("Nd", "Nl", "Pc") or code in JOIN_CONTROL
    flags |= WORD if word or any(code in symbols for symbols in ALPHABETIC_SYMBOLS) else 0
    # NFC does not restore these after their decomposition into several characters.
    several = len(unicodedata.normalize("NFD", char)) > 1
    flags |= NOT_COMPOSED if several and unicodedata.normalize("NFC", char) != char else 0
    # A capital sigma classifies its neighbors: final after a cased letter, skipping ignorables.
    if (char + "Σ").lower().endswith("ς"):
        flags |= CASED
    elif ("A" + char + "Σ").lower().endswith("ς"):
        flags |= CASE_IGNORABLE
    return flags


class Stream:
    """Encodes integers as varints."""

    def __init__(self):
        self.bytes = bytearray()

    def add(self, *numbers):
        for number in numbers:
            while number >= 0x80:
                self.bytes.append(number & 0x7F | 0x80)
                number >>= 7
            self.bytes.append(number)

    def add_signed(self, number):
        self.add(2 * number if number >= 0 else -2 * number - 1)

    def add_ranges(self, value_of):
        """Writes a count, then the length and value of each run of equal values."""
        runs = []
        for code in range(END):
            value = value_of(code)
            if runs and runs[-1][1] == value:
                runs[-1][0] += 1
            else:
                runs.append([1, value])
        self.add(len(runs))
        for length, value in runs:
            self.add(length, value)

    def add_mapping(self, mapping):
        """Writes a count of entries, then for each: distance to the previous code point; twice its
        length, plus 1 if equal entries follow; signed distances of its replacement, the first from
        the code point, others from the previous one; and the number of equal entries, if any."""
        entries, before = [], 0
        for code, text in sorted(mapping.items()):
            steps = [ord(char) - last for char, last in zip(text, [code, *map(ord, text)])]
            entry = (code - before, steps)
            before = code
            if entries and entries[-1][0] == entry:
                entries[-1][1] += 1
            else:
                entries.append([entry, 0])
        self.add(len(entries))
        for (distance, steps), more in entries:
            self.add(distance, 2 * len(steps) + (more > 0))
            for step in steps:
                self.add_signed(step)
            if more:
                self.add(more)


def mappings():
    """Lower case; canonical decompositions; compatibility ones where they differ."""
    lower, canonical, compatible = {}, {}, {}
    for code in range(END):
        char = chr(code)
        if code in SURROGATES:
            continue
        if char.lower() != char:
            lower[code] = char.lower()
        if code in HANGUL:
            continue
        nfd, nfkd = (unicodedata.normalize(form, char) for form in ("NFD", "NFKD"))
        if nfd != char:
            canonical[code] = nfd
        if nfkd != nfd:
            compatible[code] = nfkd
    return lower, canonical, compatible


def tables():
    stream = Stream()
    stream.add_ranges(flags_of)
    stream.add_ranges(lambda code: unicodedata.combining(chr(code)))
    for mapping in mappings():
        stream.add_mapping(mapping)
    return bytes(stream.bytes)


def source():
    text = base64.b64encode(tables()).decode()
    lines = [f'    "{text[begin:begin + 92]}"' for begin in range(0, len(text), 92)]
    return "\n".join([
        "// Generated by tools/make_unicode_tables.py, which defines the format. Do not edit.",
        '#include "datasets/tokenizers/unicode_data.h"', "",
        "namespace troop::internal {", "",
        f'const std::string_view kUnicodeVersion = "{VERSION}";',
        "const std::string_view kUnicodeData =",
        *lines[:-1], lines[-1] + ";", "",
        "}  // namespace troop::internal", ""])


def is_checked(code):
    """Characters that differ from their neighbors, and the ends of blocks of the others."""
    return (code not in SURROGATES and (code < 0x3400 or code % 256 in (0, 255) or
            0xA000 <= code < 0xAD00 or 0xF900 <= code < 0x12000 or 0x16800 <= code < 0x17000 or
            0x1B000 <= code < 0x20000 or 0x2F800 <= code < 0x2FA20 or
            0xE0000 <= code < 0xE0200))


def digest():
    """SHA-256 over one line per code point: flags, combining class, lower case, NFD, NFKD, NFC of
    NFD, NFC of NFKD."""
    sha = hashlib.sha256()
    for char in map(chr, filter(is_checked, range(END))):
        forms = (unicodedata.normalize(form, char) for form in ("NFD", "NFKD", "NFC", "NFKC"))
        line = " ".join((f"{flags_of(ord(char))} {unicodedata.combining(char)}", char.lower(),
                         *forms))
        sha.update(line.encode() + b"\n")
    return sha.hexdigest()


def main():
    if unicodedata.unidata_version != VERSION:
        sys.exit(f"this Python has Unicode {unicodedata.unidata_version}, need {VERSION}")
    if sys.argv[1:] == ["--digest"]:
        print(digest())
    else:
        PATH.write_text(source(), encoding="utf-8")


if __name__ == "__main__":
    main()
