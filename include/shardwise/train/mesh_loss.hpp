#pragma once
// The loss of a batch on a mesh, from those of its slices.

#include <array>
#include <cstddef>
#include <span>
#include <string>
#include <type_traits>

#include "shardwise/core/error.hpp"
#include "shardwise/core/mesh.hpp"
#include "shardwise/core/sentence.hpp"
#include "shardwise/layout/over.hpp"
#include "shardwise/layout/view.hpp"
#include "shardwise/model/mesh_slice.hpp"
#include "shardwise/model/run.hpp"

namespace shardwise::detail {

/// The rank's slice of labels or targets: of the rank's part of them, or of those of the whole
/// batch.
/// throws   argument_error for the part of another rank, shape_error as require_batch_first
template <class Given>
auto slice_of_target(const Given& given, const MeshPlace& place) {
  if constexpr (requires { typename Given::layout; }) {
    using L = typename Given::layout;
    using T = const typename Given::value_type;
    const View<T, L> target(given);
    const Shape& whole = target.global();
    require_batch_first(whole);
    if constexpr (MeshLayout<L>) {
      if (!(target.place() == place))
        throw argument_error({"the labels or targets are the part of ", target.place(),
                              ", but the prediction is that of ", place,
                              ": make both with ranks.place() of the model's communicator"});
      return slice_of(target);
    } else {
      static_assert(std::same_as<L, Invariant>,
                    "on a mesh labels and targets are Invariant, which is whole on every rank, or "
                    "SamplesOverMesh of the layout of the prediction. Lay them out as one of "
                    "those.");
      const std::size_t first = local_begin<SamplesOverMesh<Invariant>>(whole, place)[0];
      return View<T, Invariant>(target.data() + first * whole.elements(1, whole.rank()),
                                slice_shape(whole, place), place[MeshAxis::tensor]);
    }
  } else {
    return given;  // an error of the loss
  }
}

/// Calls f(), and if other ranks have other samples, adds to the place of its error where the
/// rank's slice begins: rows in the error are those of the slice.
template <class Context, class F>
auto at_slice(Run<Context>& run, F&& f) {
  try {
    return f();
  } catch (error& e) {
    if (sample_ranks(run.all_ranks.sizes()) > 1)
      e.add_place(sentence({"slice from sample ", run.flight->slice.first, " on"}), ": ");
    throw;
  }
}

/// The sum of a number of each slice, after ranks have compared the samples of their batches.
/// sends    an all-reduce of four doubles along each axis that cuts samples
/// throws   argument_error on every rank if they were given batches of unlike sizes
template <class Context>
double sum_of_slices(Run<Context>& run, double mine, std::size_t samples) {
  const auto low = static_cast<double>(samples % 4096);  // so that sums of squares are exact
  std::array<double, 4> numbers{mine, static_cast<double>(samples), low, low * low};
  const auto add = [&](std::span<double> there) {
    sum_over_samples(
        run, [] { return std::string("loss of the slices"); }, there);
  };
  if constexpr (DeviceBackend<typename Context::backend>) {
    const Buffer memory = run.pool.take(sizeof(numbers));
    auto* const there = static_cast<double*>(memory.data());
    to_device(run.backend, numbers.data(), numbers.size(), there);
    add({there, numbers.size()});
    to_host(run.backend, there, numbers.size(), numbers.data());
  } else {
    add(numbers);
  }
  // The mean of squares is the square of the mean only if all numbers are equal.
  const double slices = sample_ranks(run.all_ranks.sizes());
  if (numbers[3] * slices == numbers[2] * numbers[2]) return numbers[0];
  throw argument_error({run.all_ranks.place(), " was given a batch of ", samples,
                        " samples, and other ranks along data or replica batches of another size: "
                        "those of ",
                        sample_ranks(run.all_ranks.sizes()), " slices have ",
                        static_cast<std::size_t>(numbers[1]),
                        " samples together. Every rank gives the shape of the whole batch, which "
                        "is the same on all"});
}

}  // namespace shardwise::detail
