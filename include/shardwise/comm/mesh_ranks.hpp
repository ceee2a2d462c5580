#pragma once
// Ranks of any communicator as a mesh, with a group along each of its axes.

#include <array>
#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "shardwise/comm/communicator.hpp"
#include "shardwise/comm/gathered.hpp"
#include "shardwise/core/compiled.hpp"
#include "shardwise/core/error.hpp"
#include "shardwise/core/mesh.hpp"
#include "shardwise/core/sentence.hpp"

namespace shardwise {

namespace detail {

/// The sizes of a mesh and the order of its ranks, as a rank was given them.
struct GivenMesh {
  mesh sizes;
  MeshOrder order;

  friend bool operator==(const GivenMesh&, const GivenMesh&) = default;
  /// "data=2,tensor=4", or "data=2,tensor=4 in the order ..." if the order is not the usual one.
  friend std::string to_string(const GivenMesh& given) {
    if (given.order == mesh_axes) return to_string(given.sizes);
    return sentence({given.sizes, " in the order ", given.order});
  }
};

/// throws  argument_error unless `order` names each axis once
void check_order(const MeshOrder& order);

/// The mesh of all ranks, of which `all` has that of each.
/// throws  the same on all ranks: collective_error if they differ, argument_error if the order does
///         not name each axis once, or if the sizes do not fit the number of ranks
mesh agreed_mesh(const std::vector<GivenMesh>& all);

}  // namespace detail

/// All ranks of a mesh, as a communicator of type C, and along each axis the group of those ranks
/// that differ from this one in their place along that axis only. The rank of a group is the place
/// along its axis. All groups are made when the mesh is.
///
/// It keeps the contract of `Communicator` with all ranks as the group, and so do the groups along
/// its axes. What C says of failures and of errors is true across all groups, because C::split
/// makes them.
///
/// Valid:
///     MeshRanks<ThreadCommunicator> ranks(world, {.data = 2, .tensor = 4});
///     ranks.along(MeshAxis::tensor).all_reduce(in, out);
/// Invalid, because ranks with other places wait (an error on all of them, or the time-out):
///     if (ranks.place()[MeshAxis::data].rank == 0) ranks.all_reduce(in, out);
template <Communicator C>
class MeshRanks : public C {
 public:
  /// The ranks of `world` as a mesh; the size of one axis may be `mesh::rest`. `order` says which
  /// ranks are neighbours in the job, and so mostly on one machine: by default those along
  /// `tensor`, which send most. It decides which rank has which place, and not what the rank at a
  /// place holds. A collective; sizes and order are the same on all ranks.
  ///
  /// sends   28 bytes of each rank to each (see `gathered`), and makes at most a group an axis by
  ///         split
  /// throws  the same on all ranks: collective_error if ranks are given different sizes or orders,
  ///         argument_error if the sizes do not multiply to the number of ranks, or if the order
  ///         does not name each axis once
  MeshRanks(C world, const mesh& sizes, const MeshOrder& order = mesh_axes)
      : C(std::move(world)),
        order_(order),
        sizes_(
            detail::agreed_mesh(gathered(static_cast<C&>(*this), detail::GivenMesh{sizes, order}))),
        place_(place_in(sizes_, C::rank(), order_)) {
    groups_.reserve(mesh_axes.size());
    for (const MeshAxis axis : mesh_axes) number_of_group(axis) = find_or_make_group(axis);
  }

  /// The group along `axis`. Along an axis with all ranks it is the group of all.
  C& along(MeshAxis axis) {
    const std::size_t number = number_of_group(axis);
    return number == world_number ? static_cast<C&>(*this) : groups_[number];
  }

  /// The place of this rank along each axis.
  const MeshPlace& place() const { return place_; }
  /// The number of ranks along each axis.
  const mesh& sizes() const { return sizes_; }
  /// Which ranks are neighbours in the job.
  const MeshOrder& order() const { return order_; }

  /// The group of the ranks with equal color, all of them along `tensor`.
  MeshRanks split(int color, int key) {
    return MeshRanks(C::split(color, key), {.tensor = mesh::rest});
  }

  /// Closes the groups along the axes, and then the group of all ranks; returns whether all were
  /// closed. Where C has it, as NcclCommunicator.
  bool close() requires requires(C& ranks) { ranks.close(); }
  {
    bool closed = true;
    for (C& group : groups_) closed = group.close() && closed;
    return C::close() && closed;
  }

 private:
  static constexpr std::size_t world_number = mesh_axes.size();

  std::size_t& number_of_group(MeshAxis axis) { return numbers_[static_cast<std::size_t>(axis)]; }

  /// Axes of one rank share a group. All ranks make the same groups in the same order.
  std::size_t find_or_make_group(MeshAxis axis) {
    if (sizes_[axis] == C::size()) return world_number;
    if (sizes_[axis] == 1)
      for (const MeshAxis before : mesh_axes)
        if (before < axis && sizes_[before] == 1) return number_of_group(before);
    MeshPlace first = place_;
    first[axis].rank = 0;
    groups_.push_back(C::split(detail::rank_at(first, order_), place_[axis].rank));
    return groups_.size() - 1;
  }

  MeshOrder order_;
  mesh sizes_;
  MeshPlace place_;
  std::vector<C> groups_;
  std::array<std::size_t, mesh_axes.size()> numbers_{};  // of each axis in groups_, or world_number
};

}  // namespace shardwise

#ifdef SHARDWISE_INLINE

#include "shardwise/comm/detail/agreed.hpp"

namespace shardwise::detail {

SHARDWISE_INLINE void check_order(const MeshOrder& order) {
  for (const MeshAxis axis : mesh_axes) {
    bool is_named = false;
    for (const MeshAxis named : order) is_named |= named == axis;
    if (!is_named)
      throw argument_error({"mesh: the order of ranks is ", order, "; it leaves out ", name(axis),
                            ", and must name each axis once"});
  }
}

SHARDWISE_INLINE mesh agreed_mesh(const std::vector<GivenMesh>& all) {
  require_agreed(all, "the mesh");
  check_order(all[0].order);
  return all[0].sizes.on_ranks(static_cast<int>(all.size()));
}

}  // namespace shardwise::detail

#endif  // SHARDWISE_INLINE
