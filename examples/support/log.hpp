#pragma once
// A log of a run, for curves.

#include <fstream>
#include <stdexcept>
#include <string>
#include <utility>

#include "launch.hpp"

namespace example {

/// Lines of comma-separated values: the way, the number of ranks, and what the program adds. On
/// rank 0, if a name was given.
class Log {
 public:
  /// `columns` names what the program adds to each line: "step,loss". The log of a run that goes on
  /// is written behind what the file has.
  /// throws   std::runtime_error if the file cannot be written
  Log(const std::string& path, std::string way, const std::string& columns, const Ranks& ranks,
      bool goes_on = false)
      : way_(std::move(way)), ranks_(ranks.size()) {
    if (path.empty() || ranks.rank() != 0) return;
    file_.open(path, goes_on ? std::ios::app : std::ios::out);
    if (!file_) throw std::runtime_error("the log " + path + " cannot be written");
    if (!goes_on) file_ << "way,ranks," << columns << '\n';
  }

  template <class... Values>
  void write(const Values&... values) {
    if (!file_.is_open()) return;
    file_ << way_ << ',' << ranks_;
    ((file_ << ',' << values), ...);
    file_ << '\n';
  }

 private:
  std::string way_;
  int ranks_;
  std::ofstream file_;
};

}  // namespace example
