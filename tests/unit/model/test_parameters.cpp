// Parameters by name: walked with their layouts, gathered whole, set from a whole tensor.

#include <doctest/doctest.h>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "ranks/model_observe.hpp"
#include "shardwise/layers/elementwise.hpp"
#include "shardwise/layers/linear.hpp"
#include "shardwise/model/parameter_count.hpp"

using namespace shardwise;
using testing::Data;
using testing::Whole;

namespace {

using Batch = Sharded<Axis::batch>;

struct Block : Sequential<ColumnParallelLinear<6, 5>, Relu, RowParallelLinear<5, 6>> {};
struct Net : Sequential<Linear<split::none, 7, 6>, Repeat<3, Residual<Block>>,
                        ColumnParallelLinear<6, 4, false>> {};

const Shape in{{Axis::batch, 5}, {Axis::feature, 7}};

template <class C>
using NetModel = Model<Net, Context<double, Reference, C>, Ends<Batch, Batch>>;

struct First {};
struct Last {};
/// Layers of a stage that shares the parameters of 65 owners with other stages.
struct SharesMuch {
  SharesMuch() : tied(65) {
    tied.front().tag = &detail::identity_of<First>;
    tied.back().tag = &detail::identity_of<Last>;
  }
  std::uint64_t first_ordinal() const { return 0; }
  const std::vector<detail::TiedOverStages>& tied_over_stages() const { return tied; }

  std::vector<detail::TiedOverStages> tied;
};

const std::map<std::string, std::string> layouts{
    {"0.weight", "Invariant, Replicated"},
    {"0.bias", "Invariant, Replicated"},
    {"1.0.0.weight", "Sharded<output>, Sharded<output>"},
    {"1.0.0.bias", "Sharded<output>, Sharded<output>"},
    {"1.0.2.weight", "Sharded<input>, Sharded<input>"},
    {"1.0.2.bias", "Invariant, Partial"},
    {"1.1.0.weight", "Sharded<output>, Sharded<output>"},
    {"1.1.0.bias", "Sharded<output>, Sharded<output>"},
    {"1.1.2.weight", "Sharded<input>, Sharded<input>"},
    {"1.1.2.bias", "Invariant, Partial"},
    {"1.2.0.weight", "Sharded<output>, Sharded<output>"},
    {"1.2.0.bias", "Sharded<output>, Sharded<output>"},
    {"1.2.2.weight", "Sharded<input>, Sharded<input>"},
    {"1.2.2.bias", "Invariant, Partial"},
    {"2.weight", "Sharded<output>, Sharded<output>"},
};

}  // namespace

TEST_CASE("parameters are walked in model order, with their layouts") {
  run_ranks(3, [](ThreadCommunicator& c) {
    NetModel<ThreadCommunicator> model(c, Seed{1});
    std::vector<std::string> names;
    std::map<std::string, std::string> found;
    std::size_t elements = 0;
    model.visit_parameters([&](auto& p) {
      using P = std::remove_reference_t<decltype(p)>;
      names.push_back(p.name);
      found[p.name] = layout_name<typename P::stored>() + ", " + layout_name<typename P::used>();
      elements += p.value.size();
      CHECK(p.value.size() == p.gradient.size());
      CHECK(p.value.local() == local_shape<typename P::stored>(p.spec.shape, place_of(c)));
    });
    CHECK(found == layouts);
    CHECK(names.size() == layouts.size());
    CHECK(names.front() == "0.weight");
    CHECK(names[2] == "1.0.0.weight");
    CHECK(names.back() == "2.weight");
    CHECK(elements == parameters_of_rank<Ends<Batch, Batch>>(Net{}, place_of(c), in));
    CHECK(model.values().size() >= elements);
    CHECK(model.values().size() == model.gradients().size());
  });
}

TEST_CASE("a Residual of one layer adds nothing to the names of its parameters") {
  SingleRank alone;
  using Alone = Sequential<Residual<Linear<split::none, 4, 4>>, Relu>;
  Model<Alone, Context<double, Reference, SingleRank>> model(alone, Seed{1});
  std::vector<std::string> names;
  model.visit_parameters([&](const auto& p) { names.push_back(p.name); });
  CHECK(names == std::vector<std::string>{"0.weight", "0.bias"});
}

TEST_CASE("what is set is what is gathered, and each rank has its part") {
  for (const int ranks : {1, 2, 3, 8}) {
    CAPTURE(ranks);
    testing::Recorder recorder(ranks);
    run_ranks(ranks, [&](ThreadCommunicator& c) {
      NetModel<ThreadCommunicator> model(c, Seed{1});
      testing::set_parameters(model, Data::reals);
      std::vector<std::string> names;
      model.visit_parameters([&](auto& p) {
        recorder.put(p.name, p.value);
        names.push_back(p.name);
      });
      for (const std::string& name : names)
        recorder.put(name + " gathered", model.gather(name).view());
    });
    const auto o = recorder.take();
    std::size_t number = 0;
    for (const auto* name : {"0.weight", "0.bias", "1.0.0.weight", "1.0.0.bias", "1.0.2.weight",
                             "1.0.2.bias", "1.1.0.weight"}) {
      const std::string text = name;
      const Whole expected =
          testing::elements(Data::reals, testing::number_of_parameter(number++), o[text].size());
      CHECK(o[text] == expected);
      CHECK(o[text + " gathered"] == expected);
    }
    CHECK(o.copies_are_equal);
  }
}

TEST_CASE("a settled gradient is gathered whole") {
  testing::Recorder recorder(3);
  run_ranks(3, [&](ThreadCommunicator& c) {
    NetModel<ThreadCommunicator> model(c, Seed{1});
    testing::set_parameters(model, Data::integers);
    const auto x =
        testing::part_of<double, Batch>(testing::elements(Data::integers, 1, 35), in, place_of(c));
    const Shape out = model.forward(x.view()).global();
    const auto dy =
        testing::part_of<double, Batch>(testing::elements(Data::integers, 2, 20), out, place_of(c));
    model.backward(dy.view());
    model.settle_gradients();
    std::vector<std::string> names;
    model.visit_parameters([&](auto& p) {
      recorder.put(p.name, p.gradient);
      names.push_back(p.name);
    });
    for (const std::string& name : names)
      recorder.put(name + " gathered", model.gather_gradient(name).view());
  });
  const auto o = recorder.take();
  for (const auto& [name, layout] : layouts) {
    CHECK(o[name] == o[name + " gathered"]);
    CHECK(o[name] != Whole(o[name].size()));
  }
}

TEST_CASE("a step begins with gradients anew, and a discarded one leaves none") {
  const auto after = [](auto&& what) {
    SingleRank alone;
    NetModel<SingleRank> model(alone, Seed{1});
    const auto x = testing::part_of<double, Batch>(testing::elements(Data::reals, 1, 35), in, {});
    const auto pass = [&] {
      const Shape out = model.forward(x.view()).global();
      model.backward(
          testing::part_of<double, Batch>(testing::elements(Data::reals, 2, 20), out, {}).view());
    };
    what(model, pass);
    return std::vector<double>(model.gradients().begin(), model.gradients().end());
  };
  const auto once = after([](auto&, auto& pass) { pass(); });
  const auto twice = after([](auto&, auto& pass) { pass(), pass(); });
  CHECK(twice != once);
  CHECK(after([](auto& model, auto& pass) { pass(), model.next_step(), pass(); }) == once);
  CHECK(after([](auto& model, auto& pass) { pass(), model.discard_step(), pass(); }) == once);
}

TEST_CASE("what is written to values() is what forward uses") {
  SingleRank alone;
  NetModel<SingleRank> model(alone, Seed{1});
  const auto x = testing::part_of<double, Batch>(testing::elements(Data::reals, 1, 35), in, {});
  for (double& value : model.values()) value = 0;
  model.values_changed();
  const auto y = model.evaluate(x.view());
  CHECK(Whole(y.data(), y.data() + y.size()) == Whole(y.size()));
}

TEST_CASE("what a stage shares with others counts once, of however many owners") {
  detail::ParameterCounter counter({0, 1});
  counter.tied.begin(SharesMuch{});
  const auto count = [&](auto layer) {
    counter.layer<decltype(layer), Invariant, true>(layer, Shape{{Axis::feature, 2}}, {});
  };
  using Two = Linear<split::none, 2, 3>;  // of 9 elements
  for (int use = 0; use < 2; ++use) count(Borrows<First, Two>{}), count(Borrows<Last, Two>{});
  CHECK(counter.elements == 2 * 9);
}
