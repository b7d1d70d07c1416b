#!/usr/bin/env python3
"""Compares the #includes of pipewright/ with the table of folders in docs/architecture.md.

    tools/check_includes.py [--root DIR] [--table FILE]

The table is the code block that starts with a line `pipewright/`: a folder (or several) a line, what it
is for, `<-` and what it may include. A rule of dashes stands between the folders that know nothing of
LibTorch and those that use it:

    pipewright/
      base/       errors, ids, units            <- nothing
      ir/         Instruction, Program          <- base
      plan/       all of the above -> a Plan    <- the ones above
      -------- below this line: LibTorch --------
      nn/         Sequence, layers              <- base
      graph/      TorchScript import            <- nn base
      train/      Trainer, checkpoints          <- everything above but graph
      cli/        the program                   <- anything

Prints each violation as `file:line: words` and exits 1; exits 2 where the table cannot be read.
"""

import argparse
import re
import sys
from dataclasses import dataclass
from pathlib import Path

FOLDERS = re.compile(r"(\w+/(?: \w+/)*)(?=\s|$)")
RULE = re.compile(r"-{5,}")
INCLUDE = re.compile(r'\s*#\s*include\s*([<"])([^>"]+)[>"]')
PRINTING_HEADERS = {"iostream", "cstdio", "stdio.h", "print"}
PRINTING_CALLS = re.compile(r"\b(fmt::print|std::cout|std::cerr|std::clog)\b")
TORCH_HEADERS = ("torch/", "ATen/", "c10/", "caffe2/")


class TableError(Exception):
    """The table is not there or not understood."""


@dataclass(frozen=True)
class Folder:
    name: str
    may_include: tuple[str, ...]  # in the order of the table's words
    uses_torch: bool


def table_lines(text):
    """The lines below `pipewright/`, without their common indent, a continued line joined to its first."""
    lines = text.splitlines()
    starts = [i for i, line in enumerate(lines) if line.strip() == "pipewright/"]
    if not starts:
        raise TableError("no line `pipewright/` that starts the table of folders")
    margin = len(lines[starts[0]]) - len(lines[starts[0]].lstrip())
    body = []
    for line in lines[starts[0] + 1 :]:
        indent = len(line) - len(line.lstrip())
        if not line.strip() or indent <= margin:
            break
        body.append((indent, line.strip()))
    if not body:
        raise TableError("the table of folders is empty")
    least = min(indent for indent, _ in body)
    joined = []
    for indent, line in body:
        if indent == least:
            joined.append(line)
        else:
            joined[-1] += " " + line
    return joined


def allowed(words, above, where):
    """The folders that the words after `<-` name. `above`: the folders of the lines before."""
    if words == "nothing":
        return ()
    if words in ("the ones above", "everything above"):
        return tuple(above)
    if words.startswith("everything above but "):
        but = words.removeprefix("everything above but ").split()
        for name in but:
            if name not in above:
                raise TableError(f"{where}/ excepts {name}/, which is not above it")
        return tuple(name for name in above if name not in but)
    return tuple(words.split())


def read_table(text):
    """The folders of the table by name."""
    folders = {}
    uses_torch = False
    anything = set()
    for line in table_lines(text):
        if RULE.match(line):
            uses_torch = True
            continue
        names = FOLDERS.match(line)
        if not names:
            raise TableError(f"no folder at the start of `{line}`")
        words, arrow, right = line.rpartition("<-")
        if not arrow:
            raise TableError(f"no `<-` in `{line}`")
        above = list(folders)
        for name in names[1].replace("/", "").split():
            if name in folders:
                raise TableError(f"{name}/ stands twice in the table")
            if right.strip() == "anything":
                anything.add(name)
            folders[name] = Folder(name, allowed(right.strip(), above, name), uses_torch)
    for name in anything:
        folders[name] = Folder(name, tuple(n for n in folders if n != name), folders[name].uses_torch)
    for folder in folders.values():
        for name in folder.may_include:
            if name not in folders:
                raise TableError(f"{folder.name}/ may include {name}/, which the table does not have")
    return folders


def without_comments(text):
    """The text with comments blanked out, line numbers kept."""
    pattern = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"', re.DOTALL)

    def blank(match):
        return match[0] if match[0].startswith('"') else "\n" * match[0].count("\n")

    return pattern.sub(blank, text)


def check_file(path, folder, folders):
    """Yields (line number, words) for each violation in one file of `folder` (None: of no folder)."""
    text = without_comments(path.read_text(encoding="utf-8"))
    if path.suffix == ".h" and "#pragma once" not in text:
        yield 1, "no #pragma once"
    for number, line in enumerate(text.splitlines(), start=1):
        include = INCLUDE.match(line)
        if include:
            yield from ((number, words) for words in check_include(include, folder, folders))
        elif folder and folder.name != "cli" and (call := PRINTING_CALLS.search(line)):
            yield number, f"{folder.name}/ may not print ({call[0]}); cli/ alone does"


def check_include(include, folder, folders):
    quote, header = include[1], include[2]
    if header.startswith("pipewright/"):
        parts = header.split("/")
        target = parts[1] if len(parts) > 2 else None
        if folder is None:
            return
        if target is None:
            yield f"{folder.name}/ may not include {header}, which belongs to no folder"
        elif target not in folders:
            yield f"{folder.name}/ includes {target}/, which the table does not have"
        elif target != folder.name and target not in folder.may_include:
            names = " ".join(folder.may_include) or "nothing"
            yield f"{folder.name}/ may not include {target}/ (allowed: {names})"
    elif quote == '"':
        yield f'"{header}" does not start at the root; write "pipewright/..." or <...>'
    elif folder is None:
        return
    elif header.startswith(TORCH_HEADERS) and not folder.uses_torch:
        yield f"{folder.name}/ stands above the line and may not include LibTorch (<{header}>)"
    elif header in PRINTING_HEADERS and folder.name != "cli":
        yield f"{folder.name}/ may not include <{header}>; cli/ alone prints"


def check_tree(root, folders):
    """All violations below root/pipewright as `file:line: words`, and the number of files."""
    source = root / "pipewright"
    files = sorted(p for p in source.rglob("*") if p.suffix in (".h", ".cpp", ".cu", ".cuh"))
    violations = []
    unknown = set()
    for path in files:
        parts = path.relative_to(source).parts
        name = parts[0] if len(parts) > 1 else None
        shown = path.relative_to(root).as_posix()
        if name is not None and name not in folders:
            if name not in unknown:
                violations.append(f"{shown}:1: the table has no folder {name}/")
            unknown.add(name)
            continue
        for line, words in check_file(path, folders.get(name), folders):
            violations.append(f"{shown}:{line}: {words}")
    return violations, len(files)


def main(arguments=None):
    root = Path(__file__).resolve().parent.parent
    parser = argparse.ArgumentParser(description="Compares #includes with the table of folders.")
    parser.add_argument("--root", type=Path, default=root, help="the tree to check")
    parser.add_argument("--table", type=Path, help="the page (default: docs/architecture.md)")
    options = parser.parse_args(arguments)
    table = options.table or options.root / "docs" / "architecture.md"
    try:
        folders = read_table(table.read_text(encoding="utf-8"))
    except (OSError, TableError) as error:
        print(f"{table}: {error}", file=sys.stderr)
        return 2
    violations, num_files = check_tree(options.root, folders)
    for violation in violations:
        print(violation)
    if not violations:
        print(f"{num_files} files include what the table of {len(folders)} folders allows")
    return 1 if violations else 0


if __name__ == "__main__":
    sys.exit(main())
