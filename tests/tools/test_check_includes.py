"""Facts about tools/check_includes.py: what the table's words mean, and that each violation is caught."""

import contextlib
import io
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "tools"))
import check_includes  # noqa: E402

# The block of the design page, as docs/architecture.md holds it.
TABLE = (Path(__file__).parent / "data" / "architecture.md").read_text(encoding="utf-8")


class Table(unittest.TestCase):
    def setUp(self):
        self.folders = check_includes.read_table(TABLE)

    def allowed(self, name):
        return " ".join(self.folders[name].may_include)

    def test_has_all_folders_in_order(self):
        self.assertEqual(
            " ".join(self.folders),
            "base ir cost trace schedule partition recompute sim plan nn memory graph transport exec "
            "amp optim profile train models data cli",
        )

    def test_reads_names(self):
        self.assertEqual(self.allowed("sim"), "ir cost trace base")

    def test_nothing_is_no_folder(self):
        self.assertEqual(self.allowed("base"), "")

    def test_the_ones_above_end_at_the_own_line(self):
        self.assertEqual(
            self.allowed("plan"), "base ir cost trace schedule partition recompute sim"
        )

    def test_reads_a_continued_line(self):
        self.assertEqual(self.allowed("nn"), "base")

    def test_everything_above_but_one(self):
        self.assertEqual(
            self.allowed("train"),
            "base ir cost trace schedule partition recompute sim plan nn memory transport exec amp optim "
            "profile",
        )

    def test_joined_folders_share_a_line(self):
        self.assertEqual(self.allowed("amp"), "nn base")
        self.assertEqual(self.allowed("optim"), "nn base")
        self.assertEqual(self.allowed("data"), "nn base")

    def test_folders_named_in_the_words_are_not_folders(self):
        self.assertNotIn("inproc", self.folders)
        self.assertNotIn("tests", self.folders)

    def test_anything_is_all_the_others(self):
        self.assertEqual(set(self.folders["cli"].may_include), set(self.folders) - {"cli"})

    def test_the_rule_parts_libtorch(self):
        self.assertFalse(self.folders["plan"].uses_torch)
        self.assertTrue(self.folders["nn"].uses_torch)

    def test_the_pages_own_table_reads(self):
        page = ROOT / "docs" / "architecture.md"
        self.assertIn("base", check_includes.read_table(page.read_text(encoding="utf-8")))


class TableErrors(unittest.TestCase):
    def expect(self, table, words):
        with self.assertRaises(check_includes.TableError) as caught:
            check_includes.read_table(table)
        self.assertEqual(str(caught.exception), words)

    def test_no_table(self):
        self.expect("# Architecture\n", "no line `pipewright/` that starts the table of folders")

    def test_empty_table(self):
        self.expect("pipewright/\n\nwords\n", "the table of folders is empty")

    def test_no_arrow(self):
        self.expect("pipewright/\n  base/  errors\n", "no `<-` in `base/  errors`")

    def test_no_folder(self):
        self.expect("pipewright/\n  base  <- nothing\n", "no folder at the start of `base  <- nothing`")

    def test_unknown_folder(self):
        self.expect(
            "pipewright/\n  base/  errors  <- bse\n",
            "base/ may include bse/, which the table does not have",
        )

    def test_folder_twice(self):
        self.expect(
            "pipewright/\n  base/  a  <- nothing\n  base/  b  <- nothing\n",
            "base/ stands twice in the table",
        )

    def test_exception_that_is_not_above(self):
        self.expect(
            "pipewright/\n  a/  x  <- nothing\n  b/  y  <- everything above but c\n",
            "b/ excepts c/, which is not above it",
        )


class Tree(unittest.TestCase):
    """Runs the check over a small tree of one file."""

    def check(self, path, text):
        with tempfile.TemporaryDirectory() as root:
            file = Path(root) / path
            file.parent.mkdir(parents=True)
            file.write_text(text, encoding="utf-8")
            return check_includes.check_tree(Path(root), check_includes.read_table(TABLE))[0]

    def test_allowed_includes_pass(self):
        text = (
            "#pragma once\n#include <vector>\n#include <fmt/format.h>\n"
            '#include "pipewright/sim/other.h"\n#include "pipewright/ir/program.h"\n'
        )
        self.assertEqual(self.check("pipewright/sim/x.h", text), [])

    def test_folder_that_is_not_allowed(self):
        self.assertEqual(
            self.check("pipewright/sim/x.h", '#pragma once\n\n#include "pipewright/plan/plan.h"\n'),
            ["pipewright/sim/x.h:3: sim/ may not include plan/ (allowed: ir cost trace base)"],
        )

    def test_folder_that_is_not_allowed_in_brackets(self):
        self.assertEqual(
            self.check("pipewright/base/x.cpp", "#include <pipewright/ir/program.h>\n"),
            ["pipewright/base/x.cpp:1: base/ may not include ir/ (allowed: nothing)"],
        )

    def test_nested_folders_belong_to_the_first(self):
        self.assertEqual(
            self.check("pipewright/transport/inproc/x.cpp", '#include "pipewright/nn/x.h"\n'),
            ["pipewright/transport/inproc/x.cpp:1: transport/ may not include nn/ (allowed: base)"],
        )

    def test_folder_that_the_table_does_not_have(self):
        self.assertEqual(
            self.check("pipewright/ir/x.cpp", '#include "pipewright/util/x.h"\n'),
            ["pipewright/ir/x.cpp:1: ir/ includes util/, which the table does not have"],
        )

    def test_file_in_a_folder_that_the_table_does_not_have(self):
        self.assertEqual(
            self.check("pipewright/util/x.h", "#pragma once\n"),
            ["pipewright/util/x.h:1: the table has no folder util/"],
        )

    def test_header_of_no_folder(self):
        self.assertEqual(
            self.check("pipewright/ir/x.cpp", '#include "pipewright/pipewright.h"\n'),
            ["pipewright/ir/x.cpp:1: ir/ may not include pipewright/pipewright.h, which belongs to no folder"],
        )

    def test_include_that_does_not_start_at_the_root(self):
        self.assertEqual(
            self.check("pipewright/ir/x.cpp", '#include "program.h"\n'),
            [
                'pipewright/ir/x.cpp:1: "program.h" does not start at the root; write "pipewright/..." '
                "or <...>"
            ],
        )

    def test_libtorch_above_the_line(self):
        for header in ("torch/torch.h", "ATen/ATen.h", "c10/util/Exception.h"):
            self.assertEqual(
                self.check("pipewright/plan/x.cpp", f"#include <{header}>\n"),
                [
                    "pipewright/plan/x.cpp:1: plan/ stands above the line and may not include LibTorch "
                    f"(<{header}>)"
                ],
            )

    def test_libtorch_below_the_line_passes(self):
        self.assertEqual(self.check("pipewright/nn/x.cpp", "#include <torch/torch.h>\n"), [])

    def test_header_without_pragma_once(self):
        self.assertEqual(
            self.check("pipewright/ir/x.h", "// #pragma once\n"),
            ["pipewright/ir/x.h:1: no #pragma once"],
        )

    def test_printing_headers_outside_cli(self):
        for header in ("iostream", "cstdio"):
            self.assertEqual(
                self.check("pipewright/ir/x.cpp", f"#include <{header}>\n"),
                [f"pipewright/ir/x.cpp:1: ir/ may not include <{header}>; cli/ alone prints"],
            )
            self.assertEqual(self.check("pipewright/cli/x.cpp", f"#include <{header}>\n"), [])

    def test_printing_calls_outside_cli(self):
        self.assertEqual(
            self.check("pipewright/ir/x.cpp", 'void f() {\n  fmt::print("x");\n}\n'),
            ["pipewright/ir/x.cpp:2: ir/ may not print (fmt::print); cli/ alone does"],
        )

    def test_includes_in_comments_do_not_count(self):
        text = '// #include "pipewright/plan/plan.h"\n/*\n#include "pipewright/plan/plan.h"\n*/\n'
        self.assertEqual(self.check("pipewright/ir/x.cpp", text), [])


class Program(unittest.TestCase):
    def run_on(self, files):
        with tempfile.TemporaryDirectory() as root:
            for path, text in files.items():
                (Path(root) / path).parent.mkdir(parents=True, exist_ok=True)
                (Path(root) / path).write_text(text, encoding="utf-8")
            out = io.StringIO()
            with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
                status = check_includes.main(["--root", root])
            return status, out.getvalue().replace(root + "/", "")

    def test_says_what_it_checked(self):
        status, out = self.run_on(
            {"docs/architecture.md": TABLE, "pipewright/ir/x.cpp": "#include <vector>\n"}
        )
        self.assertEqual(status, 0)
        self.assertEqual(out, "1 files include what the table of 21 folders allows\n")

    def test_exits_1_and_lists_every_violation(self):
        include = '#include "pipewright/cli/x.h"\n'
        status, out = self.run_on(
            {
                "docs/architecture.md": TABLE,
                "pipewright/ir/x.cpp": include,
                "pipewright/nn/x.cpp": include,
            }
        )
        self.assertEqual(status, 1)
        self.assertEqual(
            out,
            "pipewright/ir/x.cpp:1: ir/ may not include cli/ (allowed: base)\n"
            "pipewright/nn/x.cpp:1: nn/ may not include cli/ (allowed: base)\n",
        )

    def test_exits_2_without_a_table(self):
        status, out = self.run_on({"docs/architecture.md": "# Architecture\n"})
        self.assertEqual(status, 2)
        self.assertEqual(
            out,
            "docs/architecture.md: no line `pipewright/` that starts the table of folders\n",
        )


if __name__ == "__main__":
    unittest.main()
