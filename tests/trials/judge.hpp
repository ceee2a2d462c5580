#pragma once
// What came of a trial: whether it ended, who was told, whether the rank at fault was named, and
// whether a result was wrong without a word.

#include <algorithm>
#include <cctype>
#include <cstddef>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "trials/outcome.hpp"
#include "trials/program.hpp"

namespace trials {

/// Ranks that a text names: "rank 2", "ranks 0, 2", "ranks 0 to 3, 5".
struct Mention {
  std::vector<int> ranks{};
  std::size_t begin = 0;
  std::size_t end = 0;
};

inline std::vector<Mention> mentions_in(std::string_view text) {
  std::vector<Mention> all;
  std::size_t at = 0;
  const auto digit = [&] {
    return at < text.size() && std::isdigit(static_cast<unsigned char>(text[at])) != 0;
  };
  const auto number = [&] {
    int value = 0;
    while (digit()) value = value * 10 + (text[at++] - '0');
    return value;
  };
  while ((at = text.find("rank", at)) != std::string_view::npos) {
    Mention mention{.begin = at};
    at += 4;
    if (text.substr(at, 1) == "s") ++at;
    do {
      if (text.substr(at, 1) == ",") ++at;
      if (text.substr(at, 1) != " ") break;
      ++at;
      if (!digit()) break;
      mention.ranks.push_back(number());
      mention.end = at;
      if (text.substr(at, 4) != " to ") continue;
      at += 4;
      if (!digit()) break;
      for (const int last = number(); mention.ranks.back() < last;)
        mention.ranks.push_back(mention.ranks.back() + 1);
      mention.end = at;
    } while (text.substr(at, 2) == ", ");
    if (!mention.ranks.empty()) all.push_back(mention);
  }
  return all;
}

/// What a text says of who is at fault. Who waits ("rank 1 has waited") and who is in the group
/// ("of ranks 0, 1") does not count.
class Blame {
 public:
  explicit Blame(std::string_view text) {
    const std::vector<Mention> mentions = mentions_in(text);
    for (const Mention& mention : mentions) {
      const std::string_view before = text.substr(0, mention.begin);
      const std::string_view after = text.substr(mention.end);
      if (before.ends_with("of ") || after.starts_with(" has waited")) continue;
      named_.insert(mention.ranks.begin(), mention.ranks.end());
      const bool passes_on = after.starts_with(" threw: ") && mention.end != mentions.back().end;
      if (mention.ranks.size() == 1 && !passes_on && !after.starts_with(" waits"))
        singled_out_.insert(mention.ranks[0]);
    }
  }

  bool names(int rank) const { return named_.contains(rank); }

  /// Whether it sets this rank apart from all others: "ranks 0, 2 called ...; rank 1 called ...".
  bool singles_out(int rank) const { return singled_out_ == std::set{rank}; }

 private:
  std::set<int> named_;
  std::set<int> singled_out_;
};

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
  bool singles_out = false;      ///< in addition, names no other rank so
  bool silent_wrong = false;
  bool no_effect = false;  ///< every rank ended well with the right results

  bool well() const { return in_time && every_rank_told && names_culprit && !silent_wrong; }
};

/// Faults that may happen not to change anything, which only the run can tell.
inline bool may_have_no_effect(const Program& p) {
  return p.fault == Fault::other_group_first || p.fault == Fault::memory_runs_out ||
         p.fault == Fault::disk_is_full || (p.fault == Fault::skips && !p.marked);
}

/// The file is at fault where a disk is full, and not the rank.
inline bool names_culprit(const Program& p, std::string_view text) {
  return p.fault == Fault::disk_is_full ? text.find(".safetensors") != std::string_view::npos
                                        : Blame(text).names(p.culprit);
}

inline bool singles_out_culprit(const Program& p, std::string_view text) {
  return p.fault == Fault::disk_is_full ? names_culprit(p, text)
                                        : Blame(text).singles_out(p.culprit);
}

/// Whether a line of standard error is of the culprit that says what it does or lacks itself.
inline bool is_own_fault(const Program& p, const Ending& ending, const std::string& line) {
  const Outcome& own = ending.outcomes[static_cast<std::size_t>(p.culprit)];
  return (own.end == Outcome::End::at_fault || p.fault == Fault::memory_runs_out) &&
         line.starts_with("rank " + std::to_string(p.culprit) + ": ");
}

/// A line of a process without "rank 1: ", which says who speaks.
inline std::string_view without_speaker(std::string_view line) {
  const std::vector<Mention> mentions = mentions_in(line);
  const bool has_speaker =
      !mentions.empty() && mentions[0].begin == 0 && line.substr(mentions[0].end).starts_with(": ");
  return has_speaker ? line.substr(mentions[0].end + 2) : line;
}

/// Of processes: some line on standard error says who is at fault, by its rank or, as launchers
/// do, by its process.
inline void blame_in_lines(const Program& p, const Ending& ending, Verdict& verdict) {
  const auto process = ending.processes.find(p.culprit);
  std::istringstream lines(ending.said);
  for (std::string line; std::getline(lines, line);) {
    const bool is_certain = is_own_fault(p, ending, line) || (process != ending.processes.end() &&
                                                              has_number(line, process->second));
    const std::string_view said = without_speaker(line);
    verdict.names_culprit |= is_certain || names_culprit(p, said);
    verdict.singles_out |= is_certain || singles_out_culprit(p, said);
  }
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
  if (ending.is_of_processes) {
    verdict.every_rank_told = ending.failed;
    blame_in_lines(p, ending, verdict);
    return verdict;
  }
  verdict.every_rank_told = verdict.names_culprit = verdict.singles_out = true;
  for (std::size_t rank = 0; rank < ending.outcomes.size(); ++rank) {
    const Outcome& one = ending.outcomes[rank];
    if (static_cast<int>(rank) == p.culprit) continue;
    verdict.every_rank_told &= one.end == End::told;
    if (one.end != End::told) continue;
    verdict.names_culprit &= names_culprit(p, one.text);
    verdict.singles_out &= singles_out_culprit(p, one.text);
  }
  return verdict;
}

}  // namespace trials
