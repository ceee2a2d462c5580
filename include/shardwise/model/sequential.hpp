#pragma once
// Layers one after another.

#include <cstddef>
#include <utility>

#include "shardwise/model/composition.hpp"

namespace shardwise {

namespace detail {

template <class Indices, class... Ls>
struct chain;
template <std::size_t... Is, class... Ls>
struct chain<std::index_sequence<Is...>, Ls...> {
  using type = Composition<At<Ls, Is>...>;
};

/// The composition in which each layer reads the output of the one before.
template <class... Ls>
using chain_t = typename chain<std::index_sequence_for<Ls...>, Ls...>::type;

}  // namespace detail

/// Each layer reads the output of the one before. Between two neighbours there is one
/// redistribution, from the layout of the first to the layout of the second.
///
///     struct Mlp : Sequential<ColumnParallelLinear<784, 512>, Relu, RowParallelLinear<512, 10>>
///     {};
///
/// Deriving a type of your own keeps its name in messages and errors. Layers whose sizes are
/// `dynamic` are given to the constructor, all in order: `using Mlp::Sequential::Sequential;`.
template <class... Ls>
class Sequential : public detail::chain_t<Ls...> {
 public:
  /// If all sizes are in the types.
  constexpr Sequential() requires(detail::HasAllSizes<Ls>&&...) = default;
  /// All layers in order, if some sizes are not in the types.
  constexpr explicit Sequential(const Ls&... layers) : detail::chain_t<Ls...>(layers...) {}
};

}  // namespace shardwise
