#pragma once
// A file of rows that is whole at any moment, whatever interrupts the program.

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <stdexcept>
#include <string>
#include <system_error>
#include <vector>

#include "split/results.hpp"

namespace split {

namespace detail {

/// A cell of a CSV file; "0.5" for a number, the text itself for text.
inline std::string cell_of(const Row& value) {
  return value.is_string() ? value.get<std::string>() : value.dump();
}

inline std::string line_of(const Row& row) {
  std::string line;
  for (const auto& [name, value] : row.items()) line += (line.empty() ? "" : ",") + cell_of(value);
  return line + '\n';
}

inline std::string header() {
  std::string line;
  for (const std::string_view column : columns) (line += line.empty() ? "" : ",") += column;
  return line + '\n';
}

inline std::vector<std::string> cells(const std::string& line) {
  std::vector<std::string> found;
  std::istringstream in(line);
  for (std::string cell; std::getline(in, cell, ',');) found.push_back(cell);
  return found;
}

}  // namespace detail

/// Rows of groups, in CSV or JSON by the file's name. CSV grows by one write for each group; JSON
/// is written beside the old file and takes its place.
class ResultFile {
 public:
  enum class If_there { refuse, resume, overwrite };

  /// Reads what is there if `resume`, and makes sure that it can be written to.
  /// throws   std::runtime_error for another ending than .csv or .json, a file that is there and is
  ///          to be kept, one with other columns, one that cannot be written
  ResultFile(std::string path, If_there if_there) : path_(std::move(path)) {
    const std::string ending = std::filesystem::path(path_).extension();
    if (ending != ".csv" && ending != ".json")
      throw std::runtime_error("the output " + path_ + " ends neither in .csv nor in .json");
    is_json_ = ending == ".json";
    std::error_code ignored;
    if (std::filesystem::exists(path_, ignored) && if_there != If_there::overwrite) {
      if (if_there == If_there::refuse)
        throw std::runtime_error(
            "the output " + path_ +
            " is there already: --resume goes on with it, --overwrite begins anew");
      read();
    }
    rewrite();
  }

  /// Whether all rows of the group are there.
  bool has(const Row& group) const {
    return std::count_if(rows_.begin(), rows_.end(),
                         [&](const Row& row) { return belongs(row, group); }) == rows_of_group;
  }

  /// Adds the rows of a group, at once and for good.
  /// throws   std::runtime_error if they cannot be written; what was there before stays
  void add(const std::vector<Row>& rows) {
    const auto old = std::remove_if(rows_.begin(), rows_.end(),
                                    [&](const Row& row) { return belongs(row, rows.front()); });
    const bool replaces = old != rows_.end();
    rows_.erase(old, rows_.end());
    rows_.insert(rows_.end(), rows.begin(), rows.end());
    if (is_json_ || replaces) return rewrite();
    std::string lines;
    for (const Row& row : rows) lines += detail::line_of(row);
    write(path_, O_APPEND, lines);
  }

 private:
  static bool belongs(const Row& row, const Row& group) {
    for (std::size_t i = 0; i < group_columns; ++i) {
      const std::string name(columns[i]);
      if (detail::cell_of(row.at(name)) != detail::cell_of(group.at(name))) return false;
    }
    return true;
  }

  [[noreturn]] void refuse(const std::string& why) const {
    throw std::runtime_error("the output " + path_ + " cannot be resumed: " + why +
                             ". It is left as it was: name another file");
  }

  void read() {
    std::ifstream file(path_);
    if (!file) refuse("it cannot be read");
    const std::string text{std::istreambuf_iterator<char>(file), {}};
    if (text.empty()) return;
    is_json_ ? read_json(text) : read_csv(text);
  }

  void read_json(const std::string& text) {
    const Row all = Row::parse(text, nullptr, false);
    if (!all.is_array()) refuse("it is no JSON list of rows");
    for (const Row& row : all) {
      std::vector<std::string> names;
      if (row.is_object())
        for (const auto& [name, value] : row.items()) names.push_back(name);
      if (!std::equal(names.begin(), names.end(), columns.begin(), columns.end()))
        refuse("its rows have other members than those that this program writes");
      rows_.push_back(row);
    }
  }

  void read_csv(const std::string& text) {
    std::istringstream lines(text.substr(0, text.rfind('\n') + 1));  // a line cut short is no row
    std::string line;
    if (!std::getline(lines, line) || line + '\n' != detail::header())
      refuse("its columns are other ones than those that this program writes");
    while (std::getline(lines, line)) {
      const std::vector<std::string> values = detail::cells(line);
      if (values.size() != columns.size())
        refuse("a row has " + std::to_string(values.size()) + " values and not " +
               std::to_string(columns.size()));
      Row row;
      for (std::size_t i = 0; i < values.size(); ++i) {
        const Row number = Row::parse(values[i], nullptr, false);
        row[std::string(columns[i])] = number.is_number() ? number : Row(values[i]);
      }
      rows_.push_back(row);
    }
  }

  void rewrite() const {
    const std::string beside = path_ + ".part";
    std::string text;
    if (is_json_) {
      text = "[";
      for (const Row& row : rows_) (text += text.size() == 1 ? "\n" : ",\n") += row.dump();
      text += "\n]\n";
    } else {
      text = detail::header();
      for (const Row& row : rows_) text += detail::line_of(row);
    }
    write(beside, O_TRUNC, text);
    if (std::rename(beside.c_str(), path_.c_str()) != 0) cannot_write();
  }

  void write(const std::string& path, int flag, const std::string& text) const {
    const int file = ::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | flag, 0666);
    if (file < 0) cannot_write();
    const off_t before = ::lseek(file, 0, SEEK_END);
    std::size_t done = 0;
    while (done < text.size()) {
      const ssize_t written = ::write(file, text.data() + done, text.size() - done);
      if (written < 0 && errno == EINTR) continue;
      if (written <= 0) break;
      done += static_cast<std::size_t>(written);
    }
    const int problem = errno;
    const bool cut = done == text.size() || ::ftruncate(file, before) == 0;  // no half of a row
    ::close(file);
    errno = problem;
    if (done < text.size() || !cut) cannot_write();
  }

  [[noreturn]] void cannot_write() const {
    throw std::runtime_error("the output " + path_ +
                             " cannot be written: " + std::generic_category().message(errno));
  }

  std::string path_;
  bool is_json_ = false;
  std::vector<Row> rows_;
};

}  // namespace split
