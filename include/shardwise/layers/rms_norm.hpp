#pragma once
// Normalisation by the root of the mean square.

#include <cstddef>
#include <string>

#include "shardwise/core/names.hpp"
#include "shardwise/layers/row_norm.hpp"

namespace shardwise {

/// y = x / sqrt(Σ x² / N + epsilon) w over the N features of each row: `LayerNorm` without the
/// mean, and by default without the bias. Layouts, shapes and errors as LayerNorm.
///
///     RmsNorm<512>{}                           weight, epsilon 1e-5
///     RmsNorm<dynamic>(512, Epsilon{1e-6})
///
/// sends    Sharded<feature>  an all-reduce of one number a row, forward and backward
///          else              nothing
/// source   Zhang, Sennrich, "Root mean square layer normalization", 2019, section 4
template <std::size_t N, Affine A = Affine::weight>
struct RmsNorm : detail::RowNorm<false, N, A> {
  using detail::RowNorm<false, N, A>::RowNorm;
};

namespace detail {

template <std::size_t N, Affine A>
inline constexpr bool runs_as_dynamic<RmsNorm<N, A>> = true;

}  // namespace detail

template <std::size_t N, Affine A>
struct NameOf<RmsNorm<N, A>> {
  static std::string name() { return detail::norm_name("RmsNorm", N, A, Affine::weight); }
};

}  // namespace shardwise
