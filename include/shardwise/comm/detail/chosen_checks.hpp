#pragma once
// The level of checks that each rank brings along, and the one on which ranks agree when they meet.

#include <array>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>

#include "shardwise/comm/check_level.hpp"
#include "shardwise/comm/detail/equal_groups.hpp"
#include "shardwise/comm/detail/ranks_text.hpp"
#include "shardwise/comm/launch_environment.hpp"
#include "shardwise/core/error.hpp"

namespace shardwise::detail {

/// The level with this name, if there is one.
constexpr std::optional<CheckLevel> level_of(std::string_view text) {
  for (const CheckLevel level : {CheckLevel::off, CheckLevel::local, CheckLevel::communicating})
    if (name(level) == text) return level;
  return std::nullopt;
}

/// What a rank tells the others about its checks.
struct ChosenChecks {
  static constexpr const char* variable = "SHARDWISE_CHECKS";

  CheckLevel level = CheckLevel::local;  ///< that the variable names, or else the program
  bool by_variable = false;              ///< whether the variable names it
  bool is_known = true;                  ///< whether what the variable names is a level
  std::array<char, 32> text{};           ///< of the variable, cut off if it is longer

  ChosenChecks() = default;
  explicit ChosenChecks(CheckLevel program, const Lookup& lookup = process_variable)
      : level(program) {
    const std::string value = lookup(variable).value_or("");
    if (value.empty()) return;
    std::string_view(value).copy(text.data(), text.size() - 1);
    const std::optional<CheckLevel> named = level_of(value);
    by_variable = true;
    is_known = named.has_value();
    level = named.value_or(program);
  }

  /// "local of SHARDWISE_CHECKS".
  friend std::string to_string(const ChosenChecks& chosen) {
    return sentence({name(chosen.level), " of ", chosen.by_variable ? variable : "the program"});
  }
};
static_assert(std::is_trivially_copyable_v<ChosenChecks>);

/// The level of all ranks, of which chosen(r) is the ChosenChecks of rank r. Ranks exchange them by
/// a call that is the same at every level, because ranks of different levels would wait for each
/// other in any other one.
/// throws  the same on all ranks: argument_error if the variable of one names no level,
///         collective_error if their levels differ
template <class Chosen>
CheckLevel agreed_checks(std::size_t ranks, Chosen chosen) {
  for (std::size_t r = 0; r < ranks; ++r)
    if (!chosen(r).is_known)
      throw argument_error({ChosenChecks::variable, " of rank ", r, " is '", chosen(r).text.data(),
                            "', which is no level of checks: it must be off, local or "
                            "communicating"});
  const auto groups = groups_of_equal(
      ranks, [&](std::size_t q, std::size_t r) { return chosen(q).level == chosen(r).level; });
  if (groups.size() == 1) return chosen(0).level;
  std::string text;
  bool by_variable = false;
  for (const SomeRanks& group : groups) {
    append(text, {text.empty() ? "" : ", ", ranks_text(group),
                  group.size() == 1 ? " has " : " have ", chosen(group[0])});
    by_variable |= chosen(group[0]).by_variable;
  }
  throw collective_error({"ranks disagree on the level of checks: ", text, "; give ",
                          ChosenChecks::variable, " to the processes of all hosts (mpirun -x ",
                          ChosenChecks::variable, ", srun --export=ALL), or ",
                          by_variable ? "to none" : "the same level to all ranks in the program"});
}

}  // namespace shardwise::detail
