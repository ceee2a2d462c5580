#pragma once
// A model as a table for people: the layers with their layouts, and what they send.

#include <algorithm>
#include <array>
#include <cstddef>
#include <string>
#include <utility>

#include "shardwise/core/compiled.hpp"
#include "shardwise/core/growing_list.hpp"
#include "shardwise/core/names.hpp"
#include "shardwise/model/describe_parts.hpp"
#include "shardwise/model/parameter_count.hpp"
#include "shardwise/model/plan.hpp"
#include "shardwise/model/queries.hpp"

namespace shardwise {

namespace detail {

/// Collects the rows of the table.
class Describer : public WalkVisitor {
 public:
  static constexpr std::size_t columns = 7;
  using Row = std::array<std::string, columns>;

  Describer(const PlaceInSlice& place, const Sending& sending, bool trains);

  template <class R, bool Returns, class X>
  void redistribution(const Shape& shape) {
    using To = typename R::to;
    if constexpr (!std::is_same_v<typename R::from, To>) {
      PlanVisitor calls(sending_, trains_, place_.tensor.size);
      calls.redistribution<R, Returns, X>(place_.part(shape));
      Row row{};
      row[1] = layout_name<typename R::from>() + " -> " + layout_name<To>();
      row[2] = to_string(place_.here<To>(shape));
      add(std::move(row), calls);
    }
  }

  template <class L, Layout In, bool Returns>
  void layer(const L& layer, const Shape& in, const Shape& out) {
    using Out = typename L::template output_layout<In>;
    const LayerFacts facts = facts_of<L, In, Returns>(layer, in, out, place_, sending_, trains_);
    Row row{};
    row[0] = path_.with(name_of<L>());
    row[1] = layout_name<In>();
    if (!std::is_same_v<In, Out>) row[1] += " -> " + layout_name<Out>();
    row[2] = to_string(place_.here<Out>(out));
    if (facts.parameters > 0) {
      row[3] = std::to_string(facts.parameters);
      row[4] = std::to_string(facts.parameters_here);
    }
    add(std::move(row), facts.calls);
  }

  template <class Op, Layout In, bool Returns, std::size_t N>
  void merge(const std::array<Position, N>&, const std::array<Shape, N>&, const Shape& out) {
    Row row{};
    row[0] = path_.with(name_of<Op>());
    row[1] = layout_name<In>();
    row[2] = to_string(place_.here<typename Op::template output_layout<In>>(out));
    add(std::move(row), PlanVisitor(sending_, trains_, place_.tensor.size));
  }

  /// The calls of forward before the composition.
  template <bool Returns, Layout In, class L>
  std::size_t open(const L&, const Shape&) const {
    return forward_.size();
  }
  /// A row for the calls that backward makes again in a block that is recomputed.
  template <bool Returns, class L>
  void close(std::size_t before) {
    PlanVisitor again(sending_, trains_, place_.tensor.size);
    for (std::size_t i = before; i < forward_.size(); ++i) again.forward.add(forward_[i]);
    again.close<Returns, L>(0);
    if (again.returning.empty()) return;
    again.forward = {};
    Row row{};
    row[0] = path_.with("Recompute: again");
    add(std::move(row), again);
  }

  void enter(std::size_t number) { path_.enter(number); }
  void leave() { path_.leave(); }

  /// All rows, columns aligned: numbers to the right, text to the left.
  std::string table() const;

 private:
  void add(Row row, const PlanVisitor& calls);
  void add(const Row& row) {
    for (const std::string& cell : row) cells_.add(cell);
  }

  PlaceInSlice place_;
  Sending sending_;
  bool trains_;
  GrowingList<std::string> cells_;  // row after row
  CollectiveList forward_;          // of all rows
  NumberedPath path_;
};

/// "this rank holds 96 bytes of parameters and 96 bytes of gradients, and an optimizer keeps the
/// moments of 8 parameters, with Keep::state_over_data", with a line end.
std::string state_line(const StateMemory& memory, std::size_t updated, Keep keep);

/// That line of a model; empty if it is not trained.
template <class M>
std::string state_line([[maybe_unused]] M& model,
                       [[maybe_unused]] const typename M::input_shapes& in,
                       [[maybe_unused]] Keep keep) {
  if constexpr (!M::use::trains) {
    return "";
  } else if constexpr (MeshCommunicator<typename M::communicator>) {
    const MeshPlace place = model.run().place_at_ends();
    return state_line(
        state_of_rank<typename M::ends, typename M::precision>(model.layers(), place, in, 0, keep),
        updated_parameters_of_rank<typename M::ends>(model.layers(), place, in, keep), keep);
  } else {
    const Place place = model.run().place();
    return state_line(
        state_of_rank<typename M::ends, typename M::precision>(model.layers(), place, in, 0),
        parameters_of_rank<typename M::ends>(model.layers(), place, in), keep);
  }
}

/// `in` is what ranks along `context` and `tensor` have together; `state` is a line, or empty.
template <class E, class Use, class L, class AnyPlace>
std::string described(const L& architecture, const AnyPlace& place,
                      const shapes_t<typename E::offered>& in, const Sending& sending,
                      const Plan& plan, const std::string& state = "") {
  Describer describer(place_in_slice(place), sending, Use::trains);
  walk<E, Use>(architecture, in, describer);
  return heading<L>(place, in, sending) + '\n' + describer.table() + state + totals(plan) + '\n';
}

}  // namespace detail

/// `architecture` between the ends E on inputs of shape `in`, for the rank at `place`: a row for
/// each layer, and a row for each redistribution between layers, with what it and its adjoint send;
/// behind the rows of a Recompute, a row for the calls that backward makes again.
/// Bytes are those that all ranks together send, see `Collective::bytes_sent`.
/// throws   shape_error if the layers cannot take such inputs
template <class E, class Use, class L>
std::string describe(const L& architecture, Place place, const shapes_t<typename E::offered>& in,
                     const Sending& sending = {}) {
  return detail::described<E, Use>(architecture, place, in, sending,
                                   plan_of<E, Use>(architecture, place.size, in, sending));
}

///@{
/// The same for a model on this rank whose optimizer has this Keep, or the model's, with a line for
/// the memory of parameters, gradients and moments, see state_of_rank. This is not a collective:
/// one rank may call it alone. On a mesh the rows are those of the rank's slice of the batch, and
/// of the ranks that share it, with what they send along `tensor`; the last lines are those of all
/// ranks.
/// throws   argument_error for a Keep other than `whole` of a model that is on no mesh
template <class M>
std::string describe(M& model, const typename M::input_shapes& in, Keep keep) {
  return detail::described<typename M::ends, typename M::use>(
      model.layers(), model.run().place_at_ends(), detail::shapes_here(model.run(), in),
      model.sending(), model.plan(in, keep), detail::state_line(model, in, keep));
}
template <class M>
std::string describe(M& model, const typename M::input_shapes& in) {
  return describe(model, in, model.keep());
}
///@}

}  // namespace shardwise

#ifdef SHARDWISE_INLINE

namespace shardwise::detail {

SHARDWISE_INLINE Describer::Describer(const PlaceInSlice& place, const Sending& sending,
                                      bool trains)
    : place_(place), sending_(sending), trains_(trains) {
  add({"layer", "layout", "output here", "parameters", "here", "forward sends", "backward sends"});
}

SHARDWISE_INLINE std::string Describer::table() const {
  std::size_t widths[columns] = {};
  for (std::size_t i = 0; i < cells_.size(); ++i)
    widths[i % columns] = std::max(widths[i % columns], cells_[i].size());
  std::string text;
  for (std::size_t row = 0; row < cells_.size(); row += columns) {
    std::string line;
    for (std::size_t i = 0; i < columns; ++i) {
      const std::string& cell = cells_[row + i];
      const std::string space(widths[i] - cell.size(), ' ');
      const bool is_number = i == 3 || i == 4;
      line += (is_number ? space + cell : cell + space) + "  ";
    }
    text += line.substr(0, line.find_last_not_of(' ') + 1) + '\n';
  }
  return text;
}

SHARDWISE_INLINE void Describer::add(Row row, const PlanVisitor& calls) {
  row[5] = listed(calls.forward, {.tensor = place_.tensor.size});
  row[6] = listed(calls.returning, {.tensor = place_.tensor.size});
  add(row);
  for (const Collective& call : calls.forward) forward_.add(call);
}

SHARDWISE_INLINE std::string state_line(const StateMemory& memory, std::size_t updated, Keep keep) {
  return "this rank holds " + with_bytes(memory.parameters + memory.copies) +
         " of parameters and " + with_bytes(memory.gradients + memory.of_batch) +
         " of gradients, and an optimizer keeps the moments of " + std::to_string(updated) +
         " parameters" + (keep == Keep::whole ? "" : ", with " + to_string(keep)) + '\n';
}

}  // namespace shardwise::detail

#endif  // SHARDWISE_INLINE
