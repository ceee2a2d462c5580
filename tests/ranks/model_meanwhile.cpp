// Sums of input gradients that ranks start and end, with the gradients of parameters in between:
// what a model learns and sends is the same, and nobody touches the sums while they are made.

#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <numeric>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ranks/model_observe.hpp"
#include "shardwise/comm/begins_collectives.hpp"
#include "shardwise/comm/mesh_ranks.hpp"
#include "shardwise/layers/attend.hpp"
#include "shardwise/layers/concat.hpp"
#include "shardwise/layers/elementwise.hpp"
#include "shardwise/layers/gather_policy.hpp"
#include "shardwise/layers/head_linear.hpp"
#include "shardwise/layers/linear.hpp"
#include "shardwise/layers/times.hpp"
#include "shardwise/model/join.hpp"
#include "shardwise/model/recompute.hpp"
#include "shardwise/model/repeat.hpp"
#include "shardwise/model/sum.hpp"
#include "shardwise/observe/tracer.hpp"

using namespace shardwise;
using testing::Data;
using testing::Observed;
using testing::Workload;

namespace {

// What became of the sums of all ranks.
std::atomic<int> started = 0;
std::atomic<int> touched = 0;

thread_local std::vector<std::string> order;  // of what the rank's layer did

/// A sum that is made. Its memory holds NaNs, which whoever reads it gets, and the sum at the end.
template <class T>
class Started {
 public:
  static constexpr bool goes_on_by_itself = true;

  Started(std::span<T> out, std::vector<T> sum) : out_(out), sum_(std::move(sum)) {
    std::ranges::fill(bytes(), nothing);
    order.emplace_back("start");
  }
  Started(Started&& other) noexcept
      : out_(std::exchange(other.out_, {})), sum_(std::move(other.sum_)) {}
  Started& operator=(Started&&) = delete;
  ~Started() { finish(); }

  void progress() {}
  void finish() {
    if (out_.data() == nullptr) return;
    touched += std::ranges::count(bytes(), nothing) == std::ssize(bytes()) ? 0 : 1;
    std::ranges::copy(sum_, out_.begin());
    order.emplace_back("end");
    out_ = {};
  }

 private:
  static constexpr std::byte nothing{0xff};
  std::span<std::byte> bytes() const { return std::as_writable_bytes(out_); }

  std::span<T> out_;
  std::vector<T> sum_;
};

class StartingRanks : public BeginningCollectives<StartingRanks> {
 public:
  StartingRanks(testing::Ranks ranks) : ranks_(std::move(ranks)) {}

  int rank() const { return ranks_.rank(); }
  int size() const { return ranks_.size(); }
  StartingRanks split(int color, int key) { return {ranks_.split(color, key)}; }

  template <class Move>
  void move(const Call&, const Move& move) {
    move.on(ranks_);
  }
  template <class Move>
  auto begin(const Call&, Move move) {
    ++started;
    const auto out = move.out;
    std::vector<typename decltype(Move::out)::element_type> sum(out.size());
    move.out = sum;
    move.on(ranks_);
    return Started(out, std::move(sum));
  }

 private:
  testing::Ranks ranks_;
};

using Plain = testing::Counted;
using Starting = CountingCommunicator<StartingRanks>;
static_assert(detail::CollectivesGoOn<Starting> && !detail::CollectivesGoOn<Plain>);

/// At 1 to 8 ranks the same numbers and calls as on ranks that cannot start a sum, and `sums`
/// of them started by each rank in a backward.
template <class T, class E = Ends<Invariant, Invariant>, class Use = TrainWithInputGradient,
          class Architecture>
void check_starting(const Architecture& architecture, const Workload& work, int sums) {
  const int passes = work.passes * work.steps;
  for (const int ranks : testing::rank_counts({1, 2, 3, 4, 5, 6, 7, 8})) {
    CAPTURE(ranks);
    const Observed plain =
        testing::observe<Architecture, T, Plain, E, Use>(architecture, ranks, work);
    started = touched = 0;
    const Observed beside =
        testing::observe<Architecture, T, Starting, E, Use>(architecture, ranks, work);
    CHECK(started == sums * passes * ranks);
    CHECK(touched == 0);
    CHECK(beside.tensors == plain.tensors);
    CHECK(beside.calls == plain.calls);
    CHECK(beside.calls.size() > 2);
    CHECK(testing::difference_from_plan(beside) == "");
  }
}

using Sequence = Sharded<Axis::sequence>;
const Shape rows{{Axis::batch, 5}, {Axis::feature, 7}};
const Shape text{{Axis::batch, 2}, {Axis::sequence, 5}, {Axis::feature, 6}};

struct Mlp : Sequential<ColumnParallelLinear<7, 11>, Relu, RowParallelLinear<11, 5>> {};
struct Deep : Sequential<ColumnParallelLinear<7, 11>, Relu, RowParallelLinear<11, 5>, Relu,
                         ColumnParallelLinear<5, 3, false>, To<Invariant>, Relu,
                         Linear<split::none, 3, 4>, ColumnParallelLinear<4, 9>> {};
struct Heads
    : Sequential<Join<Attend<>, HeadLinear<6, 3, 2>, HeadLinear<6, 3, 2>, HeadLinear<6, 3, 2>>,
                 RowParallelLinear<6, 6>> {};
/// Branches that read one sum: directly, behind another layer, and in a composition of their own.
struct Gated
    : Sequential<
          Join<Times<activations::Silu>, ColumnParallelLinear<7, 11>, ColumnParallelLinear<7, 11>>,
          RowParallelLinear<11, 5>> {};
/// Blocks that run forward again: one whose input the Join around it converts and sums back, and
/// one that converts and sums itself.
struct Again
    : Sequential<Join<Times<activations::Silu>, Recompute<ColumnParallelLinear<7, 11>>,
                      ColumnParallelLinear<7, 11>>,
                 RowParallelLinear<11, 5>,
                 Recompute<Sequential<ColumnParallelLinear<5, 9>, Relu, RowParallelLinear<9, 3>>>> {
};
struct Branched
    : Join<Concat<Axis::feature>, Sequential<ColumnParallelLinear<7, 6>, Tanh>,
           Sequential<Sequential<ColumnParallelLinear<7, 9>, Relu>, RowParallelLinear<9, 4>>,
           ColumnParallelLinear<7, 5>> {};
struct Block : Residual<Sequential<ColumnParallelLinear<6, 9>, Relu, RowParallelLinear<9, 6>>> {};

}  // namespace

TEST_CASE_TEMPLATE("a perceptron", T, float, double, bf16, fp16) {
  check_starting<T>(Mlp{}, {rows, Data::reals, 2, 2}, 1);
  check_starting<T>(Mlp{}, {{{Axis::batch, 0}, {Axis::feature, 7}}}, 1);
}

TEST_CASE("several layers, some of which start no sum") {
  check_starting<double>(Deep{}, {rows, Data::integers, 2, 2}, 3);
  check_starting<double, Ends<Replicated, Invariant>>(Deep{}, {rows}, 2);
  check_starting<double, Ends<Invariant, Invariant>, Train>(Deep{}, {rows}, 2);
  check_starting<double, Ends<Invariant, Invariant>, Train>(Mlp{}, {rows}, 0);
}

TEST_CASE("blocks on a whole stream and on one that is split") {
  const Workload whole_numbers{text, Data::integers, 2};
  check_starting<float>(Block{}, whole_numbers, 1);
  check_starting<float>(Repeat<3, Block>{}, whole_numbers, 3);
  check_starting<float, Ends<Sequence, Sequence>>(Repeat<3, Block>{}, whole_numbers, 0);
}

TEST_CASE("queries, keys and values of one input") {
  check_starting<double>(Heads{}, {text, Data::reals, 2, 2}, 1);
  check_starting<double>(Repeat<2, Residual<Heads>>{}, {text}, 2);
}

TEST_CASE("branches that read one input") {
  check_starting<double>(Gated{}, {rows, Data::reals, 2, 2}, 1);
  check_starting<bf16>(Gated{}, {rows, Data::reals, 2, 2}, 1);
  check_starting<double>(Branched{}, {rows, Data::reals, 2, 2}, 1);
  check_starting<double, Ends<Invariant, Invariant>, Train>(Gated{}, {rows}, 0);
}

TEST_CASE("blocks that run forward again") {
  check_starting<double>(Again{}, {rows, Data::reals, 2, 2}, 2);
}

TEST_CASE("a backward in two parts starts the sums of blocks that run forward again") {
  testing::run_on_ranks(2, [](testing::Ranks& inner) {
    using Mesh = MeshRanks<StartingRanks>;
    Mesh ranks(StartingRanks(inner), {.tensor = 2});
    Model<Again, Context<double, Reference, Mesh>, Ends<Invariant, Invariant>,
          TrainWithInputGradient>
        model(ranks, Seed{1}, rows);
    const auto filled = [&]<class L>(L, const Shape& shape) {
      Tensor<double, L> tensor(shape, ranks.place());
      std::iota(tensor.data(), tensor.data() + tensor.size(), 1.0);
      return tensor;
    };
    const auto x = filled(SamplesOverMesh<Invariant>{}, rows);
    const auto gradients = [&](auto backward) {
      const auto dy =
          filled(dual_t<SamplesOverMesh<Invariant>>{}, model.forward(x.view()).global());
      order.clear();
      backward(dy.view());
      const std::vector<double> all(model.gradients().begin(), model.gradients().end());
      model.discard_step();
      return std::pair(all, std::ranges::count(order, "start"));
    };
    const auto [whole, sums] = gradients([&](const auto& dy) { model.backward(dy); });
    const auto [parts, sums_of_parts] = gradients([&](const auto& dy) {
      model.backward_input(dy);
      model.backward_parameters();
    });
    CHECK(parts == whole);
    CHECK(sums == 2);
    CHECK(sums_of_parts == 2);
  });
}

namespace {

/// Says when its parts are called.
struct Told : ColumnParallelLinear<7, 5> {
  template <class Frame, class X, class DY, class DX>
  void backward(Frame& frame, const X& x, const DY& dy, const DX& dx) const {
    order.emplace_back("backward");
    ColumnParallelLinear<7, 5>::backward(frame, x, dy, dx);
  }
  template <class Frame, class DY, class DX>
  void backward_input(Frame& frame, const DY& dy, const DX& dx) const {
    order.emplace_back("input");
    ColumnParallelLinear<7, 5>::backward_input(frame, dy, dx);
  }
  template <class Frame, class X, class DY>
  void backward_parameters(Frame& frame, const X& x, const DY& dy) const {
    order.emplace_back("parameters");
    ColumnParallelLinear<7, 5>::backward_parameters(frame, x, dy);
    if (fails) throw argument_error("it fails");
  }
  bool fails = false;
};

template <class Architecture, class C>
using ToldModel = Model<Architecture, Context<float, Reference, C, Tracer>,
                        Ends<Invariant, Invariant>, TrainWithInputGradient>;

/// What a rank does in a backward, and the kinds of work that its observer is told.
template <class C, class Architecture>
std::vector<std::string> told(const Architecture& architecture) {
  std::vector<std::string> done;
  testing::run_on_ranks(2, [&](testing::Ranks& inner) {
    C ranks(inner);
    ToldModel<Architecture, C> model(architecture, ranks, Seed{1}, rows);
    const Tensor<float, Invariant> x(rows, place_of(ranks));
    std::vector<std::string> first;
    for (const bool is_second : {false, true}) {  // the same, also behind an error
      const auto y = model.forward(x.view());
      const Tensor<float, Invariant> dy(y.global(), place_of(ranks));
      order.clear();
      model.observer().reserve(20);
      try {
        model.backward(dy.view());
      } catch (const argument_error& e) {
        order.emplace_back("error");
        if (std::string_view(e.what()).find("1: ") != std::string_view::npos)
          order.emplace_back("in part 1");
      }
      CHECK((order == first) == is_second);
      first = order;
    }
    for (const auto& event : model.observer().events())
      order.push_back(std::to_string(static_cast<int>(event.work.kind)));
    if (ranks.rank() == 0) done = order;
  });
  return done;
}

}  // namespace

TEST_CASE("the parts are called around the start, and an error between ends the sum") {
  using Words = std::vector<std::string>;
  Told fails;
  fails.fails = true;
  const Words plain = told<Plain>(Told{});
  const Words starting = told<Starting>(Told{});
  const Words failed = told<Starting>(fails);
  const Words work{"0", "3", "2", "4"};  // the phase, a slice of dy, the layer, the sum
  const auto joined = [](Words words, const Words& more) {
    words.insert(words.end(), more.begin(), more.end());
    return words;
  };
  CHECK(plain == joined({"backward"}, work));
  CHECK(starting == joined({"input", "start", "parameters", "end"}, work));
  CHECK(failed == joined({"input", "start", "parameters", "end", "error"}, work));
}

TEST_CASE("branches compute the gradients of their parameters while the ranks sum") {
  const auto of = [](const std::vector<std::string>& words) {
    return std::vector(words.begin(), std::ranges::find(words, "0"));
  };
  using Words = std::vector<std::string>;
  using Nested = Sequential<Told, Relu>;
  Told fails;
  fails.fails = true;
  CHECK(of(told<Plain>(Join<Sum, Nested, Told>{})) == Words{"backward", "backward"});
  const Words starting{"input", "input", "start", "parameters", "parameters", "end"};
  CHECK(of(told<Starting>(Join<Sum, Nested, Told>{})) == starting);
  const Words failed{"input", "input", "start", "parameters", "end", "error", "in part 1"};
  CHECK(of(told<Starting>(Join<Sum, Nested, Told>(Nested{}, fails))) == failed);
}
