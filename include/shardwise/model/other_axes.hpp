#pragma once
// What a layer does along the mesh axes other than `tensor`, along which ranks have different
// samples, tokens or rows: its own rules of layouts say it. Types only.

#include <concepts>
#include <cstddef>
#include <tuple>
#include <type_traits>
#include <utility>

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

/// Whether ranks that have different slices run these exchanges: all-reduces, or nothing that
/// moves.
template <class Exchanges>
inline constexpr bool run_over_slices = false;
template <class... Es>
inline constexpr bool run_over_slices<std::tuple<Es...>> =
    ((Es::redistribution::movement == Movement::none ||
      Es::redistribution::movement == Movement::all_reduce) &&
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
  static constexpr bool takes_slices =
      layout_value<taken>.cuts(Cut) && !gives_other_split && run_over_slices<exchanges_t<L, taken>>;
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
  /// Whether rows become tokens in their order, so that the samples may stay where they are, see
  /// `keeps_blocks`.
  static constexpr bool makes_tokens =
      takes_samples && std::same_as<typename RuleOfSlices<L, Cut>::taken, Sharded<Cut>> &&
      std::same_as<typename RuleOfSlices<L, Cut>::given, Sharded<Axis::sequence>>;
  ///@{
  /// Whether it then takes others than those of the rank's block, or gives others; and whether a
  /// frame says where they begin, as it does of rows, but not of tokens of which none moves.
  static constexpr bool moves_taken = runs && !std::same_as<taken, Sharded<Cut>>;
  static constexpr bool moves_given = runs && !std::same_as<given, Sharded<Cut>>;
  static constexpr bool takes_rows = moves_taken || moves_given || (runs && Cut == Axis::height);
  ///@}
};

// --- exchanges -----------------------------------------------------------------------------------

/// Whether exchange Index of the list AlongTensor is One along another axis: of the same values,
/// combined in the same way.
template <class AlongTensor, std::size_t Index, class One>
consteval bool is_one_exchange() {
  if constexpr (Index < std::tuple_size_v<AlongTensor>) {
    using Other = std::tuple_element_t<Index, AlongTensor>;
    return One::reduction == Other::reduction &&
           std::same_as<typename One::template value_type<void>,
                        typename Other::template value_type<void>>;
  } else {
    return false;
  }
}

/// Whether what moves by a list along another axis is exchanged by AlongTensor, too: a layer runs
/// the exchanges of that one.
template <class AlongTensor, class OfSlices,
          class Indices = std::make_index_sequence<std::tuple_size_v<OfSlices>>>
inline constexpr bool exchanges_hold = false;
template <class AlongTensor, class... Es, std::size_t... Is>
inline constexpr bool exchanges_hold<AlongTensor, std::tuple<Es...>, std::index_sequence<Is...>> =
    ((Es::redistribution::movement == Movement::none || is_one_exchange<AlongTensor, Is, Es>()) &&
     ...);

/// The exchanges of a layer: along `tensor`, and along an axis whose ranks cut its input by
/// samples, tokens or rows. A loss, and a layer on ranks of one axis, has a std::tuple for those
/// along `tensor`.
template <class AlongTensor, class OfSamples, class OfTokens, class OfRows>
struct ExchangesOnMesh {
  using along_tensor = AlongTensor;
};

template <class L, Layout In, class AlongTensor = exchanges_t<L, In>>
struct exchanges_on_mesh {
  using type =
      ExchangesOnMesh<AlongTensor, exchanges_t<L, typename RuleOfSlices<L, Axis::batch>::taken>,
                      exchanges_t<L, typename RuleOfRows<L, Axis::sequence>::taken>,
                      exchanges_t<L, typename RuleOfRows<L, Axis::height>::taken>>;
};
template <class L, Layout In>
struct exchanges_on_mesh<L, In, std::tuple<>> {
  using type = std::tuple<>;
};
/// The exchanges of L, whose input is In along `tensor`, along each axis of a mesh.
template <class L, Layout In>
using exchanges_on_mesh_t = typename exchanges_on_mesh<L, In>::type;

template <class Exchanges>
struct exchanges_along_tensor {
  using type = Exchanges;
};
template <class AlongTensor, class... OfSlices>
struct exchanges_along_tensor<ExchangesOnMesh<AlongTensor, OfSlices...>> {
  using type = AlongTensor;
};
/// Those along `tensor`.
template <class Exchanges>
using exchanges_along_tensor_t = typename exchanges_along_tensor<Exchanges>::type;

/// Whether exchange Index of the list, or its adjoint, is an all-reduce.
template <class List, std::size_t Index, bool Back>
consteval bool is_all_reduce() {
  if constexpr (Index < std::tuple_size_v<List>) {
    using R = typename std::tuple_element_t<Index, List>::redistribution;
    return std::conditional_t<Back, adjoint_t<R>, R>::movement == Movement::all_reduce;
  } else {
    return false;
  }
}

/// The cuts of a layer's input over which ranks combine the values of an exchange.
struct CombinedOver {
  bool samples = false, tokens = false, rows = false;

  constexpr bool any() const { return samples || tokens || rows; }
  constexpr bool has(Axis cut) const {
    if (cut == Axis::sequence) return tokens;
    return cut == Axis::height ? rows : samples;
  }
};
/// Those of exchange Index, or with Back of its adjoint.
template <class Exchanges, std::size_t Index, bool Back>
inline constexpr CombinedOver combined_over{};
template <class AlongTensor, class OfSamples, class OfTokens, class OfRows, std::size_t Index,
          bool Back>
inline constexpr CombinedOver
    combined_over<ExchangesOnMesh<AlongTensor, OfSamples, OfTokens, OfRows>, Index, Back>{
        is_all_reduce<OfSamples, Index, Back>(), is_all_reduce<OfTokens, Index, Back>(),
        is_all_reduce<OfRows, Index, Back>()};

}  // namespace shardwise::detail
