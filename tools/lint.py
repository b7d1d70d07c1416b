#!/usr/bin/env python3
"""clang-tidy over every C++ file that a build compiles, a core each; what it finds is an error.

    tools/lint.py [--build FOLDER] [FILE...]

A file that was clean is not looked at again until it, a header of ours that it includes, or the rules
change: FOLDER/lint remembers it by its contents.

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

ROOT = Path(__file__).resolve().parent.parent
INCLUDE = re.compile(r'^\s*#\s*include\s*[<"]([^>"]+)[>"]', re.MULTILINE)
TORCH_HEADERS = ("torch/", "ATen/", "c10/")
NOISE = re.compile(r"^\d+ warnings?( and \d+ errors?)? generated\.$|^Suppressed ", re.MULTILINE)


def project_files():
    """The project's own C++ files."""
    lines = subprocess.run([ROOT / "tools" / "sources.sh"], capture_output=True, text=True, check=True)
    return {ROOT / line for line in lines.stdout.splitlines()}


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


def rules_of(file):
    """The .clang-tidy files that count for a file."""
    return [p / ".clang-tidy" for p in file.parents if p.is_relative_to(ROOT) and (p / ".clang-tidy").is_file()]


class Linter:
    def __init__(self, build):
        self.folder = build / "lint"
        self.folder.mkdir(exist_ok=True)
        self.version = subprocess.run(["clang-tidy", "--version"], capture_output=True, check=True).stdout
        text = (build / "compile_commands.json").read_text(encoding="utf-8")
        # clang cannot read a header that g++ precompiled.
        text = re.sub(r" -Winvalid-pch| -include \S*cmake_pch\.hxx", "", text)
        (self.folder / "compile_commands.json").write_text(text, encoding="utf-8")
        self.commands = {Path(entry["file"]): entry["command"] for entry in json.loads(text)}

    def lint(self, file, files):
        """True where the file is clean; else prints what is not."""
        key = hashlib.sha256(self.version + self.commands.get(file, "").encode())
        for path in files + rules_of(file):
            key.update(path.read_bytes())
        clean = self.folder / key.hexdigest()[:32]
        if clean.exists():
            return True
        done = subprocess.run(
            ["clang-tidy", "--quiet", "-p", self.folder, file], capture_output=True, text=True, check=False
        )
        if done.returncode == 0:
            clean.touch()
            return True
        print((done.stdout + NOISE.sub("", done.stderr)).strip(), flush=True)
        return False


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
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        clean = list(pool.map(lambda file: linter.lint(file, closures[file][0]), ours))
    left_out = len(files) - len(ours)
    print(f"clang-tidy: {sum(clean)} of {len(ours)} files are clean; {left_out} with LibTorch left out")
    return 0 if all(clean) else 1


if __name__ == "__main__":
    sys.exit(main())
