// The checks for layers of users pass right ones and name wrong ones, each with what is wrong.

#include <doctest/doctest.h>

#include <array>
#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "shardwise/layers/batch_norm.hpp"
#include "shardwise/layers/convolution.hpp"
#include "shardwise/layers/dropout.hpp"
#include "shardwise/layers/elementwise.hpp"
#include "shardwise/layers/layer_norm.hpp"
#include "shardwise/layers/linear.hpp"
#include "shardwise/model/residual.hpp"
#include "shardwise/model/sequential.hpp"
#include "shardwise/testing/layer_check.hpp"
#include "support/messages.hpp"
#include "unit/testing/wrong_layers.hpp"

using namespace shardwise;
using namespace wrong_layers;
using testing::check_mentions;

namespace {

const Shape rows{{Axis::batch, 3}, {Axis::feature, 7}};
const Shape images{{Axis::batch, 1}, {Axis::channel, 2}, {Axis::height, 5}, {Axis::width, 3}};

const LayerChecks few{.gradients = 3};
const LayerChecks bounded{.exact = false, .gradients = 3};

template <Layout Offered = Invariant, Layout Wanted = Invariant, class Use = TrainWithInputGradient,
          class L>
void passes(const L& layer, const Shape& in, const LayerChecks& checks = few) {
  const CheckReport report = check_layer<Offered, Wanted, Use>(layer, in, checks);
  CHECK_MESSAGE(report.passed(), report.text());
  CHECK(report.text() == "");
  CHECK(report.checked > 5 * in.elements());
}

struct Block : Sequential<ColumnParallelLinear<7, 5>, Gelu, RowParallelLinear<5, 7>> {};

/// A layer, and what must stand in its report.
struct Found {
  std::string report;
  std::vector<std::string> sentences;
};

template <Layout Offered = Invariant, Layout Wanted = Offered, class Use = TrainWithInputGradient,
          class L>
std::string report_of(const L& layer, const LayerChecks& checks = few) {
  return check_layer<Offered, Wanted, Use>(layer, rows, checks).text();
}

constexpr const char* differs = "its backward is not that of its forward. In double, ";
constexpr const char* in_memory = "on one rank alone depends on what its memory held before. Does";

}  // namespace

TEST_CASE("layers of ours pass") {
  passes(ColumnParallelLinear<7, 5>{}, rows);
  passes<Feature, Batch>(RowParallelLinear<7, 5>{}, rows);
  passes<Batch, Batch>(Linear<split::none, 7, 5>{}, rows);
  passes<Batch, Batch>(BatchNorm<7>{}, rows, bounded);
  passes(Conv2d<split::height, 2, 3, kernel(3, {.padding = 1})>{}, images);
}

TEST_CASE("right layers of users pass") {
  for (const init::Rule begins : {init::ones, init::zeros}) {
    passes(Scaled(Wrong::nothing, begins), rows);
    passes<Batch, Batch>(Scaled(Wrong::nothing, begins), rows);
    passes<Feature, Feature>(Scaled(Wrong::nothing, begins), rows);
  }
  passes<Feature, Feature>(Centre(), rows);
  passes<Feature, Feature>(Centre(1, true), rows, bounded);
  passes<Batch, Batch>(Shifted(), rows);
  CHECK(check_layer<Batch, Batch, Train>(Shifted(), rows).passed());
  passes(DividedBySquare{}, rows);
}

TEST_CASE("sums of what is no integer agree up to rounding alone") {
  passes(Residual<Block>{}, rows, bounded);
  passes<Feature, Feature>(LayerNorm<7>{}, rows, bounded);
  passes<Batch, Batch>(Dropout<1, 4>{}, rows, bounded);
  LayerChecks none = bounded;
  none.bound = 0;
  none.ranks = {4};
  CHECK_FALSE(check_layer(Residual<Block>{}, rows, none).passed());
}

TEST_CASE("a wrong backward is found wherever parameters begin, in each layout") {
  const std::string input = std::string(differs) + "input, element ";
  const std::string factor = std::string(differs) + "factor, element ";
  const std::pair<Wrong, std::string> wrong[] = {{Wrong::dx_lacks_factor, input},
                                                 {Wrong::dx_has_factor_twice, input},
                                                 {Wrong::dx_is_zero, input},
                                                 {Wrong::dx_lacks_buffer, input},
                                                 {Wrong::gradient_lacks_buffer, factor},
                                                 {Wrong::gradient_is_zero, factor},
                                                 {Wrong::gradient_subtracts_later, factor},
                                                 {Wrong::gradient_doubles_later, factor}};
  for (const init::Rule begins : {init::ones, init::zeros})
    for (const auto& [fault, sentence] : wrong) {
      const int what = static_cast<int>(fault);
      CAPTURE(what);
      const Scaled layer(fault, begins);
      check_mentions(report_of<Invariant>(layer),
                     {"Scaled on 1 rank(s), Invariant -> Invariant: " + sentence, "backward gives ",
                      "differences of forward give "});
      check_mentions(report_of<Batch>(layer), {sentence});
      check_mentions(report_of<Feature>(layer), {sentence});
    }
  check_mentions(report_of<Batch>(SavesOutput()), {factor});
  for (const Wrong what : {Wrong::gradient_is_zero, Wrong::gradient_lacks_buffer})
    check_mentions(report_of<Batch, Batch, Train>(Scaled(what)), {factor});
}

TEST_CASE("each law finds a layer that breaks it, and says what to look for") {
  const Found table[] = {
      {report_of(Scaled(Wrong::dx_adds)),
       {"the gradient of the input ", in_memory, "without adding to it"}},
      {report_of(Scaled(Wrong::dx_leaves_out_last)),
       {"the gradient of the input ", in_memory, "without leaving one out?"}},
      {report_of(Scaled(Wrong::y_leaves_out_last)), {"the output ", in_memory}},
      {report_of(Scaled(Wrong::keeps_what_it_hides)),
       {"the output on one rank alone is another one when the same step runs again.",
        "does visit_buffers name all that it keeps"}},
      {report_of(Scaled(Wrong::gradient_replaces)),
       {"a second batch of a step, which is worth nothing, changes the gradient of factor on one "
        "rank alone. Does backward ask frame.write()"}},
      {report_of(Scaled(Wrong::gradient_adds_always)),
       {"changes the gradient of factor on one rank alone. Does backward ask frame.write()"}},
      {report_of(WrongDual{}),
       {"WrongDual on 2 rank(s), Invariant -> Invariant: the gradient of the input is not that of "
        "one rank alone, on integers: element ",
        "is Replicated, and its gradient Partial."}},
      {report_of(BiasOnEveryRank{}),
       {"BiasOnEveryRank on 2 rank(s), Invariant -> Invariant: the output is not that of one rank "
        "alone, on integers: element ",
        "what only one may add to a Partial"}},
      {report_of<Batch>(GradientsOfOwnRows()),
       {"GradientsOfOwnRows on 2 rank(s), Sharded<batch> -> Sharded<batch>: the gradient of factor "
        "is not that of one rank alone, on integers: ",
        "on random numbers: ", "Is its ParameterUse true?"}},
      {report_of(Scaled(Wrong::y_of_rank), bounded),
       {"Scaled on 2 rank(s), Invariant -> Invariant: the output on rank 1 is not that of rank 0 "
        "bit by bit, and all should hold the same."}},
      {report_of(Scaled(Wrong::next_step_of_rank), bounded),
       {"the output of the next step on rank 1 is not that of rank 0 bit by bit"}},
      {report_of(Scaled(Wrong::evaluates_of_rank), bounded),
       {"the output in evaluation on rank 1 is not that of rank 0 bit by bit"}},
      {report_of<Batch>(Scaled(Wrong::buffer_of_own_rows)),
       {"Scaled on 2 rank(s), Sharded<batch> -> Sharded<batch>: level is not that of one rank "
        "alone, on integers: element 0 is ",
        "where all ranks' sum is needed?"}},
      {report_of<Feature>(Centre(0)),
       {"Centre on 1 rank(s), Sharded<feature> -> Sharded<feature>: it sends other than planned, "
        "in forward: collective 0 is nothing more, and planned is all_reduce(3 x float64)"}},
      {report_of<Feature>(Centre(2)),
       {"in forward: collective 1 is all_reduce(3 x float64), and planned is nothing"}},
      {report_of<Feature>(Centre(1, true)),
       {"is not that of one rank alone, on integers: element ",
        "The two differ by no more than rounding.", "set .exact = false"}},
      {report_of(Scaled(Wrong::throws_on_one_rank)),
       {"Scaled on 3 rank(s): rank 1: ", "this rank will not"}},
  };
  for (const Found& one : table) check_mentions(one.report, one.sentences);
}

TEST_CASE("on a mesh a layer is found that takes its slice for the batch") {
  DividesBySamples layer;
  CHECK(check_layer({.data = 2, .tensor = 2}, layer, rows, bounded).text() == "");
  layer.is_wrong = true;
  CHECK(check_layer(layer, rows, bounded).text() == "");
  check_mentions(check_layer({.data = 2, .tensor = 2}, layer, rows, bounded).text(),
                 {"DividesBySamples on the mesh data=2,tensor=2, ",
                  ": the output is not that of one rank alone, on "});
  check_mentions(
      check_layer({.replica = 2}, CountsByRank{}, rows, bounded).text(),
      {": count on rank 1 is not that of rank 0 bit by bit along replica, and all should "
       "hold the same."});
  check_mentions(check_layer({.pipeline = 2}, layer, rows).text(), {"pipeline"});
}

TEST_CASE("two numbers that differ by rounding alone do not look equal") {
  const std::string text = report_of<Feature>(Centre(1, true));
  const auto behind = [&](const std::string& word, std::size_t from) {
    return text.substr(text.find(word, from) + word.size());
  };
  const std::size_t element = text.find(": element ");
  REQUIRE(element != std::string::npos);
  const std::string here = behind(" is ", element), alone = behind(", and ", element);
  CHECK(here.substr(0, here.find(' ')) != alone.substr(0, alone.find(' ')));
}

TEST_CASE("a layer that adds to dx is told nothing of layouts") {
  const std::string text = report_of(Scaled(Wrong::dx_adds));
  CHECK(text.find("layouts") == std::string::npos);
  CHECK(text.find('\n') == std::string::npos);
}

TEST_CASE("all ranks get the report of the first that has found something") {
  std::array<CheckReport, 3> reports;
  run_ranks(3, [&](ThreadCommunicator& ranks) {
    reports[static_cast<std::size_t>(ranks.rank())] =
        check_layer(ranks, WrongDual{}, rows, {.gradients = 1});
  });
  CHECK_FALSE(reports[0].passed());
  for (const CheckReport& report : reports) CHECK(report.failures == reports[0].failures);
}

TEST_CASE("a report of nothing has not passed") {
  CHECK_FALSE(CheckReport{}.passed());
  CHECK(CheckReport{}.text() == "nothing was checked");
  CHECK_THROWS_AS(CheckReport{}.require(), check_error);
}

TEST_CASE("two parameters of one name are refused when a model is made") {
  for (const Shifted& layer : {Shifted({"a", "b", "a"}), Shifted({"b", "a", "a"})})
    check_mentions(report_of(layer),
                   {"Shifted", " has two parameters named 'a', so that", "a name of its own"});
}
