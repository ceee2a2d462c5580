#pragma once
// The result of a check.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "shardwise/comm/communicator.hpp"
#include "shardwise/core/error.hpp"

namespace shardwise {

/// A check that failed; the message has a sentence for each error.
class check_error : public error {
 public:
  using error::error;
};

/// The result of a check, for any test framework or none:
///
///     CHECK_MESSAGE(report.passed(), report.text());
///     report.require();
struct CheckReport {
  std::vector<std::string> failures;  ///< one sentence each, which names the check
  std::size_t checked = 0;            ///< number of comparisons

  /// Whether there was a comparison, and none failed.
  bool passed() const { return checked > 0 && failures.empty(); }

  /// All failures, one a line.
  std::string text() const {
    if (checked == 0 && failures.empty()) return "nothing was checked";
    std::string lines;
    for (const std::string& failure : failures) lines += (lines.empty() ? "" : "\n") + failure;
    return lines;
  }

  /// Throws check_error unless passed.
  void require() const {
    if (!passed()) throw check_error(text());
  }

  /// Adds the result of another check.
  void add(const CheckReport& other) {
    checked += other.checked;
    failures.insert(failures.end(), other.failures.begin(), other.failures.end());
  }
};

namespace detail {

/// Gives all ranks the failures of the first rank that has any. A collective.
template <Communicator C>
void agree_on_failures(C& ranks, std::vector<std::string>& failures) {
  const std::int32_t mine = failures.empty() ? ranks.size() : ranks.rank();
  std::int32_t first = mine;
  ranks.all_reduce(std::span<const std::int32_t>(&mine, 1), std::span(&first, 1), Reduction::min);
  if (first == ranks.size()) return;
  std::vector<std::uint8_t> text;
  for (const std::string& failure : failures) {
    text.insert(text.end(), failure.begin(), failure.end());
    text.push_back(0);
  }
  auto length = static_cast<std::int64_t>(text.size());
  ranks.broadcast(std::span(&length, 1), first);
  text.resize(static_cast<std::size_t>(length));
  ranks.broadcast(std::span(text), first);
  failures.clear();
  for (auto begin = text.begin(); begin != text.end();) {
    const auto end = std::find(begin, text.end(), std::uint8_t{0});
    failures.emplace_back(begin, end);
    begin = end + 1;
  }
}

}  // namespace detail

}  // namespace shardwise
