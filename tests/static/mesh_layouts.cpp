// Layouts over several mesh axes as types: one type for each layout, duals, which redistributions
// exist, in which steps, and which parts the ranks hold.

#include <array>
#include <concepts>
#include <cstddef>
#include <initializer_list>
#include <type_traits>

#include "shardwise/layout/global_runs.hpp"
#include "shardwise/layout/over.hpp"
#include "shardwise/layout/tensor.hpp"
#include "shardwise/redistribute/redistribute.hpp"

using namespace shardwise;

namespace {

using enum MeshAxis;

template <class L>
using D = On<data, L>;
template <class L>
using T = On<tensor, L>;
using Sb = Sharded<Axis::batch>;
using Sf = Sharded<Axis::feature>;

// One type for each layout, whatever the order and whether Invariant is named; over one axis of
// ranks the layouts of before.
static_assert(std::same_as<Over<>, Invariant> && std::same_as<Over<T<Sf>>, Sf>);
static_assert(std::same_as<Over<D<Invariant>, T<Partial>>, Partial>);
static_assert(std::same_as<Over<D<Invariant>>, Invariant>);
static_assert(std::same_as<Over<T<Sf>, D<Sb>>, Over<D<Sb>, T<Sf>>>);
static_assert(std::same_as<Over<On<replica, Invariant>, D<Sb>>, Over<D<Sb>>>);
static_assert(!std::same_as<Over<D<Sb>>, Sb>);
static_assert(Layout<Over<D<Sb>>> && detail::MeshLayout<Over<D<Sb>>> && !PlainLayout<Over<D<Sb>>>);
static_assert(Layout<Sb> && !detail::MeshLayout<Sb> && !Layout<On<data, Sb>> &&
              !Layout<const Over<D<Sb>>>);
static_assert(std::is_empty_v<Over<D<Sb>, T<Sf>>>);

static_assert(std::same_as<detail::along_t<Over<D<Sb>, T<Partial>>, data>, Sb>);
static_assert(std::same_as<detail::along_t<Over<D<Sb>, T<Partial>>, tensor>, Partial>);
static_assert(std::same_as<detail::along_t<Over<D<Sb>, T<Partial>>, context>, Invariant>);
static_assert(std::same_as<detail::along_t<Partial, tensor>, Partial>);
static_assert(std::same_as<detail::along_t<Partial, data>, Invariant>);

static_assert(std::same_as<dual_t<Over<D<Sb>, T<Replicated>>>, Over<D<Sb>, T<Partial>>>);
static_assert(std::same_as<dual_t<Over<D<Partial>, T<Sf>>>, Over<D<Replicated>, T<Sf>>>);

// All pairs of 25 layouts over two mesh axes, of which both may cut one axis of the tensor.
template <class... Ls>
struct List {
  static constexpr std::size_t size = sizeof...(Ls);
};
template <class... As, class... Bs>
List<As..., Bs...> operator+(List<As...>, List<Bs...>);
template <class L, class... Ls>
using Row = List<Over<D<L>, T<Ls>>...>;
template <class... Ls>
using Square = decltype((Row<Ls, Ls...>{} + ...));
using All = Square<Invariant, Replicated, Partial, Sb, Sf>;
static_assert(All::size == 25);

struct Count {
  int exist = 0, no_summands = 0, no_order = 0;
  std::array<int, 3> steps{};
};

template <class From, class To>
consteval void add_pair(Count& count) {
  static_assert(redistributable<From, To> == redistributable<dual_t<To>, dual_t<From>>);
  if constexpr (redistributable<From, To>) {
    ++count.exist;
    if constexpr (detail::MeshLayout<From> || detail::MeshLayout<To>) {
      using R = Redistribute<From, To>;
      static_assert(std::same_as<adjoint_t<adjoint_t<R>>, R>);
      ++count.steps[R::steps.size()];
    }
  } else {
    const bool along_each =
        redistributable<detail::along_t<From, data>, detail::along_t<To, data>> &&
        redistributable<detail::along_t<From, tensor>, detail::along_t<To, tensor>>;
    ++(along_each ? count.no_order : count.no_summands);
  }
}
template <class From, class... Tos>
consteval void add_row(Count& count, List<Tos...>) {
  static_assert(std::same_as<dual_t<dual_t<From>>, From>);
  (add_pair<From, Tos>(count), ...);
}
template <class... Ls>
consteval Count count_of(List<Ls...> all) {
  Count count;
  (add_row<Ls>(count, all), ...);
  return count;
}
constexpr Count count = count_of(All{});
static_assert(count.exist == 556 && count.no_summands == 49 && count.no_order == 20);

// Steps. Smaller first, larger last:
template <class From, class To>
constexpr detail::MeshSteps steps = Redistribute<From, To>::steps;
consteval detail::MeshSteps in_order(std::initializer_list<MeshAxis> axes) {
  detail::MeshSteps result;
  for (const MeshAxis axis : axes) result.add(axis);
  return result;
}
static_assert(steps<Over<D<Sf>, T<Partial>>, Sb> == in_order({tensor, data}));
static_assert(steps<Over<D<Partial>, T<Sf>>, Over<D<Sb>>> == in_order({data, tensor}));
static_assert(steps<Over<D<Sb>, T<Partial>>, Over<T<Replicated>>> == in_order({tensor, data}));
// An all-reduce is smaller on a part than on the whole.
static_assert(steps<Over<D<Partial>, T<Sf>>, Over<D<Replicated>>> == in_order({data, tensor}));
// One axis cut twice: the outer cut is put on first and taken off last.
using Twice = Over<D<Sb>, T<Sb>>;
static_assert(steps<Over<D<Partial>, T<Partial>>, Twice> == in_order({data, tensor}));
static_assert(steps<Twice, Over<D<Replicated>, T<Replicated>>> == in_order({tensor, data}));
static_assert(steps<Over<D<Sf>, T<Partial>>, Twice> == in_order({data, tensor}));
static_assert(redistributable<Twice, Over<D<Sb>>> && !redistributable<Twice, Over<T<Sb>>>);
static_assert(!redistributable<Twice, Over<D<Sf>, T<Sb>>>);
static_assert(steps<Twice, Twice>.size() == 0);
// A plain layout is one along `tensor`.
static_assert(std::same_as<Redistribute<Over<D<Partial>, T<Sf>>, Partial>::along<tensor>,
                           Redistribute<Sf, Partial>>);
// Several steps are no single movement, so nobody can take the first one for the whole.
template <class R>
concept HasMovement = requires {
  R::movement;
};
static_assert(HasMovement<Redistribute<Sb, Invariant>> &&
              !HasMovement<Redistribute<Twice, Invariant>>);

// Each mesh axis in its place: of five, and of a halo.
using Rows = Haloed<Axis::height, Window{.kernel = 3, .before = 1, .after = 1}>;
using Space = On<context, Sharded<Axis::height>>;
static_assert(steps<Over<On<pipeline, Partial>, On<replica, Partial>, D<Sb>, Space, T<Partial>>,
                    Over<On<pipeline, Invariant>, On<replica, Sb>, Space, T<Invariant>>>.size() ==
              4);
static_assert(redistributable<Over<D<Sb>, Space>, Over<D<Sb>, On<context, Rows>>>);
static_assert(!redistributable<Over<D<Sharded<Axis::height>>, Space>,
                               Over<D<Sharded<Axis::height>>, On<context, Rows>>>);

// Blocks of blocks: 10 rows over 2 x 2 ranks are 3, 2, 3 and 2, and not 3, 3, 2 and 2.
constexpr Shape rows{{Axis::batch, 10}, {Axis::feature, 3}};
constexpr mesh two_by_two{.data = 2, .tensor = 2};
template <class L, int Rank>
constexpr Interval held{detail::local_begin<L>(rows, place_in(two_by_two, Rank))[0],
                        local_shape<L>(rows, place_in(two_by_two, Rank))[0].units};
static_assert(held<Twice, 0> == Interval{0, 3} && held<Twice, 1> == Interval{3, 2});
static_assert(held<Twice, 2> == Interval{5, 3} && held<Twice, 3> == Interval{8, 2});
static_assert(held<Over<D<Sb>, T<Sf>>, 3> == Interval{5, 5});
static_assert(detail::local_begin<Over<D<Sb>, T<Sf>>>(rows, place_in(two_by_two, 3))[1] == 2);
static_assert(local_shape<Over<D<Sb>, T<Sf>>>(rows, place_in(two_by_two, 3)) ==
              Shape{{Axis::batch, 5}, {Axis::feature, 1}});

// Views hold the place that their layout needs.
static_assert(std::same_as<decltype(View<float, Twice>{}.place()), MeshPlace>);
static_assert(std::same_as<decltype(View<float, Sb>{}.place()), Place>);
static_assert(place_for<Sb>(place_in(two_by_two, 1)) == Place{1, 2});

}  // namespace

// Runs of the elements of a part that is cut along up to three axes.
namespace runs {
using detail::global_runs;
using detail::GlobalRuns;
using detail::HeldPart;

/// Image 1 and 2 of four, and of each this part of its channels, rows and columns.
constexpr HeldPart part(Interval channels, Interval rows, Interval columns) {
  return {{{Axis::batch, 4}, {Axis::channel, 3}, {Axis::height, 5}, {Axis::width, 4}},
          {{Axis::batch, 2},
           {Axis::channel, channels.size},
           {Axis::height, rows.size},
           {Axis::width, columns.size}},
          {1, channels.offset, rows.offset, columns.offset},
          2};
}
/// Whether each element of a part has in its runs the number that it has in the whole tensor.
constexpr bool numbers_elements(const HeldPart& part) {
  const GlobalRuns runs = global_runs(part);
  bool good = runs.size() == part.local.elements();
  for (std::size_t i = 0; good && i < runs.size(); ++i)
    good = runs.global(i) == 2 * part.whole.elements(1, 4) +
                                 detail::number_in_whole(part.whole, part.local, part.begin, i);
  return good;
}

static_assert(numbers_elements(part({0, 3}, {0, 5}, {0, 4})) &&
              global_runs(part({0, 3}, {0, 5}, {0, 4})).count == 1);
static_assert(numbers_elements(part({0, 3}, {2, 2}, {0, 4})) &&
              global_runs(part({0, 3}, {2, 2}, {0, 4})).length == 8);
static_assert(numbers_elements(part({1, 2}, {0, 5}, {0, 4})) &&
              numbers_elements(part({0, 3}, {0, 5}, {3, 1})));
// Channels and rows; rows and columns; channels and columns.
static_assert(numbers_elements(part({1, 2}, {2, 3}, {0, 4})) &&
              numbers_elements(part({0, 3}, {4, 1}, {1, 2})) &&
              numbers_elements(part({2, 1}, {0, 5}, {1, 3})));
static_assert(numbers_elements(part({1, 2}, {3, 0}, {0, 4})));  // no rows
}  // namespace runs
