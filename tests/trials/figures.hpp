#pragma once
// The figures of many trials: a table of all faults, as JSON too, and the trials that went wrong.

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdio>
#include <stdexcept>
#include <string>
#include <utility>

#include "trials/judge.hpp"

namespace trials {

class Figures {
 public:
  /// `json` is the file to write, or null.
  Figures(std::string ranks, const char* json) : ranks_(std::move(ranks)), json_(json) {}

  /// Of trials whose fault had an effect.
  std::size_t judged() const { return judged_; }

  void add(const Program& p, const Ending& ending) {
    const Verdict verdict = judge(p, ending);
    Row& row = rows_[static_cast<std::size_t>(p.fault)];
    row.drawn_again += p.drawn_again;
    longest_ = std::max(longest_, ending.seconds);
    if (verdict.no_effect) {
      ++row.no_effect;
      return;
    }
    ++judged_;
    ++row.trials;
    row.in_time += verdict.in_time;
    row.told += verdict.every_rank_told;
    row.named += verdict.names_culprit;
    row.singled_out += verdict.singles_out;
    // A bare call whose next call is equal is told apart by a mark only, which is the caller's.
    const bool may_be_silent =
        p.fault == Fault::skips && !p.marked && p.steps[p.moment].act <= Act::message;
    (may_be_silent ? row.silent_unmarked : row.silent) += verdict.silent_wrong;
    if (verdict.well() || (may_be_silent && verdict.silent_wrong && verdict.in_time)) return;
    ++failures_;
    if (failures_ <= most_printed) print_trial(p, ending, verdict);
  }

  /// Prints the table. Returns whether all went well.
  bool print() const {
    std::printf(
        "| fault | trials | ended in time | every rank told | culprit named | singled out | silent "
        "wrong | of calls without a mark | no effect | drawn again "
        "|\n|---|---|---|---|---|---|---|---|---|---|\n");
    Row all;
    for (std::size_t fault = 0; fault < rows_.size(); ++fault) {
      const Row& row = rows_[fault];
      if (row.trials + row.no_effect == 0) continue;
      print_row(fault_names[fault], row);
      all += row;
    }
    print_row("all", all);
    std::printf("%zu of %zu trials on %s went wrong; the longest took %.1f s\n", failures_, judged_,
                ranks_.c_str(), longest_);
    if (json_ != nullptr) write_json(all);
    return failures_ == 0;
  }

 private:
  struct Row {
    std::size_t trials = 0, in_time = 0, told = 0, named = 0, singled_out = 0, silent = 0,
                silent_unmarked = 0, no_effect = 0, drawn_again = 0;

    Row& operator+=(const Row& other) {
      trials += other.trials;
      in_time += other.in_time;
      told += other.told;
      named += other.named;
      singled_out += other.singled_out;
      silent += other.silent;
      silent_unmarked += other.silent_unmarked;
      no_effect += other.no_effect;
      drawn_again += other.drawn_again;
      return *this;
    }

    std::array<std::pair<const char*, std::size_t>, 9> fields() const {
      return {{{"trials", trials},
               {"ended in time", in_time},
               {"every rank told", told},
               {"culprit named", named},
               {"culprit singled out", singled_out},
               {"silent wrong", silent},
               {"silent wrong without a mark", silent_unmarked},
               {"no effect", no_effect},
               {"drawn again", drawn_again}}};
    }
  };

  static constexpr std::size_t most_printed = 20;

  static void print_row(const char* name, const Row& row) {
    std::printf("| %s |", name);
    for (const auto& [key, number] : row.fields()) std::printf(" %zu |", number);
    std::printf("\n");
  }

  void write_json(const Row& all) const {
    std::FILE* file = std::fopen(json_, "w");
    if (file == nullptr) throw std::runtime_error(std::string("cannot write ") + json_);
    std::fprintf(file, "{\"ranks\": \"%s\", \"failures\": %zu, \"longest\": %.1f, \"faults\": {",
                 ranks_.c_str(), failures_, longest_);
    const auto write = [&](const char* name, const Row& row, const char* after) {
      std::fprintf(file, "\n  \"%s\": {", name);
      const char* before = "";
      for (const auto& [key, number] : row.fields()) {
        std::fprintf(file, "%s\"%s\": %zu", before, key, number);
        before = ", ";
      }
      std::fprintf(file, "}%s", after);
    };
    for (std::size_t fault = 0; fault < rows_.size(); ++fault)
      write(fault_names[fault], rows_[fault], ",");
    write("all", all, "\n}}\n");
    std::fclose(file);
  }

  static void print_trial(const Program& p, const Ending& ending, const Verdict& verdict) {
    std::printf("WRONG:%s%s%s%s %s\n", verdict.in_time ? "" : " did not end in time;",
                verdict.every_rank_told ? "" : " a rank was not told;",
                verdict.names_culprit ? "" : " the culprit was not named;",
                verdict.silent_wrong ? " a wrong result without a word;" : "", p.text().c_str());
    for (std::size_t rank = 0; rank < ending.outcomes.size(); ++rank)
      std::printf("  rank %zu %s: %s\n", rank,
                  end_names[static_cast<std::size_t>(ending.outcomes[rank].end)],
                  ending.outcomes[rank].text.c_str());
    std::printf("%s", ending.said.c_str());
    std::fflush(stdout);
  }

  std::string ranks_;
  const char* json_;
  std::array<Row, fault_names.size()> rows_{};
  std::size_t judged_ = 0;
  std::size_t failures_ = 0;
  double longest_ = 0;
};

}  // namespace trials
