// Compositions against their formulas in plain loops, forward and backward, at 1 to 8 ranks: what
// is wrong in the same way at every number of ranks is seen here.

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <utility>

#include "ranks/model_linear_cases.hpp"
#include "ranks/model_observe.hpp"
#include "shardwise/layers/elementwise.hpp"
#include "shardwise/layers/gather_policy.hpp"
#include "shardwise/layers/identity.hpp"
#include "shardwise/layers/linear.hpp"
#include "shardwise/model/join.hpp"
#include "shardwise/model/queries.hpp"
#include "shardwise/model/sum.hpp"
#include "shardwise/model/tied.hpp"

using namespace shardwise;
using testing::Data;
using testing::Whole;

namespace {

using Sequence = Sharded<Axis::sequence>;
using Tensors = std::map<std::string, Whole>;

constexpr std::size_t rows = 2 * 5;
const Shape text{{Axis::batch, 2}, {Axis::sequence, 5}, {Axis::feature, 6}};

/// A layer y = x Wᵀ + b of a model, all of it small integers.
class LinearByHand {
 public:
  /// The layer of this name, before which `i` others have weights.
  LinearByHand(std::uint64_t i, std::string name, std::size_t in, std::size_t out)
      : name_(std::move(name)),
        formula_{rows, in, out,
                 testing::elements(Data::integers, testing::number_of_parameter(2 * i), out * in),
                 testing::elements(Data::integers, testing::number_of_parameter(2 * i + 1), out)} {}

  Whole forward(const Whole& x) {
    x_ = x;
    return formula_.output(x);
  }

  /// Returns dx and notes dW and db.
  Whole backward(const Whole& dy, Tensors& gradients) const {
    formula_.add_weight_gradient(gradients[name_ + "weight gradient"], x_, dy);
    formula_.add_bias_gradient(gradients[name_ + "bias gradient"], dy);
    return formula_.input_gradient(dy);
  }

 private:
  std::string name_;
  testing::LinearFormula formula_;
  Whole x_;
};

Whole relu(Whole x) {
  for (double& element : x)
    if (element < 0) element = 0;
  return x;
}

Whole relu_backward(Whole dy, const Whole& y) {
  for (std::size_t i = 0; i < dy.size(); ++i)
    if (y[i] == 0) dy[i] = 0;
  return dy;
}

Whole sum(Whole a, const Whole& b) {
  for (std::size_t i = 0; i < a.size(); ++i) a[i] += b[i];
  return a;
}

/// W₁ relu(W₀ x + b₀) + b₁
class Perceptron {
 public:
  Perceptron(std::uint64_t first, const std::string& path, std::size_t wide)
      : in_(first, path + "0.", 6, wide), out_(first + 1, path + "2.", wide, 6) {}

  Whole forward(const Whole& x) {
    h_ = relu(in_.forward(x));
    return out_.forward(h_);
  }
  Whole backward(const Whole& dy, Tensors& gradients) const {
    return in_.backward(relu_backward(out_.backward(dy, gradients), h_), gradients);
  }

 private:
  LinearByHand in_, out_;
  Whole h_;
};

template <class Model, class E, class Use, class C, class Formula>
void check_at(int ranks, Formula formula) {
  CAPTURE(ranks);
  const testing::Observed seen =
      testing::observe<Model, double, C, E, Use>(Model{}, ranks, {text, Data::integers, 1});
  const Whole x = testing::elements(Data::integers, testing::number_of_input(0), rows * 6);
  const Whole dy = testing::elements(Data::integers, testing::number_of_output_gradient(0),
                                     seen["output 0"].size());
  Tensors expected = formula(x, dy);
  expected["evaluated"] = expected.at("output 0");
  if (!Use::input_gradient) expected.erase("input gradient 0");
  for (const auto& tensor : expected) {
    CAPTURE(tensor.first);
    CHECK(seen[tensor.first] ==
          tensor.second);  // exactly: all are sums of products of small integers
  }
  CHECK(seen.copies_are_equal);
}

template <class Model, class E, class Use = TrainWithInputGradient, class Formula>
void check_ends(Formula formula) {
  for (const int ranks : testing::rank_counts({1, 2, 3, 4, 5, 6, 7, 8}))
    check_at<Model, E, Use, testing::Ranks>(ranks, formula);
}

/// `formula(x, dy)` gives the output, the gradient of the input, and those of all parameters.
template <class Model, class Formula>
void check(Formula formula) {
  using Stream = Ends<Invariant, Invariant>;
  SUBCASE("on a whole stream") { check_ends<Model, Stream>(formula); }
  SUBCASE("on a stream split by sequence") { check_ends<Model, Ends<Sequence, Sequence>>(formula); }
  SUBCASE("on the one rank of SingleRank, without the gradient of the input") {
    check_at<Model, Stream, Train, SingleRank>(1, formula);
  }
}

using Block = Sequential<ColumnParallelLinear<6, 9>, Relu, RowParallelLinear<9, 6>>;

}  // namespace

TEST_CASE("a Sequential runs its layers from left to right, also those of one inside it") {
  struct Layers : Sequential<ColumnParallelLinear<6, 6>, Relu,
                             Sequential<RowParallelLinear<6, 6>, Linear<split::none, 6, 6>>, Relu,
                             ColumnParallelLinear<6, 4>> {};
  check<Layers>([](const Whole& x, const Whole& dy) {
    LinearByHand a(0, "0.", 6, 6), b(1, "2.0.", 6, 6), c(2, "2.1.", 6, 6), d(3, "4.", 6, 4);
    Tensors t;
    const Whole first = relu(a.forward(x));
    const Whole second = relu(c.forward(b.forward(first)));
    t["output 0"] = d.forward(second);
    const Whole behind = relu_backward(d.backward(dy, t), second);
    t["input gradient 0"] =
        a.backward(relu_backward(b.backward(c.backward(behind, t), t), first), t);
    return t;
  });
}

TEST_CASE("a Residual is x + block(x), and its gradient dy + that of the block") {
  struct Added : Residual<Block> {};
  check<Added>([](const Whole& x, const Whole& dy) {
    Perceptron block(0, "", 9);
    Tensors t;
    t["output 0"] = sum(x, block.forward(x));
    t["input gradient 0"] = sum(dy, block.backward(dy, t));
    return t;
  });
}

TEST_CASE("a Residual inside a Residual adds twice") {
  struct Twice : Residual<Sequential<Linear<split::none, 6, 6>, Residual<Block>, Relu>> {};
  check<Twice>([](const Whole& x, const Whole& dy) {
    LinearByHand first(0, "0.", 6, 6);
    Perceptron block(1, "1.", 9);
    Tensors t;
    const Whole stream = first.forward(x);
    const Whole inner = relu(sum(stream, block.forward(stream)));
    t["output 0"] = sum(x, inner);
    const Whole behind = relu_backward(dy, inner);
    t["input gradient 0"] = sum(dy, first.backward(sum(behind, block.backward(behind, t)), t));
    return t;
  });
}

TEST_CASE("a Residual of a redistribution doubles, and its gradient too") {
  struct Double : Sequential<Linear<split::none, 6, 6>, Residual<To<Sharded<Axis::feature>>>> {};
  check<Double>([](const Whole& x, const Whole& dy) {
    LinearByHand only(0, "0.", 6, 6);
    Tensors t;
    const Whole stream = only.forward(x);
    t["output 0"] = sum(stream, stream);
    t["input gradient 0"] = only.backward(sum(dy, dy), t);
    return t;
  });
}

TEST_CASE("a Repeat runs its block so often, each time with parameters of its own") {
  struct Thrice : Repeat<3, Sequential<RowParallelLinear<6, 6>, Relu>> {};
  check<Thrice>([](const Whole& x, const Whole& dy) {
    LinearByHand a(0, "0.0.", 6, 6), b(1, "1.0.", 6, 6), c(2, "2.0.", 6, 6);
    Tensors t;
    const Whole first = relu(a.forward(x));
    const Whole second = relu(b.forward(first));
    const Whole third = relu(c.forward(second));
    t["output 0"] = third;
    const Whole behind = relu_backward(c.backward(relu_backward(dy, third), t), second);
    t["input gradient 0"] = a.backward(relu_backward(b.backward(behind, t), first), t);
    return t;
  });
}

TEST_CASE("a Repeat of a Residual between other layers") {
  struct Stack
      : Sequential<Linear<split::none, 6, 6>, Repeat<2, Residual<Block>>, RowParallelLinear<6, 3>> {
  };
  check<Stack>([](const Whole& x, const Whole& dy) {
    LinearByHand first(0, "0.", 6, 6);
    Perceptron block(1, "1.0.", 9), again(3, "1.1.", 9);
    LinearByHand last(5, "2.", 6, 3);
    Tensors t;
    const Whole a = first.forward(x);
    const Whole b = sum(a, block.forward(a));
    t["output 0"] = last.forward(sum(b, again.forward(b)));
    const Whole dc = last.backward(dy, t);
    const Whole db = sum(dc, again.backward(dc, t));
    t["input gradient 0"] = first.backward(sum(db, block.backward(db, t)), t);
    return t;
  });
}

TEST_CASE("a Join is the sum of its branches, and its gradient that of theirs") {
  struct Projected : Join<Sum, Linear<split::none, 6, 6>, Block> {};
  check<Projected>([](const Whole& x, const Whole& dy) {
    LinearByHand shortcut(0, "0.", 6, 6);
    Perceptron block(1, "1.", 9);
    Tensors t;
    t["output 0"] = sum(shortcut.forward(x), block.forward(x));
    t["input gradient 0"] = sum(shortcut.backward(dy, t), block.backward(dy, t));
    return t;
  });
}

TEST_CASE("a Join of branches that take the same layout brings x to it once") {
  struct Columns : Join<Sum, ColumnParallelLinear<6, 4>, ColumnParallelLinear<6, 4>> {};
  check<Columns>([](const Whole& x, const Whole& dy) {
    LinearByHand a(0, "0.", 6, 4), b(1, "1.", 6, 4);
    Tensors t;
    t["output 0"] = sum(a.forward(x), b.forward(x));
    t["input gradient 0"] = sum(a.backward(dy, t), b.backward(dy, t));
    return t;
  });
}

TEST_CASE("a Join with an Identity is a Residual, with numbers in its names") {
  struct Added : Sequential<RowParallelLinear<6, 6>, Join<Sum, Identity, Block>> {};
  check<Added>([](const Whole& x, const Whole& dy) {
    LinearByHand first(0, "0.", 6, 6);
    Perceptron block(1, "1.1.", 9);
    Tensors t;
    const Whole stream = first.forward(x);
    t["output 0"] = sum(stream, block.forward(stream));
    t["input gradient 0"] = first.backward(sum(dy, block.backward(dy, t)), t);
    return t;
  });
}

TEST_CASE("a value that three parts of a list read has the sum of their gradients") {
  struct List : Composition<At<RowParallelLinear<6, 6>, 0>, At<Block, 1>, At<Relu, 1>,
                            At<Sum, 2, 3, 1>, At<Sum, 4, 4>> {};
  check<List>([](const Whole& x, const Whole& dy) {
    LinearByHand first(0, "0.", 6, 6);
    Perceptron block(1, "1.", 9);
    Tensors t;
    const Whole shared = first.forward(x);
    const Whole positive = relu(shared);
    const Whole once = sum(sum(block.forward(shared), positive), shared);
    t["output 0"] = sum(once, once);
    const Whole back = sum(dy, dy);
    t["input gradient 0"] =
        first.backward(sum(sum(block.backward(back, t), relu_backward(back, positive)), back), t);
    return t;
  });
}

namespace {

// begin: inside
/// W₂ relu(W₀ a + b₀ + W₁ b + b₁) + b₂
struct Added : Graph<2, At<ColumnParallelLinear<6, 9>, 0>, At<ColumnParallelLinear<6, 9>, 1>,
                     At<Sum, 2, 3>, At<Relu, 4>, At<RowParallelLinear<9, 6>, 5>> {};

struct Nested : Composition<At<RowParallelLinear<6, 6>, 0>, At<Added, 1, 0>, At<Relu, 2>,
                            At<Added, 0, 3>, At<Added, 4, 4>> {};
// end: inside

class AddedByHand {
 public:
  AddedByHand(std::uint64_t first, const std::string& path)
      : of_a_(first, path + "0.", 6, 9),
        of_b_(first + 1, path + "1.", 6, 9),
        out_(first + 2, path + "4.", 9, 6) {}

  Whole forward(const Whole& a, const Whole& b) {
    h_ = relu(sum(of_a_.forward(a), of_b_.forward(b)));
    return out_.forward(h_);
  }
  std::pair<Whole, Whole> backward(const Whole& dy, Tensors& gradients) const {
    const Whole dh = relu_backward(out_.backward(dy, gradients), h_);
    return {of_a_.backward(dh, gradients), of_b_.backward(dh, gradients)};
  }

 private:
  LinearByHand of_a_, of_b_, out_;
  Whole h_;
};

}  // namespace

TEST_CASE("a Graph of two inputs inside another reads values that other parts read too") {
  check<Nested>([](const Whole& x, const Whole& dy) {
    LinearByHand first(0, "0.", 6, 6);
    AddedByHand a(1, "1."), b(4, "3."), c(7, "4.");
    Tensors t;
    const Whole positive = relu(a.forward(first.forward(x), x));
    const Whole both = b.forward(x, positive);
    t["output 0"] = c.forward(both, both);
    const auto [left, right] = c.backward(dy, t);
    const auto [dx, behind] = b.backward(sum(left, right), t);
    const auto [of_first, of_x] = a.backward(relu_backward(behind, positive), t);
    t["input gradient 0"] = sum(sum(dx, of_x), first.backward(of_first, t));
    return t;
  });
}

struct Table {};
using Square = Linear<split::none, 6, 6>;

TEST_CASE("the gradient of shared parameters is the sum over their uses") {
  struct Three : Sequential<Owns<Table, Square>, Relu, Residual<Borrows<Table, Square>>,
                            Borrows<Table, Square>> {};
  check<Three>([](const Whole& x, const Whole& dy) {
    LinearByHand first(0, "0.", 6, 6), second(0, "0.", 6, 6), third(0, "0.", 6, 6);
    Tensors t;
    const Whole h = relu(first.forward(x));
    t["output 0"] = third.forward(sum(h, second.forward(h)));
    const Whole dsum = third.backward(dy, t);
    t["input gradient 0"] =
        first.backward(relu_backward(sum(dsum, second.backward(dsum, t)), h), t);
    return t;
  });
}

TEST_CASE("branches share parameters that are split over the ranks") {
  using Column = ColumnParallelLinear<6, 4>;
  // begin: shared
  struct Twins : Join<Sum, Owns<Table, Column>, Sequential<Relu, Borrows<Table, Column>>> {};
  // end: shared
  check<Twins>([](const Whole& x, const Whole& dy) {
    LinearByHand a(0, "0.", 6, 4), b(0, "0.", 6, 4);
    Tensors t;
    const Whole positive = relu(x);
    t["output 0"] = sum(a.forward(x), b.forward(positive));
    t["input gradient 0"] = sum(a.backward(dy, t), relu_backward(b.backward(dy, t), positive));
    return t;
  });
}

TEST_CASE("what stands in a Repeat borrows each time from an owner in front of it") {
  struct Deep : Sequential<Owns<Table, Square>, Repeat<2, Sequential<Relu, Borrows<Table, Square>>>,
                           ColumnParallelLinear<6, 3>> {};
  check<Deep>([](const Whole& x, const Whole& dy) {
    LinearByHand a(0, "0.", 6, 6), b(0, "0.", 6, 6), c(0, "0.", 6, 6), last(1, "2.", 6, 3);
    Tensors t;
    const Whole ha = relu(a.forward(x)), hb = relu(b.forward(ha));
    t["output 0"] = last.forward(c.forward(hb));
    const Whole dc = c.backward(last.backward(dy, t), t);
    t["input gradient 0"] = a.backward(relu_backward(b.backward(relu_backward(dc, hb), t), ha), t);
    return t;
  });
}

TEST_CASE("each block of a Repeat borrows from its own owner") {
  struct Deep : Repeat<2, Sequential<Owns<Table, Square>, Relu, Borrows<Table, Square>>> {};
  check<Deep>([](const Whole& x, const Whole& dy) {
    LinearByHand a(0, "0.0.", 6, 6), b(0, "0.0.", 6, 6);
    LinearByHand c(1, "1.0.", 6, 6), d(1, "1.0.", 6, 6);
    Tensors t;
    const Whole first = relu(a.forward(x)), second = relu(c.forward(b.forward(first)));
    t["output 0"] = d.forward(second);
    const Whole dc = c.backward(relu_backward(d.backward(dy, t), second), t);
    t["input gradient 0"] = a.backward(relu_backward(b.backward(dc, t), first), t);
    return t;
  });
}

TEST_CASE("a second batch of the second step is added to all uses of shared parameters") {
  struct Two : Sequential<Owns<Table, Square>, Relu, Borrows<Table, Square>> {};
  using Stream = Ends<Invariant, Invariant>;
  const testing::Observed seen =
      testing::observe<Two, double, testing::Ranks, Stream, TrainWithInputGradient>(
          Two{}, 2, {text, Data::integers, 2, 2});
  Tensors t;
  for (const int pass : {0, 1}) {
    const Whole x = testing::elements(Data::integers, testing::number_of_input(pass), rows * 6);
    LinearByHand a(0, "0.", 6, 6), b(0, "0.", 6, 6);
    const Whole h = relu(a.forward(x));
    CHECK(seen["output " + std::to_string(pass)] == b.forward(h));
    const Whole dy =
        testing::elements(Data::integers, testing::number_of_output_gradient(pass), rows * 6);
    a.backward(relu_backward(b.backward(dy, t), h), t);
  }
  CHECK(seen["0.weight gradient"] == t["0.weight gradient"]);
  CHECK(seen["0.bias gradient"] == t["0.bias gradient"]);
}

TEST_CASE("shared parameters are stored, initialised and counted once") {
  struct Shared : Sequential<Owns<Table, Square>, Borrows<Table, Square>, Square> {};
  struct Apart : Sequential<Square, Relu, Square> {};
  constexpr Shape in{{Axis::batch, 4}, {Axis::feature, 6}};
  static_assert(memory_of<Shared, 2>(in)[0].parameters == memory_of<Apart, 2>(in)[0].parameters);
  SingleRank alone;
  using Ctx = Context<double, Reference, SingleRank>;
  Model<Shared, Ctx> shared(alone, Seed{3});
  Model<Apart, Ctx> apart(alone, Seed{3});
  CHECK(shared.values().size() == apart.values().size());
  std::map<std::string, double> begin;
  shared.visit_parameters([&](auto& p) { begin[p.name] = p.value[0]; });
  CHECK(begin.size() == 4);
  apart.visit_parameters([&](auto& p) { CHECK(begin[p.name] == p.value[0]); });
}

TEST_CASE("a layer that borrows parameters of another shape is refused, with both shapes") {
  using Open = Linear<split::none, dynamic, dynamic>;
  struct Net : Sequential<Owns<Table, Open>, Borrows<Table, Open>> {
    using Net::Sequential::Sequential;
  };
  SingleRank alone;
  using Ctx = Context<double, Reference, SingleRank>;
  const Net net{Owns<Table, Open>(6, 6), Borrows<Table, Open>(6, 5)};
  CHECK_THROWS_WITH_AS((Model<Net, Ctx>(net, alone, Seed{1})),
                       "Net / 1: Borrows<Linear<dynamic, dynamic>>: the layer borrows a parameter "
                       "weight of shape [output 6, input 6], but would have one of shape [output "
                       "5, input 6]: both layers must be of the same sizes",
                       shape_error);
}
