#pragma once
// Attention: each token takes a weighted mean of the values of the tokens that it sees.

#include <array>
#include <cmath>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <string>
#include <tuple>
#include <type_traits>

#include "shardwise/backend/attention.hpp"
#include "shardwise/backend/detail/attention_loops.hpp"
#include "shardwise/core/dtype.hpp"
#include "shardwise/core/error.hpp"
#include "shardwise/core/memory.hpp"
#include "shardwise/core/names.hpp"
#include "shardwise/core/partition.hpp"
#include "shardwise/core/sequences.hpp"
#include "shardwise/core/shape.hpp"
#include "shardwise/core/tensor_memory.hpp"
#include "shardwise/layers/detail/further_tokens.hpp"
#include "shardwise/layers/layer.hpp"
#include "shardwise/layers/merge.hpp"
#include "shardwise/layers/sized.hpp"
#include "shardwise/layout/layout.hpp"
#include "shardwise/layout/token_rows.hpp"

namespace shardwise {

/// What an attention reads. A value that can be a template argument:
/// `Attend<AttentionForm{.readers = 4}>`.
struct AttentionForm {
  std::size_t readers = 1;    ///< query heads that read one key head: 1 is multi-head attention,
                              ///< as many as there are query heads is multi-query attention;
                              ///< `dynamic` if the keys say it at run time, by `Dim::readers`
  bool causal = true;         ///< whether a token sees no later ones
  std::size_t window = 0;     ///< tokens that a token sees, with itself; 0 for all; `dynamic` if
                              ///< `Attend::with_window` says it at run time. Needs `causal`
  std::uint32_t dropped = 0;  ///< of the weights, `dropped` in `of` are set to 0 in training
  std::uint32_t of = 1;       ///< see `dropped`

  friend constexpr bool operator==(const AttentionForm&, const AttentionForm&) = default;
};

namespace detail {

/// The layout of keys and values for queries in the layout In.
template <class In, AttentionForm Form>
struct keys_for {
  using type = In;
};
template <AttentionForm Form>
requires(Form.readers > 1) struct keys_for<Sharded<Axis::feature>, Form> {
  using type = Haloed<Axis::feature, Window{.repeats = Form.readers}>;
};
template <AttentionForm Form>
struct keys_for<Sharded<Axis::sequence>, Form> {
  using type = std::conditional_t<
      Form.window == 0 || Form.window == dynamic, Replicated,
      Haloed<Axis::sequence, Window{.kernel = Form.window, .before = Form.window - 1}>>;
};

}  // namespace detail

/// y = softmax(scale · q kᵀ) v for each head, over the tokens that a token sees. It merges three
/// values: queries, keys and values, each [batch, sequence, heads × size] or [sequence, heads ×
/// size], where the grain of the features is the size of a head, see HeadLinear:
///
///     Join<Attend<>, HeadLinear<E, H, D>, HeadLinear<E, H, D>, HeadLinear<E, H, D>>
///
/// With sizes at run time, keys and values say how many query heads read each of their heads:
///
///     Join(Attend<AttentionForm{.readers = dynamic}>{}, Linear(E, H * D).in_units_of(D),
///          Linear(E, G * D).in_units_of(D, H / G), Linear(E, G * D).in_units_of(D, H / G))
///
/// where `Linear` is `Linear<split::output, dynamic, dynamic>`. A type that names its readers takes
/// keys that say the same number, or nothing.
///
/// q and y             k and v                            each rank computes
/// Sharded<feature>    Haloed<feature, readers>           its block of the query heads; it gets the
///                                                        key heads that they read
/// Sharded<sequence>   Replicated, or with a window in    its block of the tokens
///                     the type Haloed<sequence, window>
/// Sharded<batch>      Sharded<batch>                     its samples
/// Invariant           Invariant                          everything
///
/// A token sees tokens of its own segment only, see `Segment`; a token in no segment sees nothing
/// and its y is zero. Dropout is drawn by query, head and key over all ranks, so it is the same at
/// every number of ranks. It runs by the kernel of an `AttentionBackend`, and by plain loops on
/// other backends. Memory is linear in the sequence, but for the backward of cuDNN.
/// saves    q, k and v
/// sends    nothing; along `context` of a mesh, where q is Sharded<sequence>, k and v are brought
///          to the layout of that line, and their gradients back
/// throws   shape_error if the tensors do not have such axes, different rows, or numbers of heads
///          that do not fit `readers` or `with_heads`
/// source   Vaswani et al. 2017, section 3.2; Ainslie et al. 2023 (GQA); Beltagy et al. 2020,
///          section 3.1 (window); Gemma Team 2024, section 2 (soft cap)
template <AttentionForm Form = AttentionForm{}>
class Attend : public KeepsOneOf<Invariant, Sharded<Axis::feature>, Sharded<Axis::sequence>,
                                 Sharded<Axis::batch>> {
  static_assert(Form.readers > 0 && Form.dropped < Form.of,
                "An attention has at least one query head for each key head, and drops less than "
                "all of its weights: AttentionForm{.readers = 4, .dropped = 1, .of = 10}.");
  static_assert(Form.causal || Form.window == 0,
                "AttentionForm: a window counts the last tokens that a token sees, and so needs "
                "`causal`.");

 public:
  constexpr Attend() = default;
  /// With another scale, or with a soft cap.
  /// throws  argument_error for a scale or cap that is below 0 or not finite
  explicit Attend(const AttentionScores& scores) : scores_(scores) {
    if (!(std::isfinite(scores.scale) && std::isfinite(scores.soft_cap) && scores.scale >= 0 &&
          scores.soft_cap >= 0)) {
      throw argument_error({"Attend: scale ", scores.scale, " and soft cap ", scores.soft_cap,
                            " must be finite numbers above 0, or 0 for the default"});
    }
  }

  /// The same attention, in which each token sees so many tokens, with itself; 0 for all before it.
  Attend with_window(std::size_t tokens) const requires(Form.window == dynamic) {
    Attend made = *this;
    made.window_ = tokens;
    return made;
  }

  /// The same attention of so many query heads; 0 for any number. Heads of one feature need it:
  /// they look like features that no layer has put into heads, which are an error.
  constexpr Attend with_heads(std::size_t number) const {
    Attend made = *this;
    made.heads_ = number;
    return made;
  }

  ///@{
  /// As `Merge` says.
  static constexpr Saves saves = Saves::input;
  static constexpr bool random = Form.dropped > 0;

  template <std::size_t J, Layout In>
  using operand = typename detail::keys_for<In, Form>::type;

  constexpr Shape output_shape(const std::array<Shape, 3>& x) const {
    const auto& [q, k, v] = x;
    for (const Shape& one : x)
      if (one.rank() == 0) return q;
    check_operands(q, k, v);
    const bool is_right =
        heads_ == 0 ? q.back().grain > 1 : q.back().grain > 0 && q.back().units == heads_;
    if (!is_right) refuse_heads(q);
    return q;
  }

  template <class Frame, class X, class Y>
  void forward(Frame& frame, const X& x, const Y& y) const {
    const auto of = operands<typename Frame::dtype>(frame, x);
    if (frame.cache() == nullptr) {
      attend(frame.backend(), of, y.data());
    } else {
      attend_further<typename std::tuple_element_t<1, X>::layout>(frame, of, y);
    }
  }

  template <class Frame, class X, class DY, class DX>
  void backward(Frame& frame, const X& x, const DY& dy, const DX& dx) const {
    using T = typename Frame::dtype;
    const auto of = operands<T>(frame, x);
    const auto& [dq, dk, dv] = dx;
    auto& backend = frame.backend();
    using B = std::remove_cvref_t<decltype(backend)>;
    if constexpr (AttentionBackend<B, T, std::remove_cv_t<decltype(of)>>) {
      typename B::template Attention<T>(backend).backward(of, dy.data(), dq.data(), dk.data(),
                                                          dv.data());
    } else {
      const Buffer memory = frame.take(detail::softmax_bytes(of));
      detail::attention_gradients_by_loops(backend,
                                           detail::attention_slopes(of, dy.data(), memory.data()),
                                           dq.data(), dk.data(), dv.data());
    }
  }
  ///@}

 private:
  using KeysOverContext = typename detail::keys_for<Sharded<Axis::sequence>, Form>::type;

  static constexpr void check_operands(const Shape& q, const Shape& k, const Shape& v) {
    const bool features = q.back().axis == Axis::feature && q.back().grain == k.back().grain &&
                          q.back().units == k.back().units * readers_of(k.back()) &&
                          (k.back().readers == 1 || k.back().readers == readers_of(k.back()));
    const bool rows =
        detail::sequence_position(q) + 2 == q.rank() && q.without_back() == k.without_back();
    if (features && rows && k == v) return;
    throw shape_error({"an attention is given queries ", q, ", keys ", k, " and values ", v,
                       ": they must have the same rows [batch, sequence] and heads of the same "
                       "size, which HeadLinear gives, and ",
                       readers_of(k.back()), " times as many query heads as key heads",
                       Form.readers == dynamic ? ", the readers that in_units_of(size, readers) of "
                                                 "the layers of keys and values says"
                                               : ""});
  }

  [[noreturn]] void refuse_heads(const Shape& q) const {
    const std::string told = heads_ == 0 ? "" : detail::sentence({" of ", heads_, " heads"});
    const Dim& given = q.back();
    throw shape_error({"an attention", told, " is given queries ", q, ", which are ", given.units,
                       " heads of size ", given.grain,
                       ": make queries, keys and values with HeadLinear or in_units_of(size), or "
                       "say that this is right with Attend::with_heads(",
                       given.units, ")"});
  }

  /// Query heads that read one of these key heads.
  static constexpr std::size_t readers_of(const Dim& keys) {
    return Form.readers == dynamic ? keys.readers : Form.readers;
  }

  template <class Backend, class T, class Stream>
  static void attend(Backend& backend, const detail::AttentionOperands<T, Stream>& of, T* y) {
    if constexpr (AttentionBackend<Backend, T, detail::AttentionOperands<T, Stream>>) {
      typename Backend::template Attention<T>(backend).forward(of, y);
    } else {
      detail::attention_by_loops(backend, of, y);
    }
  }

  /// The tokens of each segment, which see those of its sequence in the cache too.
  template <Layout Keys, class Frame, class T, class Stream, class Y>
  static void attend_further(Frame& frame, const detail::AttentionOperands<T, Stream>& of,
                             const Y& y) {
    constexpr bool has_all_tokens = [] {
      if constexpr (detail::SplitLayout<Keys>) return Keys::axis == Axis::feature;
      return true;
    }();
    if (!Form.causal || !has_all_tokens) refuse_cache();
    auto& backend = frame.backend();
    const std::size_t tokens = frame.cache()->size().tokens, row = of.heads.keys * of.heads.size;
    const detail::CachedRows<T> keys{frame.cached_rows(1, row), tokens, row};
    const detail::CachedRows<T> values{frame.cached_rows(2, row), tokens, row};
    detail::fill(backend, y.data(), y.size(), T(0));  // padding sees nothing
    for (const Segment& one : frame.cache()->now().list) {
      keys.add(backend, one, of.k);
      values.add(backend, one, of.v);
      const std::size_t sample = one.row / of.tokens.queries.length;
      const Interval rows = of.tokens.queries.local(sample, one.row, one.row + one.rows);
      if (rows.size > 0)
        attend(backend, detail::of_segment(of, one, rows, keys, values),
               y.data() + of.query_at(rows.offset, 0));
    }
  }

  [[noreturn]] static void refuse_cache() {
    throw argument_error(
        Form.causal ? "with a KeyValueCache each rank must have all tokens, but samples or "
                      "a window of tokens are split here. Evaluate with another split, "
                      "such as TensorParallel"
                    : "its tokens see later ones, so they cannot be computed before these "
                      "are there. Evaluate without KeyValueCache");
  }

  template <class T, class Frame, class X>
  auto operands(Frame& frame, const X& x) const {
    using A = accumulate_t<T>;
    const auto& [q, k, v] = x;
    const detail::HeldPart held = frame.held_part(q);
    const TokenRows queries = token_rows(held);
    const AttentionHeads heads = heads_of(q, k);
    const double scale =
        scores_.scale != 0 ? scores_.scale : 1 / std::sqrt(static_cast<double>(heads.size));
    const double dropped = frame.training() ? static_cast<double>(Form.dropped) / Form.of : 0.0;
    return detail::AttentionOperands<T, decltype(frame.random())>{
        {queries, token_rows(frame.template held_part<KeysOverContext>(k)),
         frame.sequences(q.global()), Form.causal, window_},
        heads,
        static_cast<A>(scale),
        static_cast<A>(scores_.soft_cap),
        {frame.random(), dropped, held.samples_before * queries.length},
        q.data(),
        k.data(),
        v.data()};
  }

  template <class Q, class K>
  static AttentionHeads heads_of(const Q& q, const K& k) {
    const std::size_t size = q.global().back().grain;
    AttentionHeads heads{size,
                         readers_of(k.global().back()),
                         q.global().back().units,
                         q.local().back().units,
                         0,
                         k.local().back().units,
                         0};
    if constexpr (std::same_as<typename Q::layout, Sharded<Axis::feature>>) {
      heads.first = local_block<typename Q::layout>(q.global(), q.place()).offset / size;
      heads.first_key = local_block<typename K::layout>(k.global(), k.place()).offset / size;
    }
    return heads;
  }

  AttentionScores scores_{};
  std::size_t heads_ = 0;
  std::size_t window_ = Form.window == dynamic ? 0 : Form.window;
};

/// "Attend<causal>", "Attend<causal, 4 readers, window 128, dropout 1/10>", "Attend<causal, dynamic
/// readers>".
template <AttentionForm Form>
struct NameOf<Attend<Form>> {
  static std::string name() {
    std::string text = Form.causal ? "Attend<causal" : "Attend<all";
    if (Form.readers > 1) detail::append(text, {", ", detail::size_name(Form.readers), " readers"});
    if (Form.window > 0) detail::append(text, {", window ", detail::size_name(Form.window)});
    if (Form.dropped > 0) detail::append(text, {", dropout ", Form.dropped, "/", Form.of});
    return text + '>';
  }
};

}  // namespace shardwise
