#pragma once
// Layer normalisation.

#include <cstddef>
#include <string>

#include "shardwise/core/names.hpp"
#include "shardwise/layers/row_norm.hpp"

namespace shardwise {

/// y = (x - mean) / sqrt(variance + epsilon) w + b over the features of each row: the innermost
/// axis, which must be `feature`. variance is Σ (x - mean)² / N. w begins as ones, b as zeros.
///
///     LayerNorm<512>{}                         weight and bias, epsilon 1e-5
///     LayerNorm<512, Affine::none>{Epsilon{1e-6}}
///     LayerNorm<dynamic>(512)
///
///                x per rank      w, b per rank   their gradient owes
/// Invariant      [..., N]        [N]             nothing
/// Sharded<A>     a share of rows [N]             an all-reduce
/// Sharded<feature>  [..., N/P]   [N/P]           nothing
/// layout   L -> L, for every L but Partial
/// sends    Sharded<feature>  forward two all-reduces of one number a row, backward two
///          else              nothing
/// throws   shape_error if x has another innermost axis or extent than N features; argument_error
///          for an epsilon below 0
/// source   Ba, Kiros, Hinton, "Layer normalization", 2016, section 3; the variance in two passes:
///          Chan, Golub, LeVeque, "Algorithms for computing the sample variance", 1983
template <std::size_t N, Affine A = Affine::weight_and_bias>
struct LayerNorm : detail::RowNorm<true, N, A> {
  using detail::RowNorm<true, N, A>::RowNorm;
};

namespace detail {

template <std::size_t N, Affine A>
inline constexpr bool runs_as_dynamic<LayerNorm<N, A>> = true;

}  // namespace detail

template <std::size_t N, Affine A>
struct NameOf<LayerNorm<N, A>> {
  static std::string name() {
    return detail::norm_name("LayerNorm", N, A, Affine::weight_and_bias);
  }
};

}  // namespace shardwise
