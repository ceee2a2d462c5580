#pragma once
// What a rank reports of a trial, as a value and as a line of text.

#include <array>
#include <cstddef>
#include <cstdio>
#include <map>
#include <string>
#include <vector>

#include "shardwise/core/sentence.hpp"

namespace trials {

/// What came of one rank.
struct Outcome {
  enum class End { lost, finished, told, at_fault, wrong };
  End end = End::lost;
  std::string text{};  ///< of the error that it was told
};
inline constexpr std::array end_names{"lost", "finished", "told", "at fault", "wrong"};

/// "trial: rank 2 told: in barrier(): ..."
inline std::string line_of(int rank, const Outcome& outcome) {
  return shardwise::detail::sentence({"trial: rank ", rank, " ",
                                      end_names[static_cast<std::size_t>(outcome.end)], ": ",
                                      outcome.text, "\n"});
}

/// "trial: rank 2 is process 12345", from which one knows the rank of whom a launcher names.
inline std::string line_of_process(int rank, int process) {
  return shardwise::detail::sentence({"trial: rank ", rank, " is process ", process, "\n"});
}

/// Writes a line at once and whole, so that lines of several ranks do not mix.
inline void print(std::FILE* file, const std::string& line) {
  std::fwrite(line.data(), 1, line.size(), file);
  std::fflush(file);
}

/// Notes the process in a line that `line_of_process` has made. Returns false for other lines.
inline bool read_process(const std::string& line, std::map<int, int>& processes) {
  int rank = 0;
  int process = 0;
  if (std::sscanf(line.c_str(), "trial: rank %d is process %d", &rank, &process) != 2) return false;
  processes[rank] = process;
  return true;
}

/// Notes the outcome in a line that `line_of` has made. Returns false for other lines.
inline bool read_outcome(const std::string& line, std::vector<Outcome>& outcomes) {
  int rank = 0;
  int length = 0;
  if (std::sscanf(line.c_str(), "trial: rank %d %n", &rank, &length) != 1) return false;
  for (std::size_t end = 0; end < end_names.size(); ++end) {
    const std::string name = std::string(end_names[end]) + ": ";
    if (line.compare(static_cast<std::size_t>(length), name.size(), name) != 0) continue;
    outcomes.at(static_cast<std::size_t>(rank)) = {
        static_cast<Outcome::End>(end),
        line.substr(static_cast<std::size_t>(length) + name.size())};
    return true;
  }
  return false;
}

}  // namespace trials
