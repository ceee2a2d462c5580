#pragma once
// The splits of layers as values, for searches.

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "shardwise/version.hpp"

namespace shardwise {

/// The split of a layer, as a value; see `split`.
enum class SplitKind : std::uint8_t { none, output, input, group, depth, height, width, expert };

/// "output".
constexpr std::string_view name(SplitKind kind) {
  constexpr std::string_view names[] = {"none",  "output", "input", "group",
                                        "depth", "height", "width", "expert"};
  return names[static_cast<std::size_t>(kind)];
}

/// The splits that a layer can have, for `cheapest_split`. A layer that is searched has two
/// members:
///
///     using splits = SplitChoices<split::none, split::output, ...>;
///     template <class S> using split_by = ...;    the same layer with another split
template <class... S>
struct SplitChoices {};

}  // namespace shardwise
