#!/usr/bin/env python3
"""clang-tidy over every C++ file that a build compiles; what it finds is an error.

    tools/lint.py [--build FOLDER] [FILE...]

A file that was clean is not looked at again until it, a header of ours that it includes, or the rules
change: FOLDER/lint remembers it by its contents.

Nearly all of clang-tidy's time goes into headers of others (the standard library, GoogleTest), once a file. So
files that are compiled alike and define no name twice are joined, one after the other, and looked at as one;
what is found is said with the file and line it came from. A group that does not compile is looked at file by
file.

Files that include LibTorch are left out: clang 14 cannot compile Debian's LibTorch 1.13 as C++20
(c10::IValue is incomplete where libstdc++ 12's constexpr vector wants it). g++'s warnings remain for them.
"""

import argparse
import hashlib
import json
import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from join import INCLUDE, ROOT, closure, header_types, names_of

LARGEST_GROUP = 24
NOISE = re.compile(r"^\d+ warnings?( and \d+ errors?)? generated\.$|^Suppressed ", re.MULTILINE)


def project_files():
    """The project's own C++ files."""
    lines = subprocess.run([ROOT / "tools" / "sources.sh"], capture_output=True, text=True, check=True)
    return {ROOT / line for line in lines.stdout.splitlines()}


def rules_of(file):
    """The .clang-tidy files that count for a file."""
    return [p / ".clang-tidy" for p in file.parents if p.is_relative_to(ROOT) and (p / ".clang-tidy").is_file()]


def twice(file):
    """What is said of headers that the file includes twice."""
    headers = INCLUDE.findall(file.read_text(encoding="utf-8"))
    return "".join(f"{file}: error: {h} is included twice\n" for h in sorted(set(headers)) if headers.count(h) > 1)


def compiled_by(entry):
    """The files that one command of a build compiles: those that CMake joined (cmake/join.cmake), or one."""
    file = Path(entry["file"])
    if file.suffix != ".cxx" or "Unity" not in file.parts:
        return [file]
    return [Path(name) for name in INCLUDE.findall(file.read_text(encoding="utf-8"))]


class Group:
    """Files that are joined into one, in a folder of its own where their rules count."""

    def __init__(self, flags, rules):
        self.flags, self.rules, self.names, self.types, self.files = flags, rules, set(), set(), []

    def takes(self, flags, rules, names, types):
        alike = self.flags == flags and self.rules == rules and len(self.files) < LARGEST_GROUP
        return alike and not (self.names | self.types) & names and not self.names & types

    def add(self, file, names, types):
        self.files.append(file)
        self.names |= names
        self.types |= types

    def write(self, folder):
        """The joined file."""
        for rules in reversed(self.rules):  # the outermost first, each in a folder within
            folder.mkdir(parents=True, exist_ok=True)
            (folder / ".clang-tidy").write_bytes(rules.read_bytes())
            joined = folder / "joined.cpp"
            folder = folder / "inner"
        joined.write_text("".join(file.read_text(encoding="utf-8") for file in self.files), encoding="utf-8")
        beside = " ".join(f"-iquote {folder}" for folder in sorted({file.parent for file in self.files}))
        command = f"{self.flags} {beside} -c {joined}"
        entry = {"file": str(joined), "directory": str(joined.parent), "command": command}
        (joined.parent / "compile_commands.json").write_text(json.dumps([entry]), encoding="utf-8")
        return joined

    def place(self, line):
        """The file and the line in it of a line of the joined file."""
        for file in self.files:
            length = file.read_text(encoding="utf-8").count("\n")
            if line <= length:
                break
            line -= length
        return file, line

    def lint(self, folder):
        """What clang-tidy finds, as {file: text}, and the groups to look at instead where this one did not compile."""
        joined = self.write(folder)
        # What is included twice in the joined file need not be so in one of them: see twice().
        command = ["clang-tidy", "--quiet", "--checks=-readability-duplicate-include", "-p", joined.parent, joined]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        found = {file: text for file in self.files if (text := twice(file))}
        if done.returncode == 0:
            return found, []
        file = self.files[0]
        for line in (done.stdout + NOISE.sub("", done.stderr)).strip().splitlines(keepends=True):
            at = re.match(re.escape(str(joined)) + r":(\d+)(.*)", line, re.DOTALL)
            if at:
                file, number = self.place(int(at[1]))
                line = f"{file}:{number}{at[2]}"
            found[file] = found.get(file, "") + line
        apart = [file for file, text in found.items() if "[clang-diagnostic-error]" in text]
        if not apart or len(self.files) == 1:
            return found, []
        rest = [file for file in self.files if file not in apart]
        return {}, [self.part(files) for files in [rest, *([file] for file in apart)] if files]

    def part(self, files):
        part = Group(self.flags, self.rules)
        part.files = files
        return part


class Linter:
    def __init__(self, build):
        self.folder = build / "lint"
        self.folder.mkdir(exist_ok=True)
        self.version = subprocess.run(["clang-tidy", "--version"], capture_output=True, check=True).stdout
        text = (build / "compile_commands.json").read_text(encoding="utf-8")
        # clang cannot read a header that g++ precompiled.
        text = re.sub(r" -Winvalid-pch| -include \S*cmake_pch\.hxx", "", text)
        self.commands = {file: entry["command"] for entry in json.loads(text) for file in compiled_by(entry)}

    def flags(self, file):
        """How the file is compiled."""
        return re.sub(r" -o \S+| -c \S+", "", self.commands.get(file, f"c++ -std=c++20 -I{ROOT}"))

    def mark(self, file, files):
        """The path that is there where the file is known to be clean."""
        key = hashlib.sha256(self.version + self.flags(file).encode())
        for path in files + rules_of(file):
            key.update(path.read_bytes())
        return self.folder / key.hexdigest()[:32]

    def groups(self, files, closures):
        groups = []
        for file in files:
            flags, rules, names = self.flags(file), rules_of(file), names_of(file)
            types = header_types(closures[file])
            group = next((group for group in groups if group.takes(flags, rules, names, types - names)), None)
            if group is None:
                group = Group(flags, rules)
                groups.append(group)
            group.add(file, names, types)
        return sorted(groups, key=lambda group: -len(group.files))

    def lint(self, files, closures):
        """What is found, as {file: text}; a core each for the groups."""
        found = {}
        waiting = self.groups(files, closures)
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            while waiting:
                folders = [self.folder / f"group{number}" for number in range(len(waiting))]
                results = list(pool.map(Group.lint, waiting, folders))
                for texts, _ in results:
                    found.update(texts)
                waiting = [group for _, groups in results for group in groups]
        return found


def main():
    parser = argparse.ArgumentParser(description="clang-tidy over every C++ file that a build compiles.")
    parser.add_argument("--build", type=Path, default=ROOT / "build", help="the build (default: build)")
    parser.add_argument("files", nargs="*", type=Path, metavar="FILE")
    options = parser.parse_args()
    build = options.build.resolve()
    if not (build / "compile_commands.json").is_file():
        sys.exit(f"lint: no {build}/compile_commands.json; run make build first")
    linter = Linter(build)
    files = [f.resolve() for f in options.files] or sorted(project_files() & linter.commands.keys())
    closures = {file: closure(file) for file in files}
    ours = [file for file in files if not closures[file][1]]
    headers = {file: closures[file][0] for file in ours}
    marks = {file: linter.mark(file, headers[file]) for file in ours}
    found = linter.lint([file for file in ours if not marks[file].exists()], headers)
    for file in ours:
        if file in found:
            print(found[file].strip(), flush=True)
        else:
            marks[file].touch()
    left_out = len(files) - len(ours)
    print(f"clang-tidy: {len(ours) - len(found)} of {len(ours)} files are clean; {left_out} with LibTorch left out")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
