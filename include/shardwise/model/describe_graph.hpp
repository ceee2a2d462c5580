#pragma once
// A model as a graph for people, in the language of Graphviz: `dot -Tsvg model.dot -o model.svg`.

#include <cstddef>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "shardwise/core/names.hpp"
#include "shardwise/model/describe_parts.hpp"
#include "shardwise/model/plan.hpp"
#include "shardwise/model/repeat.hpp"
#include "shardwise/model/residual.hpp"

namespace shardwise {

namespace detail {

/// A string of the DOT language, with its quotes. Each '\n' becomes `line_end`: "\\n" centres the
/// line before it, "\\l" puts it to the left.
inline std::string dot_quoted(std::string_view text, std::string_view line_end = "\\n") {
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

/// Lines "forward all_reduce(...), ... bytes" and "backward ...", for what is sent.
inline std::string sent_lines(const PlanVisitor& calls, int ranks) {
  std::string text;
  if (!calls.forward.empty()) text += "\n forward " + listed(calls.forward, ranks);
  if (!calls.returning.empty()) text += "\n backward " + listed(calls.returning, ranks);
  return text;
}

/// What a graph calls a composition: the name of a type of the user's, without its arguments, or
/// nothing for a bare Sequential.
template <class L>
std::string short_name() {
  const std::string name = name_of<L>();
  if constexpr (requires { typename L::composition; }) {
    if constexpr (std::is_same_v<L, typename L::composition>) return "";
  }
  return name.substr(0, name.find('<'));
}

/// Draws what a walk visits, from the input to the output.
class GraphDrawer {
 public:
  GraphDrawer(Place place, const Sending& sending, bool trains)
      : place_(place), sending_(sending), trains_(trains) {}

  template <Layout L>
  void input(const Shape& shape) {
    end_ = add_node("input\n" + to_string(local_shape<L>(shape, place_)), ", shape=ellipse");
    give(layout_name<L>());
  }
  template <Layout L>
  void output(const Shape& shape) {
    connect(add_node("output\n" + to_string(local_shape<L>(shape, place_)), ", shape=ellipse"));
  }

  template <class R, bool Returns>
  void redistribution(const Shape& shape) {
    if constexpr (!std::is_same_v<typename R::from, typename R::to>) {
      if (skipped_ > 0) return;
      PlanVisitor calls{sending_, trains_};
      calls.redistribution<R, Returns>(shape);
      layout_ = layout_name<typename R::to>();
      way_ += " -> " + layout_;
      sent_ += sent_lines(calls, place_.size);
    }
  }

  template <class L, Layout In, bool Returns>
  void layer(const L& layer, const Shape& in, const Shape& out) {
    using Out = typename L::template gives<In>;
    if (skipped_ > 0) return;
    const LayerFacts facts = facts_of<L, In, Returns>(layer, in, out, place_, sending_, trains_);
    std::string text =
        path_.with(name_of<L>()) + "\ngives " + to_string(local_shape<Out>(out, place_));
    if (facts.parameters > 0) {
      text += '\n' + std::to_string(facts.parameters_here) + " of " +
              std::to_string(facts.parameters) + " parameters here";
    }
    const std::string sent = sent_lines(facts.calls, place_.size);
    connect(add_node(text + sent, sent.empty() ? "" : sends_style));
    give(layout_name<Out>());
  }

  template <class L>
  void open() {
    if (skipped_ > 0) return;
    Composition here;
    if constexpr (requires { typename L::repeated_block; }) {
      here.times = L::times;
      here.block = short_name<typename L::repeated_block>();
    } else {
      here.has_box = begin_box(short_name<L>());
    }
    if constexpr (requires { typename L::residual_block; }) {
      here.fork = add_node("", ", shape=point");
      here.stream = layout_;
      connect(here.fork);
      give(here.stream);
    }
    open_.push_back(here);
  }

  template <class L>
  void close() {
    if (skipped_ > 0) return;
    const Composition here = open_.back();
    open_.pop_back();
    if constexpr (requires { typename L::residual_block; }) {
      const std::size_t sum = add_node("+", ", shape=circle");
      connect(sum);
      add_edge(here.fork, sum, here.stream, "", ", weight=1");
      give(here.stream);
    }
    if (here.has_box) end_box();
  }

  void enter(std::size_t number) {
    const bool repeats = !open_.empty() && open_.back().times > 0;
    if (skipped_ > 0 || (repeats && number > 1)) {
      ++skipped_;
      return;
    }
    path_.enter(number);
    if (repeats) begin_time(number, open_.back());
  }
  void leave() {
    if (skipped_ > 0) {
      --skipped_;
      return;
    }
    path_.leave();
    if (!open_.empty() && open_.back().times > 0) end_box();
  }

  std::string graph(const std::string& title) const {
    return "digraph model {\n  label=" + dot_quoted(title) +
           "\n  labelloc=t\n  fontname=\"Helvetica\"\n"
           "  node [shape=box, style=rounded, fontname=\"Helvetica\", fontsize=11]\n"
           "  edge [fontname=\"Helvetica\", fontsize=10, weight=10]\n" +
           nodes_ + edges_ + "}\n";
  }

 private:
  /// A composition in which the walk is.
  struct Composition {
    std::size_t times = 0;  ///< of a Repeat
    std::string block;      ///< of a Repeat: the name of its block
    bool has_box = false;
    std::size_t fork = 0;  ///< of a Residual: the node from which its input goes to the sum
    std::string stream;    ///< and its layout
  };

  static constexpr const char* sends_style = ", color=\"#b03060\", penwidth=2";

  std::size_t add_node(const std::string& text, const std::string& style) {
    nodes_ += indent() + 'n' + std::to_string(node_count_) + " [label=" + dot_quoted(text) + style +
              "]\n";
    return node_count_++;
  }

  void add_edge(std::size_t from, std::size_t to, const std::string& layout,
                const std::string& sent, const std::string& style) {
    edges_ += "  n" + std::to_string(from) + " -> n" + std::to_string(to) +
              " [label=" + dot_quoted(' ' + layout + sent + '\n', "\\l") + style + "]\n";
  }

  /// The last node gives something in this layout.
  void give(const std::string& layout) { way_ = layout_ = layout; }

  /// It goes to `node`, in the layout to which it was brought.
  void connect(std::size_t node) {
    add_edge(end_, node, way_, sent_, sent_.empty() ? "" : sends_style);
    end_ = node;
    sent_.clear();
  }

  /// A box around what comes, unless it is the whole model, has no name, or stands in its box.
  bool begin_box(const std::string& name) {
    if (path_.text().empty() || name.empty() || path_.text() == boxed_) return false;
    add_box(path_.with(name));
    return true;
  }

  /// All blocks but the first are alike, so the second is drawn for all of them.
  void begin_time(std::size_t number, const Composition& repeat) {
    const std::string times = std::to_string(repeat.times) + " times";
    std::string which;
    if (repeat.times > 1 && number == 0) which = ": the first of " + times;
    if (number == 1) which = ": the other " + std::to_string(repeat.times - 1) + " of " + times;
    add_box(path_.with(repeat.block + which));
  }

  void add_box(const std::string& label) {
    nodes_ += indent() + "subgraph cluster_" + std::to_string(box_count_++) + " {\n";
    outer_boxed_.push_back(boxed_);
    boxed_ = path_.text();
    nodes_ += indent() + "label=" + dot_quoted(label) + "\n" + indent() + "labeljust=l\n" +
              indent() + "color=gray\n";
  }
  void end_box() {
    boxed_ = outer_boxed_.back();
    outer_boxed_.pop_back();
    nodes_ += indent() + "}\n";
  }

  std::string indent() const { return std::string(2 * (outer_boxed_.size() + 1), ' '); }

  Place place_;
  Sending sending_;
  bool trains_;
  NumberedPath path_;
  std::string nodes_;
  std::string edges_;
  std::size_t node_count_ = 0;
  std::size_t box_count_ = 0;
  std::size_t end_ = 0;                   // the node that gave what is on its way
  std::string layout_;                    // in which that is by now
  std::string way_;                       // and by which it came there: "Partial -> Invariant"
  std::string sent_;                      // for it
  std::vector<Composition> open_;         // from the outermost to the innermost
  std::string boxed_;                     // the path of the innermost box
  std::vector<std::string> outer_boxed_;  // and of those around it
  std::size_t skipped_ = 0;               // parts of a Repeat that are not drawn, entered so far
};

}  // namespace detail

/// The graph of what `describe` says in words: a node for each layer with its number, the shape of
/// its output and its parameters on the rank at `place`; on the edges the layouts and, thick, what
/// the redistributions between them send in forward and backward. A Residual is a fork and a sum;
/// of a Repeat the first block is drawn, and the second for all others.
/// throws   shape_error if the layers cannot take such inputs
template <class E, class Use, class L>
std::string describe_graph(const L& architecture, Place place, const Shape& in,
                           const Sending& sending = {}) {
  using S = Setting<void, Use>;
  using Leave = Redistribute<gives_t<L, E>, typename E::wanted>;
  detail::GraphDrawer drawer(place, sending, Use::trains);
  drawer.input<typename E::offered>(in);
  const Shape out = detail::Walk<L, S, E>::visit(architecture, in, drawer);
  drawer.redistribution<Leave, goes_backward<L, S, E>>(out);
  drawer.output<typename E::wanted>(out);
  return drawer.graph(detail::heading<L>(place, in, sending) + '\n' +
                      detail::totals(plan_of<E, Use>(architecture, place.size, in, sending)));
}

/// The same for a model on this rank. No collective: any rank may call it alone.
template <class M>
std::string describe_graph(M& model, const Shape& in) {
  return describe_graph<typename M::ends, typename M::use>(model.layers(), place_of(model.ranks()),
                                                           in, model.sending());
}

}  // namespace shardwise
