#pragma once
// The loss of a batch on a mesh, from those of its slices.

#include <array>
#include <bit>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string>

#include "shardwise/core/compiled.hpp"
#include "shardwise/core/error.hpp"
#include "shardwise/core/location.hpp"
#include "shardwise/core/mesh.hpp"
#include "shardwise/core/sentence.hpp"
#include "shardwise/layout/over.hpp"
#include "shardwise/layout/view.hpp"
#include "shardwise/model/mesh_slice.hpp"
#include "shardwise/model/run.hpp"
#include "shardwise/train/labels.hpp"

namespace shardwise::detail {

[[noreturn, gnu::cold]] void refuse_target_of(const MeshPlace& target, const MeshPlace& prediction);

/// Calls f with the rank's slice of the labels or targets for a prediction of this shape: of the
/// rank's part of them, or of those of the whole batch.
/// throws   argument_error for the part of another rank, shape_error as require_batch_first, and
///          for no axis sequence where ranks have different tokens
template <class Context, class Given, class F>
auto with_slice_of_target(Run<Context>& run, const Shape& prediction, const Given& given, F&& f) {
  const MeshPlace& place = run.all_ranks.place();
  if constexpr (requires { typename Given::layout; }) {
    using L = typename Given::layout;
    using T = const typename Given::value_type;
    const View<T, L> target(given);
    const Shape& whole = target.global();
    require_batch_first(whole);
    if constexpr (MeshLayout<L>) {
      if (!(target.place() == place)) refuse_target_of(target.place(), place);
      return f(slice_of(target));
    } else {
      static_assert(std::same_as<L, Invariant>,
                    "on a mesh labels and targets are Invariant, which is whole on every rank, or "
                    "SamplesOverMesh of the layout of the prediction. Lay them out as one of "
                    "those.");
      const MeshLayoutValue layout = samples_over_mesh(axis_over_context(prediction));
      const Shape here = local_shape(layout, whole, place);
      const auto slice = [&](const T* data) {
        return f(View<T, Invariant>(data, here, place[MeshAxis::tensor]));
      };
      const std::size_t first = local_begin(layout, whole, place)[0];
      const T* const samples = target.data() + first * whole.elements(1, whole.rank());
      if (place[MeshAxis::context].size == 1 || axis_over_context(prediction) == Axis::batch)
        return slice(samples);
      Shape of_samples = whole;
      of_samples[0].units = here[0].units;
      const Place& along = place[MeshAxis::context];
      const View<T, Invariant> all(samples, of_samples, along);
      if (prediction.has(Axis::sequence))
        return slice(part_of_target<Sharded<Axis::sequence>>(run.backend, run.pool, all, along)
                         .view()
                         .data());
      return slice(
          part_of_target<Sharded<Axis::height>>(run.backend, run.pool, all, along).view().data());
    }
  } else {
    return f(given);  // an error of the loss
  }
}

std::string place_of_slice(int rank, const HeldPart& slice);

/// Calls f(), and if other ranks have other samples, adds to the place of its error the rank, and
/// where its slice begins: rows in the error are those of the slice.
template <class Context, class F>
auto at_slice(Run<Context>& run, const HeldPart& slice, F&& f) {
  if (sample_ranks(run.all_ranks.sizes()) == 1) return f();
  const DescribedLocation here([&] { return place_of_slice(run.all_ranks.rank(), slice); });
  return f();
}

/// What ranks that have other samples sum to agree on the loss of a batch: the loss of the slice,
/// the samples of the batch, their last digits and the square of these.
using NumbersOfSlice = std::array<double, 4>;

/// The last digits of a number: as many as leave the square of its sum over so many slices exact.
double low_digits(std::size_t samples, int slices);

inline std::string name_of_slices() { return "loss of the slices"; }

/// numbers = their reduction over the ranks that have other samples; they are on the host.
template <class Context, class T, std::size_t N>
void reduce_slices(Run<Context>& run, std::array<T, N>& numbers, Reduction reduction) {
  if constexpr (DeviceBackend<typename Context::backend>) {
    const Buffer memory = run.pool.take(sizeof(numbers));
    auto* const there = static_cast<T*>(memory.data());
    to_device(run.backend, numbers.data(), N, there);
    reduce_over_samples(run, name_of_slices, std::span(there, N), reduction);
    to_host(run.backend, there, N, numbers.data());
  } else {
    reduce_over_samples(run, name_of_slices, std::span<T>(numbers), reduction);
  }
}

/// Throws an argument_error on all ranks that have other samples, of which some could not use their
/// slice: with the message `mine` if this rank is one of those, else with that of the first of
/// them.
template <class Context>
[[noreturn, gnu::noinline, gnu::cold]] void throw_refused(Run<Context>& run,
                                                          const std::string& mine) {
  const std::int64_t rank = run.all_ranks.rank();
  std::array<std::int64_t, 1> first{mine.empty() ? run.all_ranks.size() : rank};
  reduce_slices(run, first, Reduction::min);
  std::array<std::int64_t, 1> letters{first[0] == rank ? static_cast<std::int64_t>(mine.size())
                                                       : 0};
  reduce_slices(run, letters, Reduction::max);
  std::string told;
  while (told.size() < static_cast<std::size_t>(letters[0])) {
    std::array<std::uint8_t, 500> piece{};
    if (first[0] == rank)
      mine.copy(reinterpret_cast<char*>(piece.data()), piece.size(), told.size());
    reduce_slices(run, piece, Reduction::max);
    told.append(reinterpret_cast<const char*>(piece.data()), piece.size());
  }
  told.resize(static_cast<std::size_t>(letters[0]));
  throw argument_error(mine.empty() ? told : mine);
}

/// Throws an argument_error on all ranks that have other samples, whose batches have unlike sizes:
/// it names the first rank with the smallest batch and the first one with the largest.
template <class Context>
[[noreturn, gnu::noinline, gnu::cold]] void throw_unlike_sizes(Run<Context>& run,
                                                               std::size_t samples) {
  const auto mine = static_cast<std::int64_t>(samples);
  std::array<std::int64_t, 2> sizes{mine, -mine};
  reduce_slices(run, sizes, Reduction::min);
  const std::int64_t least = sizes[0], most = -sizes[1];
  const std::int64_t rank = run.all_ranks.rank(), none = run.all_ranks.size();
  std::array<std::int64_t, 2> first{mine == least ? rank : none, mine == most ? rank : none};
  reduce_slices(run, first, Reduction::min);
  throw argument_error({"rank ", first[0], " was given a batch of ", least, " samples, and rank ",
                        first[1], " one of ", most,
                        ". Every rank gives the shape of the whole batch, which is the same on all "
                        "ranks along data, replica and context"});
}

/// The sum of the numbers of_slice() of all slices of a prediction, after ranks have compared the
/// samples of their batches.
///
/// sends    an all-reduce of four doubles along each axis that cuts samples
/// throws   argument_error on every rank if of_slice() throws one on some, or if ranks were given
///          batches of unlike sizes
template <class Context, class F>
double sum_of_slices(Run<Context>& run, const Shape& prediction, F&& of_slice) {
  const MeshPlace& place = run.all_ranks.place();
  const HeldPart slice = slice_part(sliced_axes(prediction, place), place);
  const std::size_t samples = slice.whole[0].extent();
  const int slices = sample_ranks(run.all_ranks.sizes());
  constexpr double refused = -std::numeric_limits<double>::infinity();
  std::string refusal;
  NumbersOfSlice numbers{0, 0, 0, refused};
  try {
    const double number = at_slice(run, slice, of_slice);
    const double low = low_digits(samples, slices);
    numbers = {number, static_cast<double>(samples), low, low * low};
  } catch (const argument_error& e) {
    refusal = e.what();
  }
  reduce_slices(run, numbers, Reduction::sum);
  if (numbers[3] == refused) throw_refused(run, refusal);
  // The mean of squares is the square of the mean only if all numbers are equal.
  if (numbers[3] * slices == numbers[2] * numbers[2]) return numbers[0];
  throw_unlike_sizes(run, samples);
}

}  // namespace shardwise::detail

#ifdef SHARDWISE_INLINE

namespace shardwise::detail {

SHARDWISE_INLINE void refuse_target_of(const MeshPlace& target, const MeshPlace& prediction) {
  throw argument_error({"the labels or targets are the part of ", target,
                        ", but the prediction is that of ", prediction,
                        ": make both with ranks.place() of the model's communicator"});
}

SHARDWISE_INLINE std::string place_of_slice(int rank, const HeldPart& slice) {
  const std::string place = sentence({"rank ", rank, ", slice from sample ", slice.begin[0]});
  if (!slice.whole.has(Axis::sequence)) return place + " on";
  return place + sentence({" and token ", slice.begin[1], " on"});
}

SHARDWISE_INLINE double low_digits(std::size_t samples, int slices) {
  const std::size_t end = (std::size_t{1} << 26) / std::bit_ceil(static_cast<std::size_t>(slices));
  return static_cast<double>(samples % end);
}

}  // namespace shardwise::detail

#endif  // SHARDWISE_INLINE
