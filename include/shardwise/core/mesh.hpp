#pragma once
// The axes of a mesh of ranks, its sizes, and the place of each rank in it.

#include <array>
#include <climits>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "shardwise/core/compiled.hpp"
#include "shardwise/core/error.hpp"
#include "shardwise/core/partition.hpp"
#include "shardwise/core/sentence.hpp"

namespace shardwise {

/// The axes of a mesh of ranks, outermost first.
enum class MeshAxis : std::uint8_t {
  pipeline,  ///< ranks along it hold different layers
  replica,   ///< ranks along it hold copies of what is split along `data`, for different samples
  data,      ///< ranks along it compute different samples
  context,   ///< ranks along it hold different parts of a sequence, or of space
  tensor     ///< ranks along it hold different parts of each layer
};

/// All axes, outermost first.
inline constexpr std::array mesh_axes{MeshAxis::pipeline, MeshAxis::replica, MeshAxis::data,
                                      MeshAxis::context, MeshAxis::tensor};

/// "tensor".
constexpr std::string_view name(MeshAxis axis) {
  constexpr std::string_view names[] = {"pipeline", "replica", "data", "context", "tensor"};
  return names[static_cast<std::size_t>(axis)];
}

/// The number of ranks along each axis: `mesh{.data = 2, .tensor = 4}` has 8 ranks. The size of one
/// axis may be `rest`.
struct mesh {
  /// The size that the other sizes leave, which is known when the number of all ranks is.
  static constexpr int rest = INT_MIN;

  int pipeline = 1;  ///< along MeshAxis::pipeline
  int replica = 1;   ///< along MeshAxis::replica
  int data = 1;      ///< along MeshAxis::data
  int context = 1;   ///< along MeshAxis::context
  int tensor = 1;    ///< along MeshAxis::tensor

  ///@{
  /// The size along `axis`.
  constexpr int operator[](MeshAxis axis) const { return this->*member(axis); }
  constexpr int& operator[](MeshAxis axis) { return this->*member(axis); }
  ///@}

  /// The number of ranks.
  /// throws  argument_error if a size is below 1 or is `rest`, or if there are more than INT_MAX
  constexpr int size() const;

  /// The same sizes, on so many ranks: `rest` becomes what the other sizes leave.
  /// throws  argument_error if a size is below 1, if two are `rest`, or if the sizes do not
  ///         multiply to `ranks`
  constexpr mesh on_ranks(int ranks) const;

  friend constexpr bool operator==(const mesh&, const mesh&) = default;

 private:
  static constexpr int mesh::*member(MeshAxis axis) {
    constexpr int mesh::*members[] = {&mesh::pipeline, &mesh::replica, &mesh::data, &mesh::context,
                                      &mesh::tensor};
    return members[static_cast<std::size_t>(axis)];
  }
};

/// "data=2,tensor=4", or "tensor=*" if that size is `rest`; axes of one rank are left out.
std::string to_string(const mesh& sizes);

namespace detail {

/// The product of the sizes other than `rest`.
/// throws  argument_error if one is below 1, if two are `rest`, or if the product is above INT_MAX
constexpr int product_of_known(const mesh& sizes) {
  std::int64_t product = 1;
  bool has_rest = false;
  for (const MeshAxis axis : mesh_axes) {
    const int along = sizes[axis];
    if (along == mesh::rest) {
      if (has_rest)
        throw argument_error({"mesh ", sizes,
                              ": two axes have the size `*`, the rest of the "
                              "ranks; at most one may have it"});
      has_rest = true;
      continue;
    }
    if (along < 1)
      throw argument_error({"mesh ", sizes, ": the size of ", name(axis), " is ", along,
                            "; each size is at least 1"});
    product *= along;
    if (product > INT_MAX)
      throw argument_error({"mesh ", sizes, ": its sizes multiply to more than ", INT_MAX,
                            " ranks; give smaller ones"});
  }
  return static_cast<int>(product);
}

}  // namespace detail

constexpr int mesh::size() const {
  for (const MeshAxis axis : mesh_axes)
    if ((*this)[axis] == rest)
      throw argument_error({"mesh ", *this, ": the size of ", name(axis),
                            " depends on the number of ranks; call on_ranks() first"});
  return detail::product_of_known(*this);
}

constexpr mesh mesh::on_ranks(int ranks) const {
  const int known = detail::product_of_known(*this);
  mesh sizes = *this;
  for (const MeshAxis axis : mesh_axes)
    if (sizes[axis] == rest) {
      if (ranks < known || ranks % known != 0)
        throw argument_error({"mesh ", *this, ": the number of ranks must be a multiple of ", known,
                              ", but it is ", ranks,
                              "; start another number, or give other sizes"});
      sizes[axis] = ranks / known;
      return sizes;
    }
  if (known != ranks)
    throw argument_error({"mesh ", *this, ": it has ", known, known == 1 ? " rank" : " ranks",
                          ", but the number of ranks is ", ranks, "; start ", known,
                          ", or give sizes that multiply to ", ranks});
  return sizes;
}

/// Which ranks of a mesh are neighbours in their numbers: all axes, outermost first. Ranks along
/// the last one have successive numbers.
using MeshOrder = std::array<MeshAxis, mesh_axes.size()>;

/// "pipeline, replica, data, context, tensor".
std::string to_string(const MeshOrder& order);

/// The place of a rank along each axis of a mesh.
struct MeshPlace {
  Place places[mesh_axes.size()];  ///< in the order of `mesh_axes`

  ///@{
  /// Along `axis`.
  constexpr const Place& operator[](MeshAxis axis) const {
    return places[static_cast<std::size_t>(axis)];
  }
  constexpr Place& operator[](MeshAxis axis) { return places[static_cast<std::size_t>(axis)]; }
  ///@}
  friend constexpr bool operator==(const MeshPlace&, const MeshPlace&) = default;
};

/// "rank 1 of 2 along data, rank 0 of 4 along tensor"; axes of one rank are left out.
std::string to_string(const MeshPlace& place);

/// The place of rank number `rank` in a mesh whose ranks are numbered in this order.
constexpr MeshPlace place_in(const mesh& sizes, int rank, const MeshOrder& order = mesh_axes) {
  MeshPlace place;
  for (std::size_t i = order.size(); i-- > 0;) {
    const int along = sizes[order[i]];
    place[order[i]] = {rank % along, along};
    rank /= along;
  }
  return place;
}

namespace detail {

/// The number of the rank at `place`: the inverse of place_in().
constexpr int rank_at(const MeshPlace& place, const MeshOrder& order = mesh_axes) {
  int rank = 0;
  for (const MeshAxis axis : order) rank = rank * place[axis].size + place[axis].rank;
  return rank;
}

/// The number of slices into which a batch is cut: its samples over `replica` and `data`, and the
/// tokens or rows of each sample over `context`. Ranks that differ along other axes only have the
/// same slice.
constexpr int sample_ranks(const mesh& sizes) { return sizes.replica * sizes.data * sizes.context; }

}  // namespace detail

}  // namespace shardwise

#ifdef SHARDWISE_INLINE

namespace shardwise {

SHARDWISE_INLINE std::string to_string(const mesh& sizes) {
  std::string text;
  for (const MeshAxis axis : mesh_axes)
    if (sizes[axis] != 1)
      detail::append(text, {text.empty() ? "" : ",", name(axis), "=",
                            sizes[axis] == mesh::rest ? "*" : detail::sentence({sizes[axis]})});
  return text.empty() ? "tensor=1" : text;
}

SHARDWISE_INLINE std::string to_string(const MeshOrder& order) {
  std::string text;
  for (const MeshAxis axis : order) detail::append(text, {text.empty() ? "" : ", ", name(axis)});
  return text;
}

SHARDWISE_INLINE std::string to_string(const MeshPlace& place) {
  std::string text;
  for (const MeshAxis axis : mesh_axes)
    if (place[axis].size != 1)
      detail::append(text, {text.empty() ? "" : ", ", place[axis], " along ", name(axis)});
  return text.empty() ? to_string(Place{}) : text;
}

}  // namespace shardwise

#endif  // SHARDWISE_INLINE
