#pragma once
// The cheapest split of each linear layer and convolution of a model.

#include <array>
#include <cstddef>

#include "shardwise/model/split_cost.hpp"
#include "shardwise/model/split_search.hpp"

namespace shardwise {

/// The splits of N layers, in the order of the model, and the seconds of a step with them.
template <std::size_t N>
struct CheapestSplit {
  std::array<SplitKind, N> splits{};  ///< of linear layers and convolutions
  double seconds = 0;                 ///< as `price_of` says
};

/// The split of each linear layer and convolution with which a training step takes least time, by
/// the model of `SplitCost`: the seconds are those of `price_of` the model with these splits. `in`
/// is the global shape of the model's input; its sizes are in its type.
///
///     constexpr SplitCost cost{.links = StepCost::on({5e-6, 25e9}), .flops = 1e12};
///     constexpr auto found = cheapest_split<Mlp, mesh{.tensor = 4}>(
///         cost, {{Axis::batch, 64}, {Axis::feature, 784}});
///     struct Cheap : with_splits<Mlp, found.splits> {};
///
/// L is a chain: layers in a Sequential, with residual blocks of such layers. A linear layer has
/// the splits none, output and input; a convolution without groups also those along each axis of
/// its images; one with groups none and those, or by group if it is split so already. All other
/// layers stay as they are, `To` too, and so does a type derived from a layer. The layouts between
/// layers follow from the splits as in any model.
///
/// It is a shortest path: for each place between two layers, and each pair of a layout that may be
/// given and one that may be wanted there, the cheapest way from there to the end. So the time of
/// the search grows with the number of layers, and not with that of all splits. clang computes this
/// for many layers with a larger -fconstexpr-steps. Memory is not counted: ask `memory_of`.
/// throws   argument_error if a rate of `cost` is not above 0; as the layers, for a wrong shape
template <class L, Layout Offered = Invariant, Layout Wanted = Invariant,
          bool InputGradient = false>
constexpr auto cheapest_split(const SplitCost& cost, const mesh& sizes, const Shape& in,
                              const Sending& sending = {}) {
  static_assert(
      detail::HasAllSizes<L>,
      "cheapest_split: the type L leaves sizes open that are `dynamic`. Put them into the "
      "type: what a split costs follows from them.");
  detail::require_rates(cost, sizes);
  const auto best = detail::path_of_chain<InputGradient, Offered, Wanted>(
      typename detail::chain_of<L>::type{}, {cost, sending, sizes}, in);
  return CheapestSplit<detail::choices_in<L>>{best.splits, best.seconds};
}
/// The same with the sizes of the mesh in the type.
template <class L, mesh Sizes, Layout Offered = Invariant, Layout Wanted = Invariant,
          bool InputGradient = false>
constexpr auto cheapest_split(const SplitCost& cost, const Shape& in, const Sending& sending = {}) {
  return cheapest_split<L, Offered, Wanted, InputGradient>(cost, Sizes, in, sending);
}

namespace detail {

/// The error for a split that a layer does not have.
template <class L, SplitKind Kind, bool Has>
consteval bool must_have_split() {
  static_assert(Has,
                "with_splits: the layer L cannot be split by Kind. Take the splits that "
                "cheapest_split found for this model, or one of L::splits.");
  return true;
}

/// The layer or composition L with the splits from number First on.
template <class L, auto Splits, std::size_t First>
struct split_as {
  using type = L;
};

template <HasSplits L, auto Splits, std::size_t First>
struct split_as<L, Splits, First> {
  static constexpr auto& kinds = WaysToSplit<L>::kinds;
  static constexpr std::size_t way = [] {
    std::size_t i = 0;
    while (i < kinds.size() && kinds[i] != Splits[First]) ++i;
    return i;
  }();
  static_assert(must_have_split<L, Splits[First], (way < kinds.size())>());
  using type = nth_type_t<way, typename WaysToSplit<L>::type>;
};

template <class Parts, auto Splits, std::size_t First, class Done = Chain<>>
struct parts_split_as;
template <auto Splits, std::size_t First, class... Done>
struct parts_split_as<Chain<>, Splits, First, Chain<Done...>> {
  using type = Sequential<Done...>;
};
template <class L, class... Ls, auto Splits, std::size_t First, class... Done>
struct parts_split_as<Chain<L, Ls...>, Splits, First, Chain<Done...>>
    : parts_split_as<Chain<Ls...>, Splits, First + choices_in<L>,
                     Chain<Done..., typename split_as<L, Splits, First>::type>> {};

template <IsSequential L, auto Splits, std::size_t First>
struct split_as<L, Splits, First> : parts_split_as<parts_of_t<L>, Splits, First> {};
template <IsResidual L, auto Splits, std::size_t First>
struct split_as<L, Splits, First> {
  using type = Residual<typename split_as<residual_block_t<L>, Splits, First>::type>;
};

/// The error for another number of splits than a model has layers to split.
template <class L, std::size_t Given, std::size_t Needed>
consteval bool splits_must_fit() {
  static_assert(Given == Needed,
                "with_splits: L has Needed linear layers and convolutions, but Given splits are "
                "given. Take the splits that cheapest_split found for this model.");
  return true;
}

}  // namespace detail

/// The model L with these splits, a std::array of SplitKind in the order of its linear layers and
/// convolutions: a type to train or to derive from. It is made of Sequential and Residual of the
/// same layers; parameters have the same names and initial values as those of L by its type.
template <class L, auto Splits>
requires(detail::splits_must_fit<L, Splits.size(), detail::choices_in<L>>()) using with_splits =
    typename detail::split_as<L, Splits, 0>::type;

}  // namespace shardwise
