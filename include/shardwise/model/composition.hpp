#pragma once
// Parts and the edges between them: what every composition is.

#include <array>
#include <cstddef>
#include <type_traits>
#include <utility>

#include "shardwise/model/extents.hpp"
#include "shardwise/model/layer_checks.hpp"
#include "shardwise/model/part.hpp"
#include "shardwise/model/wiring.hpp"

namespace shardwise {

/// A list of parts, `At<L, slots...>`. Part I reads values from slots, and gives the value of slot
/// I + 1; slot 0 is the input, and the last slot the output. One slot makes L a layer or a
/// composition, several make it a Merge of them.
///
///     struct Gated : Composition<At<Linear<split::output, 64, 64>, 0>,     // gives slot 1
///                                At<Linear<split::output, 64, 64>, 0>,     // gives slot 2
///                                At<Sum, 1, 2>> {};
///
/// Everything else is made from this list: what runs, what is planned and described, names and
/// checks. Layouts follow from it too. Between a slot and its only reader stands the one
/// redistribution that both need. A slot that several parts read is brought to one layout, for all
/// of them, before it is read: that which all of them take, or else its `stream_t`. So a Partial is
/// made whole once, and the gradients of the readers are added before they are brought back.
///
/// Deriving a type of your own keeps its name in messages and errors. Parts whose sizes are
/// `dynamic` are given to the constructor, all in order.
template <class... Parts>
class Composition : detail::NumberedParts<std::index_sequence_for<Parts...>, Parts...> {
  using Numbers = std::index_sequence_for<Parts...>;
  using Layers = detail::NumberedParts<Numbers, Parts...>;

 public:
  using parts = Composition;  ///< tells a composition, also a type derived from one, from a layer

  static constexpr std::size_t size = sizeof...(Parts);  ///< parts

  /// Whether names say the number of a part: "0.weight".
  static constexpr bool numbers_parts = true;

  /// Which part reads which slots.
  static constexpr detail::Wires<size> wires = detail::wires_of<Parts...>();
  static_assert(detail::slots_must_be_used<wires.unread_part(), Parts...>());

  /// Features in each slot, `dynamic` where the types do not say.
  static constexpr std::array<std::size_t, size + 1> features = detail::features_of<Parts...>();
  static constexpr std::size_t in_features = features[0];      ///< that it takes
  static constexpr std::size_t out_features = features[size];  ///< that it gives

  /// Part I as it stands in the list.
  template <std::size_t I>
  using part_type =
      typename decltype(detail::type_of_numbered<I>(std::declval<const Layers&>()))::type;

  /// The type of its layer, composition or merge.
  template <std::size_t I>
  using layer_type = typename part_type<I>::layer;

  /// The ends of part I, those of its first slot, when the whole stands between these.
  template <std::size_t I, Layout Offered, Layout Wanted>
  using ends_of = detail::part_ends_t<Composition, Offered, Wanted, I>;

  /// How the value in a slot lies where it is read.
  template <std::size_t Slot, Layout Offered, Layout Wanted>
  using slot_layout = detail::slot_layout_t<Composition, Offered, Wanted, Slot>;

  /// What the whole would like to be given, as of a `Layer`.
  template <Layout Wanted>
  using wants = detail::slot_wanted_t<Composition, Wanted, 0>;
  /// What it takes, as of a `Layer`.
  template <Layout Offered, Layout Wanted>
  using takes = detail::list_takes_t<Composition, Offered, Wanted>;
  /// What it gives between these ends.
  template <Layout Offered, Layout Wanted>
  using gives_between = detail::list_gives_t<Composition, Offered, Wanted>;

  /// All sizes are in the types.
  constexpr Composition() requires(detail::HasAllSizes<typename Parts::layer>&&...) {
    check(Numbers{});
  }

  /// All parts in order, where sizes are not all in the types.
  constexpr explicit Composition(const typename Parts::layer&... layers) : Layers(layers...) {
    check(Numbers{});
  }

  /// The layer, composition or merge of part I, counted from 0.
  template <std::size_t I>
  constexpr const layer_type<I>& layer() const {
    return detail::numbered<I>(static_cast<const Layers&>(*this));
  }

  /// The shape of the output for an input of shape `in`. Throws shape_error as the parts do.
  constexpr Shape output_shape(const Shape& in) const { return last_shape(in, Numbers{}); }

  /// Features that it takes, or `dynamic` if any number will do.
  constexpr std::size_t in() const { return first_features(Numbers{}); }

 private:
  template <std::size_t... Is>
  static consteval void check(std::index_sequence<Is...>) {
    (detail::check_part<Composition, Is>(), ...);
  }

  template <std::size_t... Is>
  constexpr Shape last_shape(const Shape& in, std::index_sequence<Is...>) const {
    std::array<Shape, size + 1> shapes{in};
    ((shapes[Is + 1] = detail::part_shape<Parts>(layer<Is>(), shapes)), ...);
    return shapes[size];
  }

  template <std::size_t... Is>
  constexpr std::size_t first_features(std::index_sequence<Is...>) const {
    return detail::features_needed<Parts...>({detail::features_in(layer<Is>())...},
                                             {detail::KeepsShape<typename Parts::layer>...})[0];
  }
};

}  // namespace shardwise
