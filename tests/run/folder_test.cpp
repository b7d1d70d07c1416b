#include "pipewright/run/folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <filesystem>

#include "pipewright/base/file.h"
#include "pipewright/run/record.h"
#include "tests/checkpoint/sample.h"
#include "tests/refusal.h"
#include "tests/run/sample.h"

namespace pipewright {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::Contains;
using testing::HasSubstr;
using testing_checkpoint::in_child;
using testing_checkpoint::TempFolder;
using testing_run::make_sample_run;
using testing_run::sample_facts;

constexpr double kNow = 1763229627;  // 2025-11-15T18:00:27Z

std::string text_of(const std::string& path) { return read_file(path, "test"); }

TEST(Facts, AreReadAsTheyWereWritten) {
  RunFacts facts = sample_facts();
  facts.name = "a";
  facts.sessions = {{kNow, kNow + 60, 0, 30, 0, Outcome::kStopped, "Ctrl-C"},
                    {kNow + 100, 0, 20, 20, 10, Outcome::kRunning, ""}};
  EXPECT_EQ(parse_facts(to_json(facts), "run.json"), facts);
}

TEST(Facts, WrongOnesAreRefusedByName) {
  const std::string good = to_json(sample_facts());
  const auto with = [&](const std::string& from, const std::string& to) {
    std::string text = good;
    text.replace(text.find(from), from.size(), to);
    return refusal([&] { parse_facts(text, "run.json"); });
  };
  EXPECT_THAT(with("pipewright-run", "other"), HasSubstr("[run.json] this is of no run"));
  EXPECT_THAT(with("\"version\": 1", "\"version\": 2"),
              HasSubstr("of version 2, this program reads 1"));
  EXPECT_THAT(with("\"cores\": 8", "\"cores\": \"8\""),
              HasSubstr("run.cores is not a whole number"));
  EXPECT_THAT(with("\"host\"", "\"hots\""), HasSubstr("run.hots is no member there"));
  EXPECT_THAT(with("\"1.13.1\"", "1"), HasSubstr("versions.libtorch is number, not a string"));
  EXPECT_THAT(with("\"sessions\": []", "\"sessions\": [{\"started\": \"noon\"}]"),
              HasSubstr("'noon' is no time such as"));
  EXPECT_THAT(with("\"sessions\": []", "\"sessions\": [{\"started\": \"2026-02-30T00:00:00Z\"}]"),
              HasSubstr("is no time such as"));
  EXPECT_THAT(refusal([] { parse_facts("{", "run.json"); }),
              HasSubstr("no JSON: mistake at line 1"));
}

TEST(Facts, TimesAreThoseOfTheCalendar) {
  EXPECT_EQ(format_utc(0), "1970-01-01T00:00:00Z");
  EXPECT_EQ(format_utc(951782400.75), "2000-02-29T00:00:00Z");
  EXPECT_EQ(format_utc(kNow), "2025-11-15T18:00:27Z");
}

TEST(RunFolder, IsMadeOfANameOrTheTime) {
  const TempFolder dir;
  const RunFolder named = RunFolder::create(dir / "runs", "first", {}, kNow);
  EXPECT_EQ(named.path(), dir / "runs/first");
  EXPECT_EQ(named.facts().name, "first");
  const RunFolder timed = RunFolder::create(dir / "runs", "", {}, kNow);
  EXPECT_EQ(timed.path(), dir / "runs/20251115-180027");
  const RunFolder same_second = RunFolder::create(dir / "runs", "", {}, kNow);
  EXPECT_EQ(same_second.path(), dir / "runs/20251115-180027-2");
}

TEST(RunFolder, DoesNotMixWithAnotherRunNorWithOtherFiles) {
  const TempFolder dir;
  { const RunFolder run = RunFolder::create(dir.path(), "a", {}, kNow); }
  EXPECT_THAT(refusal([&] { RunFolder::create(dir.path(), "a", {}, kNow); }),
              AllOf(HasSubstr("holds a run already"), HasSubstr("--resume")));
  fs::create_directories(dir / "photos");
  write_file(dir / "photos/1.jpg", "", "test");
  EXPECT_THAT(refusal([&] { RunFolder::create(dir.path(), "photos", {}, kNow); }),
              HasSubstr("photos' is not empty and holds no run; choose another name"));
  write_file(dir / "file", "", "test");
  EXPECT_THAT(refusal([&] { RunFolder::create(dir.path(), "file", {}, kNow); }),
              HasSubstr("is no folder"));
  fs::create_directories(dir / "empty");
  EXPECT_EQ(refusal([&] { RunFolder::create(dir.path(), "empty", {}, kNow); }), "accepted");
}

TEST(RunFolder, RefusesNamesThatLeadElsewhere) {
  const TempFolder dir;
  for (const char* name : {"../up", "a/b", ".hidden", "a b"})
    EXPECT_THAT(refusal([&] { RunFolder::create(dir.path(), name, {}, kNow); }),
                HasSubstr("is no name for a run"))
        << name;
}

TEST(RunFolder, SaysWhereItCannotBeMade) {
  const TempFolder dir;
  write_file(dir / "file", "", "test");
  EXPECT_THAT(refusal([&] { RunFolder::create(dir / "file", "a", {}, kNow); }),
              HasSubstr("cannot make the folder"));
}

TEST(RunFolder, IsHeldByOneProcessAndLetGoWhenThatIsKilled) {
  const TempFolder dir;
  { const RunFolder run = RunFolder::create(dir.path(), "a", {}, kNow); }
  const int status = in_child([&] {
    const RunFolder mine = RunFolder::open(dir / "a");
    const bool refused = refusal([&] {
                           RunFolder::open(dir / "a");
                         }).find("another process trains") != std::string::npos;
    return refused && read_run(dir / "a").is_live ? 0 : 1;
  });
  EXPECT_EQ(status, 0);
  EXPECT_EQ(refusal([&] { RunFolder::open(dir / "a"); }), "accepted");
  EXPECT_FALSE(read_run(dir / "a").is_live);
}

TEST(RunFolder, OpensRunsAlone) {
  const TempFolder dir;
  EXPECT_THAT(refusal([&] { RunFolder::open(dir / "none"); }), HasSubstr("there is no folder"));
  EXPECT_THAT(refusal([&] { RunFolder::open(dir.path()); }), HasSubstr("it is empty"));
  EXPECT_FALSE(fs::exists(dir / "lock"));
}

TEST(RunFolder, AResumedRunDropsWhatItIsToDoAgainAndSaysSo) {
  const TempFolder dir;
  std::string path;
  {
    RunFolder run = RunFolder::create(dir.path(), "a", {}, kNow);
    path = run.path();
    EXPECT_EQ(run.begin_session(0, kNow).dropped_steps, 0);
    RunLog log(run, false, kNow);
    for (std::int64_t step = 1; step <= 10; ++step) {
      StepMetrics metrics;
      metrics.step = step;
      log.step(metrics);
    }
  }  // killed: no end of the session
  const std::string metrics = path + "/metrics.jsonl";
  write_file(metrics, text_of(metrics) + "{\"step\": 11, ", "test");
  EXPECT_THAT(read_run(path).notes, Contains(HasSubstr("last line of metrics.jsonl is cut short")));
  EXPECT_THAT(read_run(path).notes, Contains(HasSubstr("its process was killed")));

  RunFolder run = RunFolder::open(path);
  const SessionStart start = run.begin_session(6, kNow + 100);
  EXPECT_EQ(start.dropped_steps, 4);
  EXPECT_EQ(start.cut_bytes, 13);
  RunLog log(run, false, kNow);
  StepMetrics next;
  next.step = 7;
  log.step(next);
  run.end_session(7, Outcome::kFinished, "", kNow + 200);
  const RunRecord record = read_run(path);
  ASSERT_EQ(record.metrics.steps.size(), 7U);
  EXPECT_EQ(record.metrics.steps.back().step, 7);
  EXPECT_EQ(record.last_step(), 7);
  EXPECT_EQ(record.metrics.cut_bytes, 0);
  ASSERT_EQ(record.facts.sessions.size(), 2U);
  EXPECT_EQ(record.facts.sessions[1].dropped_steps, 4);
  EXPECT_THAT(record.notes, Contains(HasSubstr("continued from step 6: 4 steps")));
}

TEST(RunFolder, KeepsAConfigThatIsReplaced) {
  const TempFolder dir;
  RunFolder run = RunFolder::create(dir.path(), "a", {}, kNow);
  run.begin_session(0, kNow);
  run.write_config("steps = 1\n");
  run.begin_session(20, kNow);
  run.write_config("steps = 1\n");
  EXPECT_FALSE(fs::exists(run.file("config.until-step-20.toml")));
  run.write_config("steps = 2\n");
  EXPECT_EQ(text_of(run.file("config.until-step-20.toml")), "steps = 1\n");
  EXPECT_EQ(text_of(run.file("config.toml")), "steps = 2\n");
}

TEST(RunFolder, TheNewestOfSeveralIsTheOneThatBeganLast) {
  const TempFolder dir;
  EXPECT_EQ(newest_run(dir / "none"), "");
  EXPECT_EQ(newest_run(dir.path()), "");
  RunFolder::create(dir.path(), "b", {}, kNow).begin_session(0, kNow);
  RunFolder::create(dir.path(), "a", {}, kNow).begin_session(0, kNow + 5);
  fs::create_directories(dir / "z");
  EXPECT_EQ(newest_run(dir.path()), dir / "a");
}

TEST(ReadRun, FindsAllThatWasWritten) {
  const TempFolder dir;
  const std::string path = make_sample_run(dir.path());
  const RunRecord run = read_run(path);
  const Profile profile = testing_run::sample_profile();
  const Plan plan = testing_run::sample_plan(profile);
  EXPECT_EQ(run.plan, plan);
  EXPECT_EQ(run.profile, profile);
  EXPECT_EQ(run.metrics.steps.size(), 300U);
  EXPECT_EQ(run.metrics.validations.size(), 12U);
  EXPECT_THAT(run.config, HasSubstr("[pipeline]"));
  ASSERT_TRUE(run.measured && run.predicted);
  EXPECT_EQ(run.measured->step, 300);
  const Timeline expected = testing_run::measured_timeline(profile, plan);
  ASSERT_EQ(run.measured->timeline.ranks.size(), expected.ranks.size());
  for (std::size_t r = 0; r < expected.ranks.size(); ++r) {
    ASSERT_EQ(run.measured->timeline.ranks[r].size(), expected.ranks[r].size());
    for (std::size_t i = 0; i < expected.ranks[r].size(); ++i) {
      EXPECT_EQ(run.measured->timeline.ranks[r][i].start, expected.ranks[r][i].start);
      EXPECT_EQ(run.measured->timeline.ranks[r][i].end, expected.ranks[r][i].end);
      EXPECT_EQ(run.measured->timeline.ranks[r][i].kind, expected.ranks[r][i].kind);
      EXPECT_EQ(run.measured->timeline.ranks[r][i].micro_batch, expected.ranks[r][i].micro_batch);
    }
    EXPECT_EQ(run.measured->timeline.memory[r].size(), expected.memory[r].size());
  }
}

TEST(ReadRun, RefusesWhatIsNoRun) {
  const TempFolder dir;
  EXPECT_THAT(refusal([&] { read_run(dir / "none"); }), HasSubstr("there is no folder"));
  fs::create_directories(dir / "empty");
  EXPECT_THAT(refusal([&] { read_run(dir / "empty"); }),
              HasSubstr("empty' is not the folder of a run: it is empty"));
  write_file(dir / "file", "", "test");
  EXPECT_THAT(refusal([&] { read_run(dir / "file"); }), HasSubstr("is no folder"));
  EXPECT_THAT(refusal([&] { read_run(dir.path()); }), HasSubstr("it has no run.json"));
  fs::create_directories(dir / "odd/run.json");
  EXPECT_THAT(refusal([&] { read_run(dir / "odd"); }), HasSubstr("it is no regular file"));
}

TEST(ReadRun, NamesTheFileThatIsDamaged) {
  const TempFolder dir;
  const std::string path = make_sample_run(dir.path(), {.steps = 20});
  for (const char* name : {"run.json", "plan.json", "profile.json", "timeline_measured.json",
                           "timeline_predicted.json"}) {
    const std::string file = path + "/" + name;
    const std::string before = text_of(file);
    for (const std::string& damaged : {std::string(), before.substr(0, before.size() / 2),
                                       std::string("[]"), std::string("{}"), std::string("null")}) {
      write_file(file, damaged, "test");
      EXPECT_THAT(refusal([&] { read_run(path); }), HasSubstr(name)) << damaged.substr(0, 40);
    }
    write_file(file, before, "test");
  }
  EXPECT_EQ(refusal([&] { read_run(path); }), "accepted");
}

TEST(ReadRun, RefusesFilesOfTwoRuns) {
  const TempFolder dir;
  const std::string path = make_sample_run(dir.path(), {.steps = 20});
  const Profile other = testing_run::sample_profile(6);
  write_file(path + "/profile.json", to_json(other), "test");
  EXPECT_THAT(refusal([&] { read_run(path); }),
              HasSubstr("plan.json of 16 layers and profile.json of 8: they are not of one run"));
  fs::remove(path + "/profile.json");
  Timeline two;
  two.time_unit = "s";
  two.ranks.resize(2);
  write_file(path + "/timeline_measured.json", to_json(TimelineFile{1, two}), "test");
  EXPECT_THAT(refusal([&] { read_run(path); }),
              HasSubstr("plan.json of 4 ranks and timeline_measured.json of 2"));
}

TEST(TimelineFile, RefusesWhatNoStepCanBe) {
  Timeline timeline;
  timeline.ranks = {{{0, 2, 0, 0, 0, Kind::kForward}, {2, 5, 0, 0, 0, Kind::kBackward}}};
  const std::string good = to_json(TimelineFile{3, timeline});
  EXPECT_EQ(parse_timeline(good, "t").step, 3);
  const auto with = [&](const std::string& from, const std::string& to) {
    std::string text = good;
    text.replace(text.find(from), from.size(), to);
    return refusal([&] { parse_timeline(text, "t"); });
  };
  EXPECT_THAT(with("[0.0,2.0]", "[0.0,1.0]"),
              HasSubstr("span 1 starts at 1, before the one before it ends at 2"));
  EXPECT_THAT(with("[2.0,5.0]", "[2.0,1.0]"), HasSubstr("span 1 is from 2 to 1"));
  EXPECT_THAT(with("[2.0,5.0]", "[2.0]"), HasSubstr("ranks[0].end has 1 entries, not 2"));
  EXPECT_THAT(with("[\"F\"", "[\"Q\""), HasSubstr("'Q' is no instruction"));
  EXPECT_THAT(with("[0.0,2.0]", "[0.0,\"x\"]"),
              HasSubstr("ranks[0].start[1] is string, not a number"));
  EXPECT_THAT(
      with("\"memory\":[]", "\"memory\":[{\"time\":[],\"bytes\":[]},{\"time\":[],\"bytes\":[]}]"),
      HasSubstr("memory is of 2 ranks, spans are of 1"));
}

}  // namespace
}  // namespace pipewright
