#pragma once
// The sizes of a mesh as a user gives them: on a command line, or in the variable SHARDWISE_MESH.

#include <string_view>

#include "shardwise/comm/launch_environment.hpp"
#include "shardwise/core/compiled.hpp"
#include "shardwise/core/error.hpp"
#include "shardwise/core/mesh.hpp"

namespace shardwise {

/// "data=2,tensor=4": names of axes with their sizes, in any order. Axes that are left out have one
/// rank. One size may be `*`, which is `mesh::rest`.
/// throws  argument_error, with the text, if it names an axis that does not exist or names one
///         twice; if a size is no whole number of 1 to INT_MAX; if two are `*`; if there are more
///         than INT_MAX ranks
mesh parse_mesh(std::string_view text);

/// The mesh of a program: that of `option`, the value of its option `--mesh`; if that is empty, of
/// the variable SHARDWISE_MESH; if that is not set or is empty, all ranks along `tensor`.
/// throws  argument_error as parse_mesh, with the source of the text
mesh choose_mesh(std::string_view option, const detail::Lookup& lookup = detail::process_variable);

}  // namespace shardwise

#ifdef SHARDWISE_INLINE

#include <array>
#include <charconv>
#include <climits>
#include <cstddef>
#include <string>
#include <system_error>
#include <utility>

namespace shardwise::detail {

/// throws  argument_error if `word` names no axis
inline MeshAxis mesh_axis_of(std::string_view word, std::string_view text) {
  for (const MeshAxis axis : mesh_axes)
    if (name(axis) == word) return axis;
  throw argument_error(
      {"mesh '", text, "': '", word, "' is no axis; axes are ", to_string(mesh_axes)});
}

/// "4", or "*" for `mesh::rest`.
/// throws  argument_error if `word` is no such size
inline int mesh_size_of(std::string_view word, MeshAxis axis, std::string_view text) {
  if (word == "*") return mesh::rest;
  int size = 0;
  const auto [end, code] = std::from_chars(word.data(), word.data() + word.size(), size);
  if (code != std::errc() || end != word.data() + word.size() || size < 1)
    throw argument_error({"mesh '", text, "': the size of ", name(axis), " is '", word,
                          "'; it must be a whole number of 1 to ", INT_MAX,
                          ", or * for the rest of the ranks"});
  return size;
}

}  // namespace shardwise::detail

namespace shardwise {

SHARDWISE_INLINE mesh parse_mesh(std::string_view text) {
  mesh sizes;
  std::array<bool, mesh_axes.size()> is_given{};
  for (std::string_view left = text;;) {
    const std::string_view item = left.substr(0, left.find(','));
    const std::size_t sign = item.find('=');
    if (sign == std::string_view::npos)
      throw argument_error({"mesh '", text, "': '", item,
                            "' is not an axis with its size; write axis=size, for example "
                            "data=2,tensor=*"});
    const MeshAxis axis = detail::mesh_axis_of(item.substr(0, sign), text);
    if (std::exchange(is_given[static_cast<std::size_t>(axis)], true))
      throw argument_error({"mesh '", text, "': it has two sizes of ", name(axis), "; give one"});
    sizes[axis] = detail::mesh_size_of(item.substr(sign + 1), axis, text);
    if (item.size() == left.size()) break;
    left.remove_prefix(item.size() + 1);
  }
  detail::product_of_known(sizes);
  return sizes;
}

SHARDWISE_INLINE mesh choose_mesh(std::string_view option, const detail::Lookup& lookup) {
  const std::string variable = lookup("SHARDWISE_MESH").value_or("");
  if (option.empty() && variable.empty()) return {.tensor = mesh::rest};
  try {
    return parse_mesh(option.empty() ? variable : option);
  } catch (error& e) {
    e.add_place(option.empty() ? "SHARDWISE_MESH" : "--mesh");
    throw;
  }
}

}  // namespace shardwise

#endif  // SHARDWISE_INLINE
