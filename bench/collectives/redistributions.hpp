#pragma once
// Every redistribution that communicates, on tensors of float, with what it must give.

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <functional>
#include <memory>
#include <vector>

#include "collectives/bandwidth.hpp"
#include "collectives/move.hpp"
#include "shardwise/layout/tensor.hpp"
#include "shardwise/model/collective_of.hpp"
#include "shardwise/redistribute/run.hpp"

namespace bench {

namespace sw = shardwise;

///@{
/// Images split by height, and what a 3x3 window reads of them.
inline constexpr sw::Window window{.kernel = 3, .before = 1, .after = 1};
using Height = sw::Sharded<sw::Axis::height>;
using Haloed = sw::Haloed<sw::Axis::height, window>;
using HaloedPartial = sw::HaloedPartial<sw::Axis::height, window>;
///@}

/// Rows of 64 floats; fewer where there would not be one for each rank.
inline sw::Shape matrix(std::size_t floats, int ranks) {
  const std::size_t rows = std::max(static_cast<std::size_t>(ranks), floats / 64);
  return {{sw::Axis::batch, rows}, {sw::Axis::feature, std::max<std::size_t>(1, floats / rows)}};
}

/// Square images of 32 x 32, or one that is smaller.
inline sw::Shape images(std::size_t floats, int) {
  std::size_t extent = 32;
  while (extent > 1 && extent * extent > floats) extent /= 2;
  return {{sw::Axis::batch, std::max<std::size_t>(1, floats / (extent * extent))},
          {sw::Axis::height, extent},
          {sw::Axis::width, extent}};
}

/// Whether ranks that hold an element as L hold summands of it.
template <sw::Layout L>
inline constexpr bool summands = std::same_as<L, sw::Partial> || sw::detail::HaloedPartialLayout<L>;

/// Calls f(global index, local index) for each element of a rank's part as L.
template <sw::Layout L, class F>
void for_each_element(const sw::Shape& shape, sw::Place place, F f) {
  const sw::View<const float, L> part(static_cast<const float*>(nullptr), shape, place);
  sw::for_each_global_run(part, [&](std::size_t global, std::size_t local, std::size_t length) {
    for (std::size_t i = 0; i < length; ++i) f(global + i, local + i);
  });
}

/// A tensor laid out as From, and the same as To.
template <sw::Layout From, sw::Layout To>
class Redistributed {
 public:
  using R = sw::Redistribute<From, To>;

  Redistributed(const sw::Shape& shape, sw::Place place) : from_(shape, place), to_(shape, place) {
    for_each_element<From>(shape, place, [&](std::size_t global, std::size_t local) {
      from_[local] = held_by(place.rank, global);
    });
    std::fill_n(to_.data(), to_.size(), nothing);
  }

  template <class C>
  void run(C& ranks) {
    sw::redistribute(ranks, pool_, sw::View<const float, From>(from_.view()), to_.view());
  }

  bool is_right() const {
    const sw::Shape& shape = to_.global();
    std::vector<float> exact(shape.elements());
    for (int rank = 0; rank < ranks(); ++rank) {
      for_each_element<From>(shape, {rank, ranks()}, [&](std::size_t global, std::size_t) {
        exact[global] = (summands<From> ? exact[global] : 0) + held_by(rank, global);
      });
    }
    bool right = true;
    for_each_element<To>(shape, to_.place(), [&](std::size_t global, std::size_t local) {
      right = right && to_.data()[local] == exact[global];
    });
    return right;
  }

  Traffic traffic() const {
    const double bytes = static_cast<double>(to_.global().elements() * sizeof(float));
    const auto plan = sw::detail::collective_of<R>(to_.global(), sw::Dtype::float32);
    return {bytes, least(bytes), static_cast<double>(plan->bytes_sent(ranks())) / ranks()};
  }

  ///@{
  /// What this rank gives, and what it has got.
  const sw::Tensor<float, From>& from() const { return from_; }
  const sw::Tensor<float, To>& to() const { return to_; }
  sw::Tensor<float, To>& to() { return to_; }
  ///@}

 private:
  int ranks() const { return to_.place().size; }

  static float held_by(int rank, std::size_t global) {
    return number(summands<From> ? rank : 0, global);
  }

  double least(double bytes) const {
    if constexpr (R::movement == sw::Movement::halo_exchange) return beyond<To>();
    if constexpr (R::movement == sw::Movement::halo_sum) return beyond<From>();
    // A rank receives all that is not its alone.
    if constexpr (R::movement == sw::Movement::halo_all_reduce)
      return beyond<From>() + least_bytes(sw::Operation::all_gather, ranks(), bytes);
    // Of a tensor that is split before and after, a rank passes in its block.
    const bool split = R::movement == sw::Movement::all_to_all;
    return least_bytes(*R::operation(), ranks(), split ? bytes / ranks() : bytes);
  }

  /// Bytes of the halo L of the rank that has most beyond its own block.
  template <sw::detail::SplitLayout L>
  double beyond() const {
    const sw::Shape& shape = to_.global();
    const sw::Dim& axis = shape[sw::detail::split_position<L>(shape)];
    std::size_t most = 0;
    for (int rank = 0; rank < ranks(); ++rank) {
      const sw::Place place{rank, ranks()};
      const sw::Interval held = sw::detail::held_interval<L>(axis, place);
      most = std::max(most, held.size - sw::detail::overlap(held, sw::block_of(axis, place)).size);
    }
    return static_cast<double>(most * (shape.elements() / axis.extent()) * sizeof(float));
  }

  sw::Tensor<float, From> from_;
  sw::Tensor<float, To> to_;
  sw::Pool pool_;
};

/// The shape of a tensor of about so many floats, on so many ranks.
using ShapeOf = std::function<sw::Shape(std::size_t floats, int ranks)>;

/// From -> To, as one way to do it.
template <class From, class To, class C>
std::function<Move(C&, std::size_t)> redistribution(ShapeOf shape) {
  return [shape](C& ranks, std::size_t floats) {
    const auto tensors =
        std::make_shared<Redistributed<From, To>>(shape(floats, ranks.size()), sw::place_of(ranks));
    return Move{[=, &ranks] { tensors->run(ranks); }, [=] { return tensors->is_right(); },
                tensors->traffic()};
  };
}

}  // namespace bench
