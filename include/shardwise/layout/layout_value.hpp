#pragma once
// Layouts as values: for code that is compiled once, and not for every layout or pair of layouts.

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>

#include "shardwise/core/compiled.hpp"
#include "shardwise/core/mesh.hpp"
#include "shardwise/core/shape.hpp"
#include "shardwise/layout/window.hpp"

namespace shardwise::detail {

/// A layout over one axis of ranks.
struct LayoutValue {
  /// As the layouts of these names.
  enum class Kind : std::uint8_t {
    invariant,
    replicated,
    partial,
    sharded,
    haloed,
    haloed_partial
  };

  Kind kind = Kind::invariant;
  Axis axis = Axis::batch;  // that is cut, if one is
  Window window{};          // of a halo

  constexpr bool cuts() const { return kind >= Kind::sharded; }
  constexpr bool cuts(Axis of_tensor) const { return cuts() && axis == of_tensor; }
  constexpr bool has_halo() const { return kind > Kind::sharded; }
  /// Windows are compared only for halos, because other layouts have none.
  friend constexpr bool operator==(const LayoutValue& a, const LayoutValue& b) {
    return a.kind == b.kind && a.axis == b.axis && (!a.has_halo() || a.window == b.window);
  }
};

/// "Sharded<feature>", "Haloed<height, kernel 3 stride 2 padding 1+1>".
[[gnu::cold]] std::string to_string(const LayoutValue& layout);

/// A layout along each axis of a mesh.
struct MeshLayoutValue {
  struct On {
    MeshAxis axis;
    LayoutValue layout;
  };

  LayoutValue layouts[mesh_axes.size()];  // in the order of mesh_axes

  constexpr MeshLayoutValue() = default;
  /// A layout over one axis of ranks is one along `tensor`.
  constexpr MeshLayoutValue(const LayoutValue& plain)
      : MeshLayoutValue({On{MeshAxis::tensor, plain}}) {}
  /// Invariant along the axes that are not named.
  constexpr MeshLayoutValue(std::initializer_list<On> named) {
    for (const On& on : named) (*this)[on.axis] = on.layout;
  }

  constexpr const LayoutValue& operator[](MeshAxis axis) const {
    return layouts[static_cast<std::size_t>(axis)];
  }
  constexpr LayoutValue& operator[](MeshAxis axis) {
    return layouts[static_cast<std::size_t>(axis)];
  }
  friend constexpr bool operator==(const MeshLayoutValue&, const MeshLayoutValue&) = default;
};

/// "Over<On<data, Sharded<batch>>, On<tensor, Partial>>".
std::string to_string(const MeshLayoutValue& layout);

}  // namespace shardwise::detail

#ifdef SHARDWISE_INLINE

namespace shardwise::detail {

SHARDWISE_INLINE std::string to_string(const LayoutValue& layout) {
  constexpr std::string_view names[] = {"Invariant", "Replicated", "Partial",
                                        "Sharded",   "Haloed",     "HaloedPartial"};
  const std::string_view kind = names[static_cast<std::size_t>(layout.kind)];
  if (!layout.cuts()) return std::string(kind);
  if (!layout.has_halo()) return sentence({kind, "<", name(layout.axis), ">"});
  return sentence({kind, "<", name(layout.axis), ", ", layout.window, ">"});
}

SHARDWISE_INLINE std::string to_string(const MeshLayoutValue& layout) {
  std::string text;
  for (const MeshAxis axis : mesh_axes)
    if (layout[axis].kind != LayoutValue::Kind::invariant)
      append(text, {text.empty() ? "On<" : ", On<", name(axis), ", ", layout[axis], ">"});
  return sentence({"Over<", text, ">"});
}

}  // namespace shardwise::detail

#endif  // SHARDWISE_INLINE
