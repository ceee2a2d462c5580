#pragma once
// Layers one after another.

#include <cstddef>
#include <type_traits>
#include <utility>

#include "shardwise/model/decide.hpp"
#include "shardwise/model/extents.hpp"
#include "shardwise/model/layer_checks.hpp"

namespace shardwise {

namespace detail {

/// A flat pack of layers, found by number.
template <std::size_t I, class L>
struct Numbered {
  constexpr Numbered() requires HasAllSizes<L>
  = default;
  constexpr explicit Numbered(const L& given) : layer(given) {}

  [[no_unique_address]] L layer;
};

template <class Indices, class... Ls>
struct Layers;
template <std::size_t... Is, class... Ls>
struct Layers<std::index_sequence<Is...>, Ls...> : Numbered<Is, Ls>... {
  static_assert(sizeof...(Ls) > 0,
                "a Sequential needs at least one layer: Sequential<Relu>. What takes no part in a "
                "model is no layer of it.");
  static_assert((must_be_layer<Is, Ls>() && ...));

  constexpr Layers() = default;
  constexpr explicit Layers(const Ls&... layers) : Numbered<Is, Ls>(layers)... {}
};

template <std::size_t I, class L>
constexpr const L& numbered(const Numbered<I, L>& entry) {
  return entry.layer;
}

template <std::size_t I, class L>
std::type_identity<L> type_of_numbered(const Numbered<I, L>&);

/// Checks that features meet from each layer to the next, and that no shard cuts what must be
/// whole. The first of the layers Ls has this number.
template <std::size_t Number, std::size_t Produced, class Producer>
consteval void check_features() {}
template <std::size_t Number, std::size_t Produced, class Producer, class L, class... Ls>
consteval void check_features() {
  static_assert(extents_must_meet<Number, Producer, L, Produced, static_features_in<L>()>());
  static_assert(shards_must_be_whole<Producer, L>());
  constexpr bool same_producer = KeepsFeatures<L>;
  using Next = std::conditional_t<same_producer, Producer, L>;
  check_features<Number + 1, static_features_out<L>(Produced), Next, Ls...>();
}

template <class... Ls>
constexpr std::size_t first_features(const Ls&... layers) {
  std::size_t found = dynamic;
  bool open = true;
  (
      [&] {
        if (open && found == dynamic) found = features_in(layers);
        open = open && KeepsShape<Ls>;
      }(),
      ...);
  return found;
}

}  // namespace detail

/// Each layer takes what the one before gives. Between two neighbours stands the one redistribution
/// that the decision of both needs (see decide.hpp).
///
///     struct Mlp : Sequential<ColumnParallelLinear<784, 512>, Relu, RowParallelLinear<512, 10>>
///     {};
///
/// Deriving a type of your own keeps its name in messages and errors. Layers whose sizes are
/// `dynamic` are given to the constructor, all in order: `using Mlp::Sequential::Sequential;`.
template <class... Ls>
class Sequential : detail::Layers<std::index_sequence_for<Ls...>, Ls...> {
  using Layers = detail::Layers<std::index_sequence_for<Ls...>, Ls...>;

  template <Layout Offered, Layout Wanted>
  using chain = detail::chain<0, Offered, Wanted, Ls...>;

 public:
  using composition = Sequential;  ///< tells a Sequential, also one derived from, from a layer

  static constexpr std::size_t size = sizeof...(Ls);  ///< layers

  ///@{
  /// Features taken and given, `dynamic` where the types do not say.
  static constexpr std::size_t in_features = detail::static_features_in_chain<Ls...>();
  static constexpr std::size_t out_features = detail::static_features_out_chain<Ls...>();
  ///@}

  /// The type of layer I.
  template <std::size_t I>
  using layer_type =
      typename decltype(detail::type_of_numbered<I>(std::declval<const Layers&>()))::type;

  /// The ends of layer I when the whole stands between `Offered` and `Wanted`.
  template <std::size_t I, Layout Offered, Layout Wanted>
  using ends_of = decltype(detail::numbered_ends<I>(std::declval<const chain<Offered, Wanted>&>()));

  ///@{
  /// What the whole would like to be given, takes and gives, as of a `Layer`.
  template <Layout Wanted>
  using wants = typename detail::wanted_before<Wanted, Ls...>::type;
  template <Layout Offered, Layout Wanted>
  using takes = takes_t<layer_type<0>, ends_of<0, Offered, Wanted>>;
  template <Layout Offered, Layout Wanted>
  using gives_between = typename chain<Offered, Wanted>::gives;
  ///@}

  /// All sizes are in the types.
  constexpr Sequential() requires(detail::HasAllSizes<Ls>&&...) {
    detail::check_features<0, dynamic, void, Ls...>();
  }

  /// All layers in order, where sizes are not all in the types.
  constexpr explicit Sequential(const Ls&... layers) : Layers(layers...) {
    detail::check_features<0, dynamic, void, Ls...>();
  }

  /// Layer I, counted from 0.
  template <std::size_t I>
  constexpr const layer_type<I>& layer() const {
    return detail::numbered<I, layer_type<I>>(*this);
  }

  /// The shape of the output for an input of shape `in`. Throws shape_error as the layers do.
  constexpr Shape output_shape(const Shape& in) const {
    return fold_shapes(in, std::index_sequence_for<Ls...>{});
  }

  /// Features that it takes, or `dynamic` if any number will do.
  constexpr std::size_t in() const { return first_features(std::index_sequence_for<Ls...>{}); }

 private:
  template <std::size_t... Is>
  constexpr Shape fold_shapes(Shape shape, std::index_sequence<Is...>) const {
    ((shape = layer<Is>().output_shape(shape)), ...);
    return shape;
  }

  template <std::size_t... Is>
  constexpr std::size_t first_features(std::index_sequence<Is...>) const {
    return detail::first_features(layer<Is>()...);
  }
};

}  // namespace shardwise
