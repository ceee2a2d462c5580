#pragma once
// What a layer does along the mesh axes other than `tensor`, along which ranks have different
// samples, tokens or rows: its own rules of layouts say it. Types only.

#include <concepts>
#include <tuple>
#include <type_traits>

#include "shardwise/layers/layer.hpp"
#include "shardwise/layout/layout.hpp"
#include "shardwise/layout/layout_value.hpp"
#include "shardwise/redistribute/redistribute.hpp"

namespace shardwise::detail {

template <class L>
struct rules_along_others {
  using type = L;
};
template <class L>
requires requires { typename L::along_other_axes; }
struct rules_along_others<L> {
  using type = typename L::along_other_axes;
};

/// Whether ranks that have different parts along Cut run these exchanges, as far as they move
/// anything.
template <Axis Cut, class Exchanges>
inline constexpr bool run_over_slices = false;
template <Axis Cut, class... Es>
inline constexpr bool run_over_slices<Cut, std::tuple<Es...>> =
    ((Es::redistribution::movement == Movement::none || adds_samples<Es> ||
      (Cut == Axis::height && is_over_rows<Es>)) &&
     ...);

/// The rule of L where ranks cut its input by Cut: what it takes then, and what it gives.
template <class L, Axis Cut>
struct RuleOfSlices {
  using rules = typename rules_along_others<L>::type;
  using taken = typename rules::template input_layout<Sharded<Cut>, Sharded<Cut>>;
  using given = typename rules::template output_layout<taken>;

  /// Whether what it gives is split along another axis.
  static constexpr bool gives_other_split =
      layout_value<given>.cuts() && !std::same_as<given, Sharded<Cut>>;
  /// Whether L takes slices, with what its windows read beyond them, and whether it keeps them.
  static constexpr bool takes_slices = layout_value<taken>.cuts(Cut) && !gives_other_split &&
                                       run_over_slices<Cut, exchanges_t<L, taken>>;
  static constexpr bool keeps_slices =
      takes_slices && std::same_as<taken, Sharded<Cut>> && std::same_as<given, taken>;
};

///@{
/// Whether the result of L for a sample, or for a token, depends on that one alone, but for sums
/// that it exchanges and what the frame says of the whole batch.
template <class L>
inline constexpr bool computes_sample_by_sample = RuleOfSlices<L, Axis::batch>::keeps_slices;
template <class L>
inline constexpr bool computes_token_by_token = RuleOfSlices<L, Axis::sequence>::keeps_slices;
///@}

/// The rule of L where ranks along `context` cut its input by Cut, height or sequence. If what it
/// gives of them would be split along another axis, it takes whole samples, other ones on each
/// rank.
template <class L, Axis Cut>
struct RuleOfRows {
  static constexpr Axis cut = Cut;
  static constexpr bool takes_samples =
      computes_sample_by_sample<L> && RuleOfSlices<L, Cut>::gives_other_split;

  using of_slices = RuleOfSlices<L, takes_samples ? Axis::batch : Cut>;
  using taken = typename of_slices::taken;
  using given = typename of_slices::given;

  /// Whether L runs there.
  static constexpr bool runs = of_slices::takes_slices;
  ///@{
  /// Whether it then takes others than those of the rank's block, or gives others; and whether a
  /// frame says where they begin, as it does of rows, but not of tokens of which none moves.
  static constexpr bool moves_taken = runs && !std::same_as<taken, Sharded<Cut>>;
  static constexpr bool moves_given = runs && !std::same_as<given, Sharded<Cut>>;
  static constexpr bool takes_rows = moves_taken || moves_given || (runs && Cut == Axis::height);
  ///@}
};

}  // namespace shardwise::detail
