// Models with several inputs and outputs: which gradients they give, how they are drawn, and what
// they refuse.

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <concepts>
#include <initializer_list>
#include <numeric>
#include <string>
#include <tuple>
#include <vector>

#include "shardwise/shardwise.hpp"
#include "support/messages.hpp"

using namespace shardwise;

namespace {

struct TwoAndTwo : Graph<2, At<Linear<split::none, 3, 2, false>, 0>, At<Sum, 2, 1>,
                         Output<Linear<split::none, 2, 1, false>, 3>, Output<Tanh, 3>> {};
using TwoEnds = Ends<Layouts<Invariant, Invariant>, Layouts<Invariant, Invariant>>;
template <class Use>
using Alone = Model<TwoAndTwo, Context<double, Reference, SingleRank>, TwoEnds, Use>;

const std::array shapes{Shape{{Axis::batch, 1}, {Axis::feature, 3}},
                        Shape{{Axis::batch, 1}, {Axis::feature, 2}}};

Tensor<double, Invariant> row(std::initializer_list<double> numbers, Place place = {0, 1}) {
  Tensor<double, Invariant> row({{Axis::batch, 1}, {Axis::feature, numbers.size()}}, place);
  std::copy(numbers.begin(), numbers.end(), row.data());
  return row;
}

template <class M>
void set_weights(M& model) {
  Tensor<double, Invariant> first({{Axis::output, 2}, {Axis::input, 3}}, {0, 1});
  Tensor<double, Invariant> second({{Axis::output, 1}, {Axis::input, 2}}, {0, 1});
  std::iota(first.data(), first.data() + 6, 1.0);  // 1 2 3, 4 5 6
  std::iota(second.data(), second.data() + 2, 7.0);
  model.set("0.weight", first.view());
  model.set("2.weight", second.view());
}

}  // namespace

TEST_CASE("outputs and gradients of two inputs and two outputs, by hand") {
  SingleRank alone;
  Alone<TrainWithInputGradient> model(TwoAndTwo{}, alone, Seed{1}, shapes);
  set_weights(model);
  const auto x = row({1, 0, 0}), z = row({-1, -4});
  const auto [sum, squashed] = model.forward({x.view(), z.view()});
  CHECK(sum[0] == 0);  // 7 (1 - 1) + 8 (4 - 4)
  CHECK(squashed[0] == 0);
  CHECK(squashed[1] == 0);

  const auto dsum = row({2}), dsquashed = row({1, -1});
  const auto [dx, dz] = model.backward({dsum.view(), dsquashed.view()});
  CHECK(dz[0] == 2 * 7 + 1);  // tanh has slope 1 at 0
  CHECK(dz[1] == 2 * 8 - 1);
  CHECK(dx[0] == 15 * 1 + 15 * 4);
  CHECK(dx[1] == 15 * 2 + 15 * 5);
  CHECK(dx[2] == 15 * 3 + 15 * 6);
  CHECK(std::get<1>(model.evaluate({x.view(), z.view()}))[0] == 0);
}

TEST_CASE("the gradient of the second input alone") {
  SingleRank alone;
  Alone<TrainWithGradientOf<1>> model(TwoAndTwo{}, alone, Seed{1}, shapes);
  set_weights(model);
  const auto x = row({1, 0, 0}), z = row({-1, -4});
  const auto dsum = row({2}), dsquashed = row({1, -1});
  model.forward({x.view(), z.view()});
  const auto [dx, dz] = model.backward({dsum.view(), dsquashed.view()});
  static_assert(std::same_as<decltype(dx), const Nothing>);
  CHECK(dz[0] == 15);
  CHECK(model.gather_gradient("0.weight")[0] == 15);
}

TEST_CASE("what does not fit is refused with its number") {
  SingleRank alone;
  Alone<Train> model(TwoAndTwo{}, alone, Seed{1}, shapes);
  const auto x = row({1, 0, 0}), z = row({-1, -4}), elsewhere = row({1, 2}, {1, 2});
  const auto wrong_input = testing::message_of([&] {
    model.forward({x.view(), elsewhere.view()});
  });
  CHECK(wrong_input.ends_with(
      "TwoAndTwo: the input number 1 is the part of rank 1 of 2, but this is rank 0 of 1: make it "
      "with place_of(ranks) of the model's communicator"));
  model.forward({x.view(), z.view()});
  const auto wrong_gradient = testing::message_of([&] { model.backward({z.view(), z.view()}); });
  CHECK(wrong_gradient.ends_with(
      "TwoAndTwo: the gradient of the output number 0 is a tensor [batch 1, feature 2], but the "
      "output was [batch 1, feature 1]: they must be equal"));
}

TEST_CASE("a drawing has an ellipse for each input and output") {
  SingleRank alone;
  Alone<Train> model(TwoAndTwo{}, alone, Seed{1}, shapes);
  const std::string graph = describe_graph(model, shapes);
  const auto edges = graph.substr(graph.find("  n0 ->"));
  CHECK(graph.find("TwoAndTwo on [batch 1, feature 3] and [batch 1, feature 2]") !=
        std::string::npos);
  CHECK(edges == R"(  n0 -> n2 [label=" Invariant\l"]
  n2 -> n3 [label=" Invariant\l"]
  n1 -> n3 [label=" Invariant\l"]
  n3 -> n4 [label=" Invariant\l"]
  n4 -> n5 [label=" Invariant\l"]
  n4 -> n6 [label=" Invariant\l"]
  n5 -> n7 [label=" Invariant\l"]
  n6 -> n8 [label=" Invariant\l"]
}
)");
}

namespace {

/// Two inputs, the second as it was offered; and around it, a Graph that swaps them.
struct Inside
    : Graph<2, At<RowParallelLinear<3, 2>, 0>, At<Sum, 2, 1>, At<ColumnParallelLinear<2, 3>, 3>> {};
struct Around : Graph<2, At<Tanh, 0>, At<Inside, 1, 2>> {};

}  // namespace

TEST_CASE("a Graph inside another is drawn in a box, and named in errors and parameters") {
  SingleRank alone;
  Model<Around, Context<double, Reference, SingleRank>,
        Ends<Layouts<Invariant, Invariant>, Invariant>>
      model(Around{}, alone, Seed{1}, std::array{shapes[1], shapes[0]});
  std::string names;
  model.visit_parameters([&](auto& one) { names += one.name + ' '; });
  CHECK(names == "1.0.weight 1.0.bias 1.2.weight 1.2.bias ");
  const std::string graph = describe_graph(model, std::array{shapes[1], shapes[0]});
  CHECK(graph.find("Inside\"") != std::string::npos);
  CHECK(graph.find("  n1 -> n3 [") != std::string::npos);  // the second input to its first part
  CHECK(graph.find("  n2 -> n4 [") != std::string::npos);  // tanh of the first one to the sum
  Shape two = shapes[1];
  two[0].units = 2;
  const Tensor<double, Invariant> a(two, {0, 1}), b(shapes[0], {0, 1});
  const std::string message = testing::message_of([&] { model.forward({a.view(), b.view()}); });
  testing::check_mentions(message, {"Around / 1: ", "Inside / 1: Sum: "});
}

TEST_CASE("a Graph inside another goes backward in two parts on a mesh") {
  run_mesh({.data = 2, .tensor = 2}, [](MeshRanks<ThreadCommunicator>& ranks) {
    using C = Context<double, Reference, MeshRanks<ThreadCommunicator>>;
    Model<Around, C, Ends<Layouts<Invariant, Invariant>, Invariant>> model(
        Around{}, ranks, Seed{1}, std::array{shapes[1], shapes[0]});
    const auto of = [&](std::size_t features) {
      Tensor<double, SamplesOverMesh<Invariant>> x({{Axis::batch, 3}, {Axis::feature, features}},
                                                   ranks.place());
      std::iota(x.data(), x.data() + x.size(), 1.0 + ranks.place()[MeshAxis::data].rank);
      return x;
    };
    const auto a = of(2), b = of(3), dy = of(3);
    const auto gradients = [&](bool in_parts) {
      model.forward({a.view(), b.view()});
      if (in_parts) {
        model.backward_input(dy.view());
        model.backward_parameters(Flight{});
      } else {
        model.backward(dy.view());
      }
      model.settle_gradients();
      const auto here = model.gradients();
      const std::vector<double> all(here.begin(), here.end());
      model.discard_step();
      return all;
    };
    const std::vector<double> expected = gradients(false);
    CHECK(*std::max_element(expected.begin(), expected.end()) > 0);
    CHECK(gradients(true) == expected);
  });
}
