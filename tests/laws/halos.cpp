// The laws of halos, for every window, shape, communicator and number of ranks.
//
//   value    R gives a rank the units that its outputs read, each with its value
//   adjoint  adjoint(R) gives every unit the sum of what all ranks hold of it, and
//            <R x, y> == <x, adjoint(R) y>
//   input    R leaves its input alone
//   calls    R makes the one call that it declares, or none
//
// What a rank needs is found tap by tap, from the list of who owns which output.

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <string>
#include <vector>

#include "shardwise/comm/counting.hpp"
#include "shardwise/comm/single_rank.hpp"
#include "shardwise/comm/thread_ranks.hpp"
#include "shardwise/redistribute/run.hpp"
#include "support/oracle.hpp"
#include "support/plain_communicator.hpp"

using namespace testing;
using shardwise::Window;

namespace {

constexpr std::array<int, 6> rank_counts{1, 2, 3, 4, 5, 8};

struct Range {
  std::size_t begin = 0, end = 0;
};

/// The number of outputs.
std::size_t outputs_of(const Window& window, std::size_t units) {
  const std::size_t reach = (window.kernel - 1) * window.dilation;
  const std::size_t padding = window.before + window.after;
  std::size_t outputs = 0;
  if (window.is_transposed) {
    while (units > 0 && outputs + padding < (units - 1) * window.stride + reach + 1 + window.added)
      ++outputs;
    return outputs;
  }
  while (outputs * window.stride + reach < units + padding) ++outputs;
  return outputs * window.repeats;
}

/// Whether a unit lies between the first and the last tap of output `o`.
bool is_between_taps(const Window& window, std::size_t unit, std::size_t o) {
  const std::size_t reach = (window.kernel - 1) * window.dilation;
  const std::size_t moved = window.is_transposed ? o + window.before : unit + window.before;
  const std::size_t first =
      window.is_transposed ? unit * window.stride : o / window.repeats * window.stride;
  return moved >= first && moved <= first + reach;
}

/// The units that each rank holds: from the first to the last tap of its outputs, and to the ends
/// of the axis for the ranks of the first and of the last output.
std::vector<Range> needed(const Window& window, std::size_t units, int ranks) {
  std::vector<Range> result(static_cast<std::size_t>(ranks));
  const std::size_t outputs = outputs_of(window, units);
  if (outputs == 0) {
    result[0] = {0, units};
    return result;
  }
  const std::vector<std::size_t> owner = owners_of_units(outputs, ranks);
  for (std::size_t rank = 0; rank < result.size(); ++rank) {
    std::size_t first = units, last = 0;
    for (std::size_t o = 0; o < outputs; ++o) {
      if (owner[o] != rank) continue;
      for (std::size_t unit = 0; unit < units; ++unit) {
        if (!is_between_taps(window, unit, o)) continue;
        first = std::min(first, unit);
        last = std::max(last, unit + 1);
      }
    }
    const bool has_first = owner.front() == rank, has_last = owner.back() == rank;
    if (has_first) first = 0;
    if (has_last) last = units;
    if (first < last) result[rank] = {first, last};
  }
  return result;
}

/// The indices, in row-major order, of the elements whose unit of `axis` lies in `range`.
std::vector<std::size_t> elements_in(const Shape& shape, Axis axis, const Range& range) {
  std::size_t inner = 1;
  for (std::size_t i = shape.rank(); shape[i - 1].axis != axis; --i) inner *= shape[i - 1].extent();
  const Dim split = shape[shape.find(axis)];
  std::vector<std::size_t> result;
  for (std::size_t i = 0; i < shape.elements(); ++i) {
    const std::size_t unit = i / inner % split.extent() / split.grain;
    if (unit >= range.begin && unit < range.end) result.push_back(i);
  }
  return result;
}

std::vector<Shape> shapes_for(int ranks) {
  const auto p = static_cast<std::size_t>(ranks);
  std::vector<Shape> shapes;
  for (const std::size_t units : {std::size_t{29}, 2 * p, p + 1, std::size_t{3}, std::size_t{1}}) {
    shapes.push_back({{Axis::height, units}, {Axis::width, 3}});
    shapes.push_back({{Axis::batch, 2}, {Axis::height, units, 2}, {Axis::width, 2}});
    shapes.push_back({{Axis::batch, 2}, {Axis::height, units}});
  }
  shapes.push_back({{Axis::batch, 0}, {Axis::height, 5}, {Axis::width, 2}});
  shapes.push_back({{Axis::batch, 2}, {Axis::height, 0}, {Axis::width, 2}});
  return shapes;
}

template <class R, class T, class C>
Values run(C& ranks, shardwise::Pool& pool, const Shape& shape, const Values& input) {
  using From = typename R::from;
  using To = typename R::to;
  const Place place = shardwise::place_of(ranks);
  std::vector<T> in, out(shardwise::local_shape<To>(shape, place).elements(), static_cast<T>(99.F));
  for (const float value : input) in.push_back(static_cast<T>(value));
  const std::vector<T> before = in;
  shardwise::redistribute(ranks, pool, shardwise::View<const T, From>(in, shape, place),
                          shardwise::View<T, To>(out, shape, place));
  Values result;
  for (const T value : out) result.push_back(static_cast<float>(value));
  bool same = true;
  for (std::size_t i = 0; i < in.size(); ++i)
    same = same && static_cast<float>(in[i]) == static_cast<float>(before[i]);
  if (!same) result.push_back(99.F);  // of a size that no law accepts
  return result;
}

/// One pair on one tensor: what every rank put in and got out.
struct Trial {
  Shape shape;
  std::vector<Range> held;
  Values value;
  PerRank x, y, rx, ry;
  std::vector<char> as_declared;
};

template <class From, Window W>
std::vector<Trial> trials_of(int ranks) {
  std::vector<Trial> trials;
  for (const Shape& shape : shapes_for(ranks)) {
    Trial trial{shape, needed(W, shape[shape.find(Axis::height)].units, ranks), {}, {}, {}, {}, {},
                {}};
    const auto p = static_cast<std::size_t>(ranks);
    trial.value = small_integers(1, shape.elements());
    trial.x = lay_out(meaning_of<From>(), shape, ranks, trial.value);
    for (std::size_t rank = 0; rank < p; ++rank)
      trial.y.push_back(
          small_integers(2 + rank, elements_in(shape, Axis::height, trial.held[rank]).size()));
    trial.rx.resize(p);
    trial.ry.resize(p);
    trial.as_declared.assign(p, 1);
    trials.push_back(std::move(trial));
  }
  return trials;
}

template <class From>
void judge(const Trial& trial) {
  Values sum(trial.value.size());
  double left = 0;
  for (std::size_t rank = 0; rank < trial.held.size(); ++rank) {
    const auto elements = elements_in(trial.shape, Axis::height, trial.held[rank]);
    REQUIRE(trial.rx[rank].size() == elements.size());
    for (std::size_t i = 0; i < elements.size(); ++i) {
      CHECK(trial.rx[rank][i] == trial.value[elements[i]]);
      sum[elements[i]] += trial.y[rank][i];
      left += double{trial.rx[rank][i]} * trial.y[rank][i];
    }
    CHECK(trial.as_declared[rank]);
  }
  CHECK(means(meaning_of<shardwise::dual_t<From>>(), trial.shape, trial.ry, sum));
  CHECK(left == inner_product(meaning_of<From>(), trial.x, trial.ry));
}

template <class T, class From, Window W, class C, class Run>
void check_pair(int ranks, Run run_on) {
  using R = shardwise::Redistribute<From, shardwise::Haloed<Axis::height, W>>;
  std::vector<Trial> trials = trials_of<From, W>(ranks);
  run_on(ranks, [&](C& communicator) {
    shardwise::Pool pool;
    const auto rank = static_cast<std::size_t>(communicator.rank());
    for (Trial& trial : trials) {
      if constexpr (requires { communicator.log(); }) communicator.clear();
      trial.rx[rank] = run<R, T>(communicator, pool, trial.shape, trial.x[rank]);
      if constexpr (requires { communicator.log(); }) {
        const auto declared = R::operation();
        trial.as_declared[rank] =
            declared ? communicator.log().size() == 1 &&
                           communicator.log()[0] == shardwise::CountedCall{*declared,
                                                                           shardwise::dtype_v<T>,
                                                                           trial.x[rank].size()}
                     : communicator.log().empty();
      }
      trial.ry[rank] =
          run<shardwise::adjoint_t<R>, T>(communicator, pool, trial.shape, trial.y[rank]);
    }
  });
  for (const Trial& trial : trials) {
    CAPTURE(ranks);
    CAPTURE(to_string(trial.shape));
    CAPTURE(to_string(W));
    judge<From>(trial);
  }
}

/// Every tensor that halos are taken of.
template <class T, Window W, class C, class Run>
void check_all_pairs(int ranks, Run run_on) {
  check_pair<T, shardwise::Sharded<Axis::height>, W, C>(ranks, run_on);
  check_pair<T, shardwise::Invariant, W, C>(ranks, run_on);
  check_pair<T, shardwise::Replicated, W, C>(ranks, run_on);
}

template <class C>
struct OnThreads {
  template <class F>
  void operator()(int ranks, F f) const {
    shardwise::run_ranks(ranks, [&](shardwise::ThreadCommunicator& threads) {
      C communicator(threads);
      f(communicator);
    });
  }
};

/// In a group that split makes of every other rank of the job, in reverse order: neighbours in the
/// group are none in the job.
template <class C>
struct InGroup {
  template <class F>
  void operator()(int ranks, F f) const {
    shardwise::run_ranks(2 * ranks, [&](shardwise::ThreadCommunicator& job) {
      shardwise::ThreadCommunicator group = job.split(job.rank() % 2, -job.rank());
      if (job.rank() % 2 == 0) return;
      C communicator(group);
      f(communicator);
    });
  }
};

/// Halos of a split tensor.
template <class T, class C, Window... Ws>
void check_windows() {
  for (const int ranks : rank_counts)
    (check_pair<T, shardwise::Sharded<Axis::height>, Ws, C>(ranks, OnThreads<C>{}), ...);
}

constexpr Window same{.kernel = 3, .before = 1, .after = 1};
constexpr Window strided{.kernel = 3, .stride = 2, .before = 1, .after = 1};
constexpr Window gaps{.kernel = 2, .stride = 3};
constexpr Window several_hops{.kernel = 5, .dilation = 2, .before = 4, .after = 4};
constexpr Window lopsided{.kernel = 4, .after = 3};
constexpr Window mostly_padding{.kernel = 3, .stride = 2, .before = 7, .after = 9};
constexpr Window may_not_fit{.kernel = 7};
constexpr Window upsampling{.repeats = 3};
constexpr Window enlarging{
    .kernel = 3, .stride = 2, .before = 1, .after = 1, .is_transposed = true, .added = 1};

using Threads = shardwise::ThreadCommunicator;
using Packed = PlainCommunicator<Threads>;
using Counted = shardwise::CountingCommunicator<Threads>;

}  // namespace

TEST_CASE("halos of ranks that read each other's memory") {
  check_windows<float, Threads, same, gaps, several_hops, lopsided, mostly_padding, may_not_fit,
                upsampling, enlarging>();
}
TEST_CASE("halos of ranks that must pack") {
  check_windows<float, Packed, strided, gaps, several_hops, mostly_padding, may_not_fit,
                upsampling>();
}
TEST_CASE("halos make the call that they declare, of split tensors and of whole ones") {
  for (const int ranks : rank_counts)
    check_all_pairs<float, strided, Counted>(ranks, OnThreads<Counted>{});
}
TEST_CASE("neighbours are ranks of the group, not of the job") {
  for (const int ranks : {2, 3}) {
    check_pair<float, shardwise::Sharded<Axis::height>, several_hops, Threads>(ranks,
                                                                               InGroup<Threads>{});
    check_pair<float, shardwise::Sharded<Axis::height>, several_hops, Packed>(ranks,
                                                                              InGroup<Packed>{});
  }
}
TEST_CASE("halos in other dtypes") {
  check_windows<double, Threads, strided>();
  check_windows<shardwise::bf16, Threads, strided>();
  check_windows<shardwise::fp16, Packed, strided>();
}
TEST_CASE("one rank, known to the compiler, holds the whole axis") {
  const auto alone = [](int, auto f) {
    shardwise::SingleRank communicator;
    f(communicator);
  };
  check_all_pairs<float, gaps, shardwise::SingleRank>(1, alone);
}
