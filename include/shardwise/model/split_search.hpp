#pragma once
// A shortest path through the layouts of a chain of layers.
//
// A node is a place between two layers with the layout that is given there and the layout that is
// wanted there. A layer, split in one way, leads from one node to another. Of which layouts a node
// can have, and where a layer leads, types decide, as in a model; the price is a number.

#include <array>
#include <concepts>
#include <cstddef>
#include <limits>
#include <tuple>
#include <type_traits>
#include <utility>

#include "shardwise/core/type_set.hpp"
#include "shardwise/layers/split_kind.hpp"
#include "shardwise/layers/stream.hpp"
#include "shardwise/model/residual.hpp"
#include "shardwise/model/sequential.hpp"
#include "shardwise/model/split_cost.hpp"

namespace shardwise {

namespace detail {

/// A layer that a search may split otherwise. A type derived from one may compute something else.
template <class L>
concept HasSplits = runs_as_dynamic<L> && requires {
  typename L::splits;
};

/// A layer in each of its splits.
template <class L>
struct WaysToSplit {
  using type = TypeSet<L>;
  static constexpr std::array kinds{SplitKind::none};
};
template <class L, class Choices>
struct ListedWays;
template <class L, class... S>
struct ListedWays<L, SplitChoices<S...>> {
  using type = TypeSet<typename L::template split_by<S>...>;
  static constexpr std::array kinds{S::kind...};
};
template <HasSplits L>
struct WaysToSplit<L> : ListedWays<L, typename L::splits> {};

// --- the parts of a chain ------------------------------------------------------------------------

/// Layers and residual blocks in their order.
template <class... Steps>
struct Chain {};
template <class... As, class... Bs>
Chain<As..., Bs...> operator+(Chain<As...>, Chain<Bs...>);

template <class... Ls>
Chain<Ls...> parts_of(const Sequential<Ls...>*);
template <class Block>
std::type_identity<Block> residual_block(const Residual<Block>*);

template <class L>
concept IsSequential = requires(const L* l) {
  parts_of(l);
};
template <class L>
concept IsResidual = requires(const L* l) {
  residual_block(l);
};
template <IsSequential L>
using parts_of_t = decltype(parts_of(static_cast<const L*>(nullptr)));
template <IsResidual L>
using residual_block_t = typename decltype(residual_block(static_cast<const L*>(nullptr)))::type;

template <class L>
consteval bool must_be_step() {
  static_assert(!IsComposition<L> || IsResidual<L>,
                "cheapest_split searches chains of layers and residual blocks: Sequential and "
                "Residual. L is another composition. Search a Sequential inside it, and say which "
                "layouts are offered and wanted at its ends.");
  return true;
}

/// The Chain of a model: what is inside a Sequential stands in its place.
template <class L>
struct chain_of {
  static_assert(must_be_step<L>());
  using type = Chain<L>;
};
template <class Parts>
struct joined_chain;
template <class... Ls>
struct joined_chain<Chain<Ls...>> {
  using type = decltype((Chain<>{} + ... + typename chain_of<Ls>::type{}));
};
template <IsSequential L>
struct chain_of<L> : joined_chain<parts_of_t<L>> {};

/// The number of layers in L that a search splits.
template <class L>
inline constexpr std::size_t choices_in = HasSplits<L> ? 1 : 0;
template <class... Steps>
inline constexpr std::size_t choices_in<Chain<Steps...>> = (std::size_t{0} + ... +
                                                            choices_in<Steps>);
template <IsSequential L>
inline constexpr std::size_t choices_in<L> = choices_in<typename chain_of<L>::type>;
template <IsResidual L>
inline constexpr std::size_t choices_in<L> = choices_in<residual_block_t<L>>;

/// Whether a step owns parameters, however it is split.
template <class L>
inline constexpr bool owns_parameters = OwnsParameters<L, Ends<Invariant, Invariant>>::value;
template <class... Steps>
inline constexpr bool owns_parameters<Chain<Steps...>> = (owns_parameters<Steps> || ...);
template <IsResidual L>
inline constexpr bool owns_parameters<L> =
    owns_parameters<typename chain_of<residual_block_t<L>>::type>;

// --- where steps lead ----------------------------------------------------------------------------

template <class... Ts>
consteval std::size_t size_of_set(TypeSet<Ts...>) {
  return sizeof...(Ts);
}
/// The number of a type in a set.
template <class T, class... Ts>
consteval std::size_t index_in(TypeSet<Ts...>) {
  std::size_t index = 0;
  (void)((std::same_as<T, Ts> || (++index, false)) || ...);
  return index;
}

template <std::size_t Index, class Set>
struct nth_type;
template <std::size_t Index, class... Ts>
struct nth_type<Index, TypeSet<Ts...>> : std::tuple_element<Index, std::tuple<Ts...>> {};
template <std::size_t Index, class Set>
using nth_type_t = typename nth_type<Index, Set>::type;

/// The ways of a step, one for each of its splits: the layout V that is wanted in front of it if W
/// is wanted behind it, and those that it takes and gives if O is offered.
template <class Step>
struct Ways {
  using type = typename WaysToSplit<Step>::type;
  template <class V, Layout W>
  using wanted = desired_input_layout_t<V, W>;
  template <class V, Layout O, Layout W>
  using taken = input_layout_at_t<V, Ends<O, W>>;
  template <class V, Layout O, Layout W>
  using given = output_layout_at_t<V, Ends<O, W>>;
};
/// The stream of a residual block has one layout from begin to end.
template <IsResidual Step>
struct Ways<Step> {
  using type = TypeSet<Step>;
  template <class V, Layout W>
  using wanted = stream_t<W, Invariant>;
  template <class V, Layout O, Layout W>
  using taken = stream_t<O, wanted<V, W>>;
  template <class V, Layout O, Layout W>
  using given = taken<V, O, W>;
};

/// The layouts to which a step leads from Offered in front of it and Behind wanted behind it.
template <class Step, class Offered, class Behind, class Vs = typename Ways<Step>::type>
struct Reached;
template <class Step, class... Os, class... Ws, class... Vs>
struct Reached<Step, TypeSet<Os...>, TypeSet<Ws...>, TypeSet<Vs...>> {
  using Of = Ways<Step>;
  template <class V, class O, class W>
  using taken_from = typename Of::template taken<V, O, W>;
  template <class V, class O, class W>
  using given_from = std::conditional_t<redistributable<O, taken_from<V, O, W>>,
                                        TypeSet<typename Of::template given<V, O, W>>, TypeSet<>>;
  template <class V, class O>
  using all_taken_from = decltype((TypeSet<>{} | ... | TypeSet<taken_from<V, O, Ws>>{}));
  template <class V, class O>
  using all_given_from = decltype((TypeSet<>{} | ... | given_from<V, O, Ws>{}));
  template <class V>
  using all_wanted = decltype((TypeSet<>{} | ... | TypeSet<typename Of::template wanted<V, Ws>>{}));
  template <class V>
  using all_given = decltype((TypeSet<>{} | ... | all_given_from<V, Os>{}));

  template <class V>
  using taken = decltype((TypeSet<>{} | ... | all_taken_from<V, Os>{}));
  using given = decltype((TypeSet<>{} | ... | all_given<Vs>{}));
  using wanted = decltype((TypeSet<>{} | ... | all_wanted<Vs>{}));
};

/// The layouts that are wanted in front of steps behind which End is wanted.
template <class End, class... Steps>
struct wanted_before {
  using type = TypeSet<End>;
};
template <class End, class First, class... Rest>
struct wanted_before<End, First, Rest...> {
  using type =
      typename Reached<First, TypeSet<>, typename wanted_before<End, Rest...>::type>::wanted;
};

// --- the search ----------------------------------------------------------------------------------

/// The splits of N layers, and what they cost.
template <std::size_t N>
struct SplitPath {
  double seconds = std::numeric_limits<double>::infinity();
  std::array<SplitKind, N> splits{};
};

/// One path behind the other.
template <std::size_t N, std::size_t M>
constexpr SplitPath<N + M> operator+(const SplitPath<N>& first, const SplitPath<M>& rest) {
  SplitPath<N + M> both{first.seconds + rest.seconds};
  for (std::size_t i = 0; i < N; ++i) both.splits[i] = first.splits[i];
  for (std::size_t i = 0; i < M; ++i) both.splits[N + i] = rest.splits[i];
  return both;
}

/// What a search asks for prices.
struct Prices {
  const SplitCost& cost;
  const Sending& sending;
  const mesh& sizes;

  template <class R, bool Returns, class X>
  constexpr double of_redistribution(const Shape& shape) const {
    PriceVisitor visitor(sending, sizes);
    visitor.redistribution<R, Returns, X>(shape);
    return visitor.seconds(cost);
  }
  template <class L, Layout In, bool InputGradient>
  constexpr double of_layer(const Shape& in) const {
    constexpr bool returns = InputGradient || owns_parameters<L>;
    const L layer;
    PriceVisitor visitor(sending, sizes);
    visitor.has_input_gradient = InputGradient;
    visitor.layer<L, In, returns>(layer, in, layer.output_shape(in));
    return visitor.seconds(cost);
  }
};

/// The cheapest paths through steps, from each layout of the set Offered in front of them, and for
/// each layout that may be wanted in front of them, to the layout End. Gradient is whether the
/// value in front of them has a gradient.
template <bool Gradient, class Offered, class End, class... Steps>
struct Search;

template <bool Gradient, class Offered, class Wanted, class... Steps>
constexpr auto path_of_chain(Chain<Steps...>, const Prices& prices, const Shape& in);

/// The price of step V that takes In.
template <bool Gradient, class Step, class V, Layout In>
constexpr SplitPath<choices_in<Step>> path_of_step(const Prices& prices, const Shape& in) {
  if constexpr (IsResidual<Step>) {
    return path_of_chain<Gradient, In, In>(typename chain_of<residual_block_t<Step>>::type{},
                                           prices, in);
  } else {
    SplitPath<choices_in<Step>> path{prices.of_layer<V, In, Gradient>(in)};
    if constexpr (HasSplits<Step>)
      path.splits[0] = WaysToSplit<Step>::kinds[index_in<V>(typename Ways<Step>::type{})];
    return path;
  }
}

template <bool Gradient, class... Os, class End>
struct Search<Gradient, TypeSet<Os...>, End> {
  using Paths = std::array<std::array<SplitPath<0>, 1>, sizeof...(Os)>;

  static constexpr Paths solve(const Prices& prices, const Shape& shape) {
    Paths paths;
    std::size_t from = 0;
    (leave<Os>(paths[from++][0], prices, shape), ...);
    return paths;
  }

 private:
  template <class O>
  static constexpr void leave(SplitPath<0>& path, const Prices& prices, const Shape& shape) {
    if constexpr (redistributable<O, End>)
      path.seconds = prices.of_redistribution<Redistribute<O, End>, Gradient, void>(shape);
  }
};

template <bool Gradient, class... Os, class End, class First, class... Rest>
struct Search<Gradient, TypeSet<Os...>, End, First, Rest...> {
  using Behind = typename wanted_before<End, Rest...>::type;
  using Leads = Reached<First, TypeSet<Os...>, Behind>;
  using Given = typename Leads::given;
  using Here = typename Leads::wanted;
  using Next = Search<Gradient || owns_parameters<First>, Given, End, Rest...>;
  using Path = SplitPath<choices_in<Chain<First, Rest...>>>;
  using Row = std::array<Path, size_of_set(Here{})>;  // by the layout that is wanted here
  using Paths = std::array<Row, sizeof...(Os)>;       // by the layout that is offered here

  static constexpr Paths solve(const Prices& prices, const Shape& shape) {
    const auto behind = Next::solve(prices, First().output_shape(shape));
    Paths paths;
    const auto add = [&]<class... Vs>(TypeSet<Vs...>) {
      (add_split<Vs>(paths, behind, prices, shape, Behind{}), ...);
    };
    add(typename Ways<First>::type{});
    return paths;
  }

 private:
  /// The prices of a step in the layouts that it may take, each asked for once.
  template <class V>
  struct Known {
    using Taken = typename Leads::template taken<V>;
    std::array<SplitPath<choices_in<First>>, size_of_set(Taken{})> paths;
    std::array<bool, size_of_set(Taken{})> known{};

    template <class In>
    constexpr const auto& at(const Prices& prices, const Shape& shape) {
      constexpr std::size_t in = index_in<In>(Taken{});
      if (!std::exchange(known[in], true))
        paths[in] = path_of_step<Gradient, First, V, In>(prices, shape);
      return paths[in];
    }
  };

  template <class V, class... Ws>
  static constexpr void add_split(Paths& paths, const typename Next::Paths& behind,
                                  const Prices& prices, const Shape& shape, TypeSet<Ws...>) {
    Known<V> known;
    std::size_t from = 0;
    const auto add_from = [&]<class O>(std::type_identity<O>) {
      (add_way<V, O, Ws>(paths[from], known, behind, prices, shape), ...);
      ++from;
    };
    (add_from(std::type_identity<Os>{}), ...);
  }

  template <class V, class O, class W>
  static constexpr void add_way(Row& row, Known<V>& known, const typename Next::Paths& behind,
                                const Prices& prices, const Shape& shape) {
    using In = typename Ways<First>::template taken<V, O, W>;
    if constexpr (redistributable<O, In>) {
      constexpr std::size_t given =
          index_in<typename Ways<First>::template given<V, O, W>>(Given{});
      Path path = known.template at<In>(prices, shape) + behind[given][index_in<W>(Behind{})];
      path.seconds +=
          prices.of_redistribution<Redistribute<O, In>, Gradient, input_element_t<First, void>>(
              shape);
      Path& best = row[index_in<typename Ways<First>::template wanted<V, W>>(Here{})];
      if (path.seconds < best.seconds) best = path;
    }
  }
};

/// The cheapest path through a whole model.
template <bool Gradient, class Offered, class Wanted, class... Steps>
constexpr auto path_of_chain(Chain<Steps...>, const Prices& prices, const Shape& in) {
  SplitPath<choices_in<Chain<Steps...>>> best;
  const auto paths = Search<Gradient, TypeSet<Offered>, Wanted, Steps...>::solve(prices, in);
  for (const auto& path : paths[0])
    if (path.seconds < best.seconds) best = path;
  return best;
}

}  // namespace detail

}  // namespace shardwise
