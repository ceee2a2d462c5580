#pragma once
// Branches that read the same input, and one merge of their outputs.

#include <cstddef>
#include <utility>

#include "shardwise/model/composition.hpp"

namespace shardwise {

namespace detail {

template <class Op, class Indices, class... Branches>
struct join;
template <class Op, std::size_t... Is, class... Branches>
struct join<Op, std::index_sequence<Is...>, Branches...> {
  static_assert(sizeof...(Branches) > 1,
                "Join<Op, Branches...> needs two branches or more: Join<Sum, Identity, Block>.");
  using type = Composition<At<Branches, 0>..., At<Op, (Is + 1)...>>;
};

/// The composition in which all branches read the input, and Op reads their outputs.
template <class Op, class... Branches>
using join_t = typename join<Op, std::index_sequence_for<Branches...>, Branches...>::type;

}  // namespace detail

/// y = Op(branch(x), branch(x), ...). x is converted once, to the layout that all branches take or
/// else to its `stream_t`. The outputs of the branches are converted to the layout in which Op
/// takes the first one, or to `operand<J, In>` of Op. The gradients of the branches are added
/// before they are converted back.
///
///     Join<Sum, Identity, Block>              what Residual<Block> is, with other names
///     Join<Sum, Shortcut, Block>              a projection on the short way
///
/// Parts are numbered: the branches from 0 on, then Op.
/// throws   shape_error if the branches give shapes that Op does not take; if the features are in
///          the types, this is an error of the compiler
template <class Op, class... Branches>
class Join : public detail::join_t<Op, Branches...> {
 public:
  /// If all sizes are in the types.
  constexpr Join() requires(detail::HasAllSizes<Op> &&
                            (detail::HasAllSizes<Branches> && ...)) = default;
  /// All branches in order, if some sizes are not in the types.
  constexpr explicit Join(const Branches&... branches) : Join(Op{}, branches...) {}
  /// The merge and all branches in order: `Join(Attend<>({.soft_cap = 50}), q, k, v)`.
  constexpr explicit Join(const Op& op, const Branches&... branches)
      : detail::join_t<Op, Branches...>(branches..., op) {}
};

}  // namespace shardwise
