#pragma once
// Parts and the edges between them: what every composition is.

#include <array>
#include <cstddef>
#include <utility>

#include "shardwise/model/extents.hpp"
#include "shardwise/model/layer_checks.hpp"
#include "shardwise/model/part.hpp"
#include "shardwise/model/wiring.hpp"

namespace shardwise {

/// A list of parts, `At<L, slots...>`. Each part reads values from slots and writes one value to
/// its own slot. The first `Inputs` slots are the inputs, and part Index, counted from 0, writes
/// slot `Inputs + Index`. With one slot, L is a layer or a composition; with several, L is a Merge
/// of them, or a Graph of as many inputs and one output. The outputs are the values of the parts
/// named `Output`, and of the last part.
///
///     struct ImageAndRecord
///         : Graph<2, At<OfImage, 0>, At<OfRecord, 1>,           // give slots 2 and 3
///                 At<Concat<Axis::feature>, 2, 3>,              // gives slot 4
///                 Output<Linear<split::input, 64, 10>, 4>,      // the first output
///                 Output<Linear<split::none, 64, 1>, 4>> {};    // the second
///
/// Everything else follows from this list: the code that runs, plans, descriptions, names, checks
/// and layouts. Between a slot and its only reader there is one redistribution, from the slot's
/// layout to the reader's. A slot that several parts read is converted once for all of them: to the
/// layout that all of them take, or else to its `stream_t`. So a Partial is summed once, and the
/// gradients of the readers are added before they are converted back.
///
/// The Ends of a Model with several inputs or outputs name `Layouts`. Only the outermost
/// composition of a Model may have several outputs.
///
/// Deriving a type of your own keeps its name in messages and errors. Parts whose sizes are
/// `dynamic` are given to the constructor, all in order.
template <std::size_t Inputs, class... Parts>
class Graph : detail::NumberedParts<std::index_sequence_for<Parts...>, Parts...> {
  using Numbers = std::index_sequence_for<Parts...>;
  using Layers = detail::NumberedParts<Numbers, Parts...>;

 public:
  using parts = Graph;  ///< marks a composition, also a type derived from one

  static constexpr std::size_t size = sizeof...(Parts);     ///< parts
  static constexpr std::size_t inputs = Inputs;             ///< slots that are its inputs
  static constexpr std::size_t slot_count = Inputs + size;  ///< of all slots
  static constexpr std::size_t last_slot = slot_count - 1;  ///< that of the last output

  /// Whether names include the number of a part: "0.weight".
  static constexpr bool numbers_parts = true;
  /// The number of the first part.
  static constexpr std::size_t first_number = 0;

  /// Which part reads which slots.
  static constexpr detail::Wires<size, inputs> wires = detail::wires_of<Inputs, Parts...>();
  static_assert(
      detail::slots_must_be_used<inputs, wires.unread_input(), wires.find_part(false, false),
                                 wires.find_part(true, true), Parts...>());
  static constexpr std::size_t outputs = wires.outputs();  ///< number of outputs

  /// Features in each slot, `dynamic` if the types do not have them.
  static constexpr std::array<std::size_t, slot_count> features =
      detail::features_of<Inputs, Parts...>();
  static constexpr std::size_t in_features = features[0];           ///< of its first input
  static constexpr std::size_t out_features = features[last_slot];  ///< of its last output

  /// Part Index of the list.
  template <std::size_t Index>
  using part_type =
      typename decltype(detail::type_of_numbered<Index>(std::declval<const Layers&>()))::type;

  /// The type of its layer, composition or merge.
  template <std::size_t Index>
  using layer_type = typename part_type<Index>::layer;

  /// The ends of part Index, for its first slot, if the composition has these ends.
  template <std::size_t Index, EndLayout Offered, EndLayout Wanted>
  using ends_of = detail::part_ends_t<Graph, Offered, Wanted, Index>;

  /// The layout of the value in a slot when parts read it.
  template <std::size_t Slot, EndLayout Offered, EndLayout Wanted>
  using slot_layout = detail::slot_layout_t<Graph, Offered, Wanted, Slot>;

  /// The layout that the composition prefers for its input, as in `Layer`.
  template <EndLayout Wanted>
  using desired_input_layout = detail::slot_wanted_t<Graph, Wanted, 0>;
  /// The layout of its input, as in `Layer`.
  template <EndLayout Offered, EndLayout Wanted>
  using input_layout = detail::list_input_layout_t<Graph, Offered, Wanted>;
  /// The layout of its output between these ends.
  template <EndLayout Offered, EndLayout Wanted>
  using output_layout_between = detail::list_output_layout_t<Graph, Offered, Wanted>;

  /// If all sizes are in the types.
  constexpr Graph() requires(detail::HasAllSizes<typename Parts::layer>&&...) { check(Numbers{}); }

  /// All parts in order, if some sizes are not in the types.
  constexpr explicit Graph(const typename Parts::layer&... layers) : Layers(layers...) {
    check(Numbers{});
  }

  /// The layer, composition or merge of part Index, counted from 0.
  template <std::size_t Index>
  constexpr const layer_type<Index>& layer() const noexcept {
    return detail::layer_of<Index>(*this);
  }

  /// The shape of the output for an input of shape `in`; an array of shapes if there are several.
  /// Throws shape_error as the parts do.
  constexpr auto output_shape(const detail::shapes_of<inputs>& in) const {
    return shapes_of_outputs(in, Numbers{}, std::make_index_sequence<outputs>{});
  }

  /// Features of its input, or `dynamic` if any number is allowed.
  constexpr std::size_t in() const { return first_features(Numbers{}); }

 private:
  template <std::size_t Index, class L>
  friend constexpr const auto& detail::layer_of(const L&) noexcept;

  template <std::size_t... Is>
  static consteval void check(std::index_sequence<Is...>) {
    (detail::check_part<Graph, Is>(), ...);
  }

  template <std::size_t... Is, std::size_t... Os>
  constexpr detail::shapes_of<outputs> shapes_of_outputs(const detail::shapes_of<inputs>& in,
                                                         std::index_sequence<Is...>,
                                                         std::index_sequence<Os...>) const {
    auto shapes = detail::slots_from<slot_count>(in);
    ((shapes[inputs + Is] = detail::part_shape<Parts>(
          detail::as_dynamic(static_cast<const detail::Numbered<Is, Parts>&>(*this).layer),
          shapes)),
     ...);
    return {shapes[wires.output_slot(Os)]...};
  }

  template <std::size_t... Is>
  constexpr std::size_t first_features(std::index_sequence<Is...>) const {
    return detail::features_needed<Inputs, Parts...>(
        {detail::features_in(static_cast<const detail::Numbered<Is, Parts>&>(*this).layer)...},
        {detail::KeepsShape<typename Parts::layer>...})[0];
  }
};

/// A Graph of one input and one output. It may be a part of other compositions.
///
///     struct Gated : Composition<At<Linear<split::output, 64, 64>, 0>,     // gives slot 1
///                                At<Linear<split::output, 64, 64>, 0>,     // gives slot 2
///                                At<Sum, 1, 2>> {};
template <class... Parts>
class Composition : public Graph<1, Parts...> {
 public:
  using Graph<1, Parts...>::Graph;
};

}  // namespace shardwise
