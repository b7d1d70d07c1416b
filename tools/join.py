#!/usr/bin/env python3
"""Which C++ files may be compiled as one: those that define no name twice.

    tools/join.py LARGEST FILE...

Prints a line for each file: the number of its group and its path. Most of a file's compile time goes into the
headers of others; files of a group share it. cmake/join.cmake asks, and tools/lint.py uses the functions.
"""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
INCLUDE = re.compile(r'^\s*#\s*include\s*[<"]([^>"]+)[>"]', re.MULTILINE)
TORCH_HEADERS = ("torch/", "ATen/", "c10/")
# What a file defines outside of its functions, as well as a glance can tell.
TYPE = re.compile(r"^(?:(?:struct|class|enum class|enum|using) |TORCH_MODULE\()(\w+)\b(?!::)", re.MULTILINE)
NAME = re.compile(
    r"^(?:#define (\w+)|((?:TEST|INSTANTIATE)\w*\([^)]*\)|BENCHMARK_MAIN)"
    r'|(?:\[\[\w+\]\] |extern "C" )?(?:[\w:<>,*&]+ )+[*&]?(\w+)(?: =|\(|\{|;|\[))',
    re.MULTILINE,
)


def closure(file):
    """The file and the headers of ours that it includes, in order, and whether any includes LibTorch."""
    files, seen, torch = [], {file}, False
    waiting = [file]
    while waiting:
        path = waiting.pop()
        files.append(path)
        for header in INCLUDE.findall(path.read_text(encoding="utf-8")):
            torch = torch or header.startswith(TORCH_HEADERS)
            for included in (ROOT / header, path.parent / header):  # examples have headers of their own
                if included not in seen and included.is_file():
                    seen.add(included)
                    waiting.append(included)
    return files, torch


def names_of(file):
    text = file.read_text(encoding="utf-8")
    return {name for match in NAME.findall(text) for name in match if name} | set(TYPE.findall(text))


def header_types(files):
    """The types of the headers among the files."""
    return {name for file in files if file.suffix == ".h" for name in TYPE.findall(file.read_text(encoding="utf-8"))}


def clash(a, b):
    """Whether two files, as (names, types of their headers), define the same."""
    (names, types), (other_names, other_types) = a, b
    return bool(names & (other_names | other_types) or other_names & types)


def main():
    largest, files = int(sys.argv[1]), [Path(name).resolve() for name in sys.argv[2:]]
    groups = []
    for file in files:
        known = names_of(file), header_types(closure(file)[0]) - names_of(file)
        fits = (group for group in groups if len(group) < largest and not any(clash(known, other) for other in group))
        group = next(fits, None)
        if group is None:
            group = []
            groups.append(group)
        group.append(known)
        print(groups.index(group), file)
    return 0


if __name__ == "__main__":
    sys.exit(main())
