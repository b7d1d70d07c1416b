// Writes the pages that browser_test.py opens, and beside them what the test is to find:
//
//     run_make_page FOLDER    ->  FOLDER/report.html, FOLDER/report.json, FOLDER/metrics.jsonl,
//     FOLDER/bare.html

#include <fmt/format.h>

#include <string>

#include "pipewright/base/error.h"
#include "pipewright/base/file.h"
#include "pipewright/checkpoint/layout.h"
#include "pipewright/run/report.h"
#include "tests/run/sample.h"

namespace pipewright {
namespace {

void make_pages(const std::string& folder) {
  const std::string path = testing_run::make_sample_run(folder, {.name = "sample"});
  const RunReport report = make_report(read_run(path));
  const auto write = [&](const std::string& name, const std::string& text) {
    write_file(in_folder(folder, name), text, "run_make_page");
  };
  write("report.html", to_html(report));
  write("report.json", to_json(report));
  write("metrics.jsonl", read_file(in_folder(path, kMetricsFile), "run_make_page"));

  // A run of which nothing but its existence is known, with a name that would break a careless
  // page.
  RunFacts facts;
  facts.model = "a\"</script><!-- \xE2\x80\xA8 & <b>\xC3\xA9</b>";
  const RunFolder bare = RunFolder::create(folder, "bare", facts);
  write("bare.html", to_html(make_report(read_run(bare.path()))));
}

}  // namespace
}  // namespace pipewright

int main(int argc, char** argv) {
  if (argc != 2) {
    fmt::print(stderr, "usage: run_make_page FOLDER\n");
    return 2;
  }
  try {
    pipewright::make_pages(argv[1]);
  } catch (const pipewright::Error& error) {
    fmt::print(stderr, "{}\n", error.what());
    return 1;
  }
  return 0;
}
