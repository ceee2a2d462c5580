#pragma once
// What came of a trial: whether it ended, who was told, whether the rank at fault was named, and
// whether a result was wrong without a word.

#include <algorithm>
#include <cctype>
#include <cstddef>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "trials/outcome.hpp"
#include "trials/program.hpp"

namespace trials {

/// Whether a text names a rank: "rank 2", "ranks 0, 2".
inline bool names_rank(std::string_view text, int rank) {
  std::size_t at = 0;
  const auto digit = [&] {
    return at < text.size() && std::isdigit(static_cast<unsigned char>(text[at])) != 0;
  };
  while ((at = text.find("rank", at)) != std::string_view::npos) {
    at += 4;
    if (text.substr(at, 1) == "s") ++at;
    do {
      if (text.substr(at, 1) == ",") ++at;
      if (text.substr(at, 1) != " ") break;
      ++at;
      if (!digit()) break;
      int number = 0;
      while (digit()) number = number * 10 + (text[at++] - '0');
      if (number == rank) return true;
    } while (text.substr(at, 2) == ", ");
  }
  return false;
}

inline bool has_number(const std::string& text, int number) {
  const std::string digits = std::to_string(number);
  const auto is_digit = [&](std::size_t i) {
    return i < text.size() && std::isdigit(static_cast<unsigned char>(text[i])) != 0;
  };
  for (std::size_t at = text.find(digits); at != std::string::npos; at = text.find(digits, at + 1))
    if (!is_digit(at + digits.size()) && (at == 0 || !is_digit(at - 1))) return true;
  return false;
}

/// All that is known of a trial when it is over.
struct Ending {
  std::vector<Outcome> outcomes{};  ///< one for each rank
  bool in_time = true;
  bool failed = false;             ///< the job: an error left it, or its exit code is not 0
  bool is_of_processes = false;    ///< one of which may end the job before others have their error
  std::map<int, int> processes{};  ///< by rank
  std::string said{};              ///< by the job as a whole, if it is of processes
  double seconds = 0;
};

struct Verdict {
  bool in_time = false;
  bool every_rank_told = false;  ///< of those that are not at fault; of processes, the job
  bool names_culprit = false;    ///< each of the errors does; of processes, standard error
  bool silent_wrong = false;
  bool no_effect = false;  ///< every rank ended well with the right results

  bool well() const { return in_time && every_rank_told && names_culprit && !silent_wrong; }
};

/// Faults that may happen not to change anything, which only the run can tell.
inline bool may_have_no_effect(const Program& p) {
  return p.fault == Fault::other_group_first || p.fault == Fault::memory_runs_out ||
         p.fault == Fault::disk_is_full || (p.fault == Fault::skips && !p.marked);
}

inline Verdict judge(const Program& p, const Ending& ending) {
  using End = Outcome::End;
  const auto all = [&](auto holds) {
    return std::all_of(ending.outcomes.begin(), ending.outcomes.end(), holds);
  };
  Verdict verdict{.in_time = ending.in_time};
  verdict.silent_wrong = !all([](const Outcome& one) { return one.end != End::wrong; });
  verdict.no_effect = !ending.failed && may_have_no_effect(p) &&
                      all([](const Outcome& one) { return one.end == End::finished; });
  const auto names = [&](const std::string& text) {
    return p.fault == Fault::disk_is_full ? text.find(".safetensors") != std::string::npos
                                          : names_rank(text, p.culprit);
  };
  if (ending.is_of_processes) {
    verdict.every_rank_told = ending.failed;
    const auto process = ending.processes.find(p.culprit);
    verdict.names_culprit = names(ending.said) || (process != ending.processes.end() &&
                                                   has_number(ending.said, process->second));
    return verdict;
  }
  verdict.every_rank_told = verdict.names_culprit = true;
  for (std::size_t rank = 0; rank < ending.outcomes.size(); ++rank) {
    const Outcome& one = ending.outcomes[rank];
    const bool is_culprit = static_cast<int>(rank) == p.culprit;
    if (one.end != End::told && !is_culprit) verdict.every_rank_told = false;
    if (one.end == End::told && !is_culprit && !names(one.text)) verdict.names_culprit = false;
  }
  return verdict;
}

}  // namespace trials
