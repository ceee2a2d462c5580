#pragma once
// What the main() of test programs needs, and no other file includes: the count of their cases.

#include <doctest/doctest.h>

#include <cstdio>

#include "support/skipped.hpp"

namespace testing {

/// The status of a program that is skipped, as the CMakeLists.txt of tests tell CTest.
constexpr int status_skipped = 77;

/// A listener overrides what it wants to hear of.
struct Listener : doctest::IReporter {
  void report_query(const doctest::QueryData&) override {}
  void test_run_start() override {}
  void test_run_end(const doctest::TestRunStats&) override {}
  void test_case_start(const doctest::TestCaseData&) override {}
  void test_case_reenter(const doctest::TestCaseData&) override {}
  void test_case_end(const doctest::CurrentTestCaseStats&) override {}
  void test_case_exception(const doctest::TestCaseException&) override {}
  void subcase_start(const doctest::SubcaseSignature&) override {}
  void subcase_end() override {}
  void log_assert(const doctest::AssertData&) override {}
  void log_message(const doctest::MessageData&) override {}
  void test_case_skipped(const doctest::TestCaseData&) override {}
};

struct CaseCounts {
  int ran = 0;
  int left_out = 0;
  bool none_fits = false;  // no case fits the filters of the program
};
inline CaseCounts case_counts;

struct CountCases : Listener {
  explicit CountCases(const doctest::ContextOptions&) {}

  void test_case_start(const doctest::TestCaseData&) override { case_leaves_out = false; }
  void test_case_end(const doctest::CurrentTestCaseStats& stats) override {
    const bool left_out = case_leaves_out && stats.numAssertsCurrentTest == 0;
    ++(left_out ? case_counts.left_out : case_counts.ran);
  }
  void test_run_end(const doctest::TestRunStats& stats) override {
    case_counts.none_fits = stats.numTestCasesPassingFilters == 0;
  }
  void report_query(const doctest::QueryData& query) override { test_run_end(*query.run_stats); }
};
REGISTER_LISTENER("count cases", 1, CountCases);

/// The status of a program with this result of doctest: skipped if all its cases were left out, and
/// failed if its filters fit none.
inline int status_of(int result, const CaseCounts& cases) {
  if (cases.none_fits) {
    std::fprintf(stderr, "no test case fits the filters of this program\n");
    return 1;
  }
  const bool all_left_out = cases.ran == 0 && cases.left_out > 0;
  return result == 0 && all_left_out ? status_skipped : result;
}

}  // namespace testing
