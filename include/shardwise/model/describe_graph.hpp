#pragma once
// A model as a graph for people, in the language of Graphviz: `dot -Tsvg model.dot -o model.svg`.

#include <cstddef>
#include <string>
#include <string_view>
#include <type_traits>

#include "shardwise/core/compiled.hpp"
#include "shardwise/core/growing_list.hpp"
#include "shardwise/core/names.hpp"
#include "shardwise/model/describe_parts.hpp"
#include "shardwise/model/plan.hpp"

namespace shardwise {

namespace detail {

/// Lines "forward all_reduce(...), ... bytes" and "backward ...", for the collectives that send.
std::string sent_lines(const PlanVisitor& calls, int ranks);

/// The name of a composition in a graph: the name of the user's type without its arguments; empty
/// for a bare Sequential.
template <class L>
std::string short_name() {
  const std::string name = name_of<L>();
  const std::string whole = name.substr(0, name.find('<'));
  return whole == "Sequential" ? "" : whole;
}

/// Draws what a walk visits, from the input to the output.
class GraphDrawer : public WalkVisitor {
 public:
  /// The value that the walk is at.
  struct Position {
    std::size_t node = 0;    ///< that produced it
    std::string layout;      ///< its current layout
    std::string way;         ///< how it came to this layout: "Partial -> Invariant"
    std::string sent;        ///< the collectives of this conversion
    bool is_forked = false;  ///< whether several parts read it
  };

  GraphDrawer(const PlaceInSlice& place, const Sending& sending, bool trains)
      : place_(place), sending_(sending), trains_(trains) {}

  template <Layout L>
  void input(const Shape& shape) {
    here_ = {};
    here_.node = add_node("input\n" + to_string(place_.here<L>(shape)), ", shape=ellipse");
    give(layout_name<L>());
  }
  template <Layout L>
  void output(const Shape& shape) {
    connect(add_node("output\n" + to_string(place_.here<L>(shape)), ", shape=ellipse"));
  }

  template <class R, bool Returns, class X>
  void redistribution(const Shape& shape) {
    if constexpr (!std::is_same_v<typename R::from, typename R::to>) {
      if (skipped_ > 0) return;
      PlanVisitor calls(sending_, trains_, place_.tensor.size);
      calls.redistribution<R, Returns, X>(place_.part(shape));
      here_.layout = layout_name<typename R::to>();
      here_.way += " -> " + here_.layout;
      here_.sent += sent_lines(calls, place_.tensor.size);
    }
  }

  template <class L, Layout In, bool Returns>
  void layer(const L& layer, const Shape& in, const Shape& out) {
    using Out = typename L::template output_layout<In>;
    if (skipped_ > 0) return;
    const LayerFacts facts = facts_of<L, In, Returns>(layer, in, out, place_, sending_, trains_);
    std::string text = path_.with(name_of<L>()) + "\ngives " + to_string(place_.here<Out>(out));
    if (facts.parameters > 0) {
      text += '\n' + std::to_string(facts.parameters_here) + " of " +
              std::to_string(facts.parameters) + " parameters here";
    }
    const std::string sent = sent_lines(facts.calls, place_.tensor.size);
    connect(add_node(text + sent, sent.empty() ? "" : sends_style));
    give(layout_name<Out>());
  }

  Position position() const { return here_; }
  void go_to(const Position& there) {
    if (skipped_ == 0) here_ = there;
  }

  void fork();

  template <class Op, Layout In, bool Returns, std::size_t N>
  void merge(const std::array<Position, N>& operands, const std::array<Shape, N>&, const Shape&) {
    if (skipped_ > 0) return;
    const std::size_t node = add_node(path_.with(name_of<Op>()), ", shape=circle");
    for (const Position& operand : operands) {
      here_ = operand;
      connect(node, operand.is_forked ? ", weight=1" : "");
    }
    give(layout_name<typename Op::template output_layout<In>>());
  }

  template <bool Returns, Layout In, class L>
  Nothing open([[maybe_unused]] const L& composition, const Shape&) {
    if (skipped_ > 0) return {};
    Composition here;
    if constexpr (RepeatsBlock<L>) {
      here.times = composition.times();
      here.block = short_name<typename L::repeated_block>();
    } else {
      here.has_box = begin_box(short_name<L>());
    }
    open_.add(here);
    return {};
  }

  template <bool Returns, class L>
  void close(Nothing) {
    if (skipped_ > 0) return;
    if (open_.last().has_box) end_box();
    open_.remove_last();
  }

  void enter(std::size_t number);
  void leave();

  std::string graph(const std::string& title) const;

 private:
  /// A composition that the walk is in.
  struct Composition {
    std::size_t times = 0;  ///< of a Repeat
    std::string block;      ///< of a Repeat: the name of its block
    bool has_box = false;
  };

  static constexpr const char* sends_style = ", color=\"#b03060\", penwidth=2";

  std::size_t add_node(const std::string& text, const std::string& style);

  void add_edge(std::size_t from, std::size_t to, const std::string& layout,
                const std::string& sent, const std::string& style);

  /// The last node gives a value in this layout.
  void give(const std::string& layout) { here_.way = here_.layout = layout; }

  /// The value goes to `node`, in its current layout.
  void connect(std::size_t node, const std::string& style = "");

  /// A box around the next parts, unless it is the whole model, has no name, or already has a box.
  bool begin_box(const std::string& name);

  /// All blocks after the first are alike, so the second is drawn for all of them.
  void begin_time(std::size_t number, const Composition& repeat);

  void add_box(const std::string& label);
  void end_box();

  std::string indent() const { return std::string(2 * (outer_boxed_.size() + 1), ' '); }

  PlaceInSlice place_;
  Sending sending_;
  bool trains_;
  NumberedPath path_;
  std::string nodes_;
  std::string edges_;
  std::size_t node_count_ = 0;
  std::size_t box_count_ = 0;
  Position here_;
  GrowingList<Composition> open_;         // from the outermost to the innermost
  std::string boxed_;                     // the path of the innermost box
  GrowingList<std::string> outer_boxed_;  // the paths of the boxes around it
  std::size_t skipped_ = 0;               // parts of a Repeat entered so far that are not drawn
};

/// As `described`.
template <class E, class Use, class L, class AnyPlace>
std::string drawn(const L& architecture, const AnyPlace& place,
                  const shapes_t<typename E::offered>& in, const Sending& sending,
                  const Plan& plan) {
  GraphDrawer drawer(place_in_slice(place), sending, Use::trains);
  walk<E, Use>(architecture, in, drawer);
  return drawer.graph(heading<L>(place, in, sending) + '\n' + totals(plan));
}

}  // namespace detail

/// The same as `describe`, as a graph: a node for each layer with its number, the shape of its
/// output and its parameters on the rank at `place`. The edges show the layouts; a thick edge shows
/// a redistribution, with what it sends in forward and backward. A Residual is a fork and a sum. Of
/// a Repeat the first block is drawn, and the second for all others.
/// throws   shape_error if the layers cannot take such inputs
template <class E, class Use, class L>
std::string describe_graph(const L& architecture, Place place,
                           const shapes_t<typename E::offered>& in, const Sending& sending = {}) {
  return detail::drawn<E, Use>(architecture, place, in, sending,
                               plan_of<E, Use>(architecture, place.size, in, sending));
}

///@{
/// The same for a model on this rank, as `describe` has it.
template <class M>
std::string describe_graph(M& model, const typename M::input_shapes& in, Keep keep) {
  return detail::drawn<typename M::ends, typename M::use>(
      model.layers(), model.run().place_at_ends(), detail::shapes_here(model.run(), in),
      model.sending(), model.plan(in, keep));
}
template <class M>
std::string describe_graph(M& model, const typename M::input_shapes& in) {
  return describe_graph(model, in, model.keep());
}
///@}

}  // namespace shardwise

#ifdef SHARDWISE_INLINE

namespace shardwise::detail {

// A string of the DOT language, with its quotes. Each '\n' becomes `line_end`: "\\n" centres the
// line before it, "\\l" aligns it left.
SHARDWISE_INLINE std::string dot_quoted(std::string_view text, std::string_view line_end = "\\n") {
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '\n') {
      quoted += line_end;
    } else {
      if (c == '"' || c == '\\') quoted += '\\';
      quoted += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
    }
  }
  return quoted + '"';
}

SHARDWISE_INLINE std::string sent_lines(const PlanVisitor& calls, int ranks) {
  std::string text;
  if (!calls.forward.empty()) text += "\n forward " + listed(calls.forward, {.tensor = ranks});
  if (!calls.returning.empty()) text += "\n backward " + listed(calls.returning, {.tensor = ranks});
  return text;
}

SHARDWISE_INLINE void GraphDrawer::fork() {
  if (skipped_ > 0) return;
  const std::string layout = here_.layout;
  connect(add_node("", ", shape=point"));
  give(layout);
  here_.is_forked = true;
}

SHARDWISE_INLINE void GraphDrawer::enter(std::size_t number) {
  const bool repeats = !open_.empty() && open_.last().times > 0;
  if (skipped_ > 0 || (repeats && number > 1)) {
    ++skipped_;
    return;
  }
  path_.enter(number);
  if (repeats) begin_time(number, open_.last());
}

SHARDWISE_INLINE void GraphDrawer::leave() {
  if (skipped_ > 0) {
    --skipped_;
    return;
  }
  path_.leave();
  if (!open_.empty() && open_.last().times > 0) end_box();
}

SHARDWISE_INLINE std::string GraphDrawer::graph(const std::string& title) const {
  return "digraph model {\n  label=" + dot_quoted(title) +
         "\n  labelloc=t\n  fontname=\"Helvetica\"\n"
         "  node [shape=box, style=rounded, fontname=\"Helvetica\", fontsize=11]\n"
         "  edge [fontname=\"Helvetica\", fontsize=10, weight=10]\n" +
         nodes_ + edges_ + "}\n";
}

SHARDWISE_INLINE std::size_t GraphDrawer::add_node(const std::string& text,
                                                   const std::string& style) {
  nodes_ +=
      indent() + 'n' + std::to_string(node_count_) + " [label=" + dot_quoted(text) + style + "]\n";
  return node_count_++;
}

SHARDWISE_INLINE void GraphDrawer::add_edge(std::size_t from, std::size_t to,
                                            const std::string& layout, const std::string& sent,
                                            const std::string& style) {
  edges_ += "  n" + std::to_string(from) + " -> n" + std::to_string(to) +
            " [label=" + dot_quoted(' ' + layout + sent + '\n', "\\l") + style + "]\n";
}

SHARDWISE_INLINE void GraphDrawer::connect(std::size_t node, const std::string& style) {
  add_edge(here_.node, node, here_.way, here_.sent,
           (here_.sent.empty() ? "" : sends_style) + style);
  here_ = {node, "", "", "", false};
}

SHARDWISE_INLINE bool GraphDrawer::begin_box(const std::string& name) {
  if (path_.text().empty() || name.empty() || path_.text() == boxed_) return false;
  add_box(path_.with(name));
  return true;
}

SHARDWISE_INLINE void GraphDrawer::begin_time(std::size_t number, const Composition& repeat) {
  const std::string times = std::to_string(repeat.times) + " times";
  std::string which;
  if (repeat.times > 1 && number == 0) which = ": the first of " + times;
  if (number == 1) which = ": the other " + std::to_string(repeat.times - 1) + " of " + times;
  add_box(path_.with(repeat.block + which));
}

SHARDWISE_INLINE void GraphDrawer::add_box(const std::string& label) {
  nodes_ += indent() + "subgraph cluster_" + std::to_string(box_count_++) + " {\n";
  outer_boxed_.add(boxed_);
  boxed_ = path_.text();
  nodes_ += indent() + "label=" + dot_quoted(label) + "\n" + indent() + "labeljust=l\n" + indent() +
            "color=gray\n";
}

SHARDWISE_INLINE void GraphDrawer::end_box() {
  boxed_ = outer_boxed_.last();
  outer_boxed_.remove_last();
  nodes_ += indent() + "}\n";
}

}  // namespace shardwise::detail

#endif  // SHARDWISE_INLINE
