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
UNNAMED = re.compile(r"^namespace \{$(.*?)^\}  // namespace$", re.MULTILINE | re.DOTALL)
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


def names_in(text):
    return {name for match in NAME.findall(text) for name in match if name} | set(TYPE.findall(text))


def names_of(file):
    return names_in(file.read_text(encoding="utf-8"))


def header_types(files):
    """The types of the headers among the files."""
    return {name for file in files if file.suffix == ".h" for name in TYPE.findall(file.read_text(encoding="utf-8"))}


def own_names(file):
    """What the file defines for itself alone."""
    return {n for part in UNNAMED.findall(file.read_text(encoding="utf-8")) for n in names_in(part)}


class File:
    def __init__(self, path):
        self.path, self.names, self.own = path, names_of(path), own_names(path)
        headers = [file for file in closure(path)[0] if file.suffix == ".h"]
        self.known = {name for header in headers for name in names_of(header)}

    def clashes(self, other):
        """What one calls its own may not be what the other one's headers define."""
        mine, theirs = self.known - other.known, other.known - self.known
        return bool(self.names & other.names or self.own & theirs or other.own & mine)


def main():
    largest, files = int(sys.argv[1]), [File(Path(name).resolve()) for name in sys.argv[2:]]
    groups = []
    for file in files:
        fits = (group for group in groups if len(group) < largest and not any(map(file.clashes, group)))
        group = next(fits, None)
        if group is None:
            group = []
            groups.append(group)
        group.append(file)
        print(groups.index(group), file.path)
    return 0


if __name__ == "__main__":
    sys.exit(main())
