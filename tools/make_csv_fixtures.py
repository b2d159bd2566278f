#!/usr/bin/env python3
"""Writes what pandas reads from hard tables to tests/fixtures/text/tables.jsonl.

    pip install pandas==3.1.1
    tools/make_csv_fixtures.py

A line is {"delimiter", "text", "rows"}: the table, and its rows as lists of fields, or null if
pandas.read_csv rejects it. Rows of unequal length are not compared, since pandas fills them up.
"""

import io
import json
import pathlib

import pandas

FILE = pathlib.Path(__file__).resolve().parent.parent / "tests/fixtures/text/tables.jsonl"
TABLES = [
    (",", 'a,b\n1,"x, ""y""\nz"\n,\n'),
    (",", 'a,b\r\n1,2\r\n"3\r\n4",5\r\n\r\n'),
    (",", "a,b\r1,2\r3,4"),
    (",", "\ufeffa,b\n1,2\n"),
    (",", '\ufeff"a",b\n1,2\n'),
    (",", 'a,b\n5" disc,2\n1,12"" x\n'),
    (",", 'a,b\n1,"x"y\n"x"" y" z "q",1\n'),
    (",", 'a,b\n1, "x"\n"",""\n'),
    (",", 'a,b\n"x""",\n"""",""""""\n'),
    (",", "a,b\n \n1,2\n\t\n3,4\n  \r\n5,6\n   "),
    (",", "\n\n  \na,b\n   1,2\n ,\n"),
    (",", "a,b\n1,"),
    (",", 'a,b\n"x\ry",2\n"\n\n",3\n'),
    (",", "a,b\ncafé ☕,naïve\u00a0\u2028x\n\u200b,\U0001f600\n"),
    (",", "a\nx\n\n\"\"\ny\n"),
    (",", 'a\n"b\nc'),
    (",", 'a,b\n1,2\n"open,3\n'),
    ("\t", "a\tb\n \t \n1,5\t2\n\t\n"),
    ("\t", 'a\tb\n"x\ty"\t5" disc\n\n  \n1\t2\n'),
    (";", 'a;b\n1,5;"2;3"\n;\n'),
    ("|", 'a|b\nx|"y|z"\n'),
]


def rows_of(delimiter, text):
    try:
        table = pandas.read_csv(io.BytesIO(text.encode()), sep=delimiter, header=None, dtype=str,
                                keep_default_na=False, na_filter=False)
    except pandas.errors.ParserError:
        return None
    return table.values.tolist()


def main():
    lines = [json.dumps({"delimiter": delimiter, "text": text, "rows": rows_of(delimiter, text)})
             for delimiter, text in TABLES]
    FILE.write_text("\n".join(lines) + "\n")
    print(f"{FILE}: {len(lines)} tables, pandas {pandas.__version__}")


if __name__ == "__main__":
    main()
