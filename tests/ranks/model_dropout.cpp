// Dropout: one mask, whoever draws it.

#include <doctest/doctest.h>

#include <cmath>
#include <cstddef>

#include "ranks/model_observe.hpp"
#include "shardwise/layers/dropout.hpp"
#include "shardwise/layers/gather_policy.hpp"
#include "shardwise/layers/linear.hpp"

using namespace shardwise;
using testing::any_ranks;
using testing::Observed;
using testing::rank_counts;
using testing::Ranks;
using testing::Whole;

namespace {

using Features = Sharded<Axis::feature>;
using Batch = Sharded<Axis::batch>;
using Sequence = Sharded<Axis::sequence>;

const Shape text{{Axis::batch, 5}, {Axis::sequence, 3}, {Axis::feature, 7}};

/// What dropout makes of ones, or of another number, forward and (of the same again) backward;
/// `passes` batches.
template <class L, class T = double, class Architecture = Dropout<1, 4>>
Observed drop_ones(int ranks, const Shape& in, int passes = 1, std::uint64_t step = 1,
                   double number = 1) {
  testing::Recorder recorder(ranks);
  testing::run_on_ranks(ranks, [&](Ranks& c) {
    Model<Architecture, Context<T, Reference, Ranks>, Ends<L, L>, TrainWithInputGradient> model(
        Architecture{}, c, Seed{3}, in);
    model.set_step(step);
    const auto ones = testing::part_of<T, L>(Whole(in.elements(), number), in, place_of(c));
    const View<const T, dual_t<L>> dy(ones.data(), in, place_of(c));
    for (int pass = 0; pass < passes; ++pass) {
      recorder.put("forward " + std::to_string(pass), model.forward(ones.view()));
      recorder.put("backward " + std::to_string(pass), model.backward(dy));
    }
    recorder.put("evaluated", model.evaluate(ones.view()));
  });
  return recorder.take();
}

double share_of_zeros(const Whole& values) {
  double zeros = 0;
  for (const double v : values) zeros += v == 0 ? 1 : 0;
  return zeros / static_cast<double>(values.size());
}

}  // namespace

TEST_CASE("what is kept is scaled, what is dropped is zero, backward as forward") {
  const Shape in{{Axis::batch, 100}, {Axis::feature, 100}};
  const auto o = drop_ones<Invariant>(1, in);
  for (const double v : o["forward 0"]) CHECK((v == 0 || v == 4.0 / 3));
  // Six standard errors of a share of 10,000.
  CHECK(std::abs(share_of_zeros(o["forward 0"]) - 0.25) < 6 * std::sqrt(0.25 * 0.75) / 100);
  CHECK(o["backward 0"] == o["forward 0"]);
  CHECK(o["evaluated"] == Whole(10000, 1.0));
}

TEST_CASE("an element is kept where its uniform number is not below the probability") {
  const Shape in{{Axis::batch, 11}, {Axis::feature, 91}};
  const RandomStream stream(Seed{3}, 0, 1);
  Whole kept(in.elements());
  for (std::size_t i = 0; i < kept.size(); ++i)
    kept[i] = static_cast<double>(stream.uniform(i)) >= 0.25 ? 4.0 / 3 : 0;
  for (const int ranks : rank_counts({1, 3, 8}))
    CHECK(drop_ones<Batch>(ranks, in)["forward 0"] == kept);
  CHECK(drop_ones<Features>(any_ranks(2), in)["forward 0"] == kept);
}

TEST_CASE("all ranks together draw the mask of one, replicated or split along any axis") {
  const Whole one = drop_ones<Invariant>(1, text)["forward 0"];
  for (const int ranks : rank_counts({1, 2, 3, 4, 8})) {
    CAPTURE(ranks);
    const auto check = [&](const Observed& o) {
      CHECK(o["forward 0"] == one);
      CHECK(o["backward 0"] == one);
      CHECK(o.copies_are_equal);
    };
    check(drop_ones<Invariant>(ranks, text));
    check(drop_ones<Batch>(ranks, text));
    check(drop_ones<Sequence>(ranks, text));
    check(drop_ones<Features>(ranks, text));
    const auto replicated =
        drop_ones<Invariant, double, Sequential<To<Replicated>, Dropout<1, 4>>>(ranks, text);
    CHECK(replicated["forward 0"] == one);
  }
}

TEST_CASE("all dtypes draw the same mask") {
  const Whole one = drop_ones<Invariant, double>(1, text)["forward 0"];
  const Whole coarse = drop_ones<Features, bf16>(any_ranks(3), text)["forward 0"];
  bool equal = true;
  for (std::size_t i = 0; i < one.size(); ++i) equal = equal && (one[i] == 0) == (coarse[i] == 0);
  CHECK(equal);
}

TEST_CASE("two batches of a step draw the mask of one batch of both") {
  Shape both = text;
  both[0].units = 10;
  const Whole whole = drop_ones<Invariant>(1, both)["forward 0"];
  for (const int ranks : rank_counts({1, 3, 4})) {
    CAPTURE(ranks);
    const auto check = [&](const Observed& o) {
      Whole joined = o["forward 0"];
      joined.insert(joined.end(), o["forward 1"].begin(), o["forward 1"].end());
      CHECK(joined == whole);
      CHECK(o["backward 1"] == o["forward 1"]);
    };
    check(drop_ones<Invariant>(ranks, text, 2));
    check(drop_ones<Batch>(ranks, text, 2));
    check(drop_ones<Features>(ranks, text, 2));
  }
}

TEST_CASE("steps and layers draw masks of their own, and a step draws its mask again") {
  const Whole first = drop_ones<Invariant>(any_ranks(2), text)["forward 0"];
  CHECK(drop_ones<Invariant>(any_ranks(2), text, 1, 2)["forward 0"] != first);
  CHECK(drop_ones<Invariant>(any_ranks(2), text, 1, 1)["forward 0"] == first);
  using Twice = Sequential<Dropout<1, 4>, Dropout<1, 4>>;
  const Whole twice = drop_ones<Invariant, double, Twice>(any_ranks(2), text)["forward 0"];
  // Equal masks would leave 3/4 of the elements, independent ones 9/16.
  CHECK(share_of_zeros(twice) > share_of_zeros(first));
}

TEST_CASE("a mask does not change when a redistribution is put in") {
  const Whole one = drop_ones<Invariant>(1, text)["forward 0"];
  using Moved = Sequential<To<Features>, To<Sequence>, Dropout<1, 4>>;
  CHECK(drop_ones<Invariant, double, Moved>(any_ranks(3), text)["forward 0"] == one);
}

TEST_CASE("nothing is dropped with probability zero") {
  CHECK(drop_ones<Invariant, double, Dropout<0, 1>>(any_ranks(2), text)["forward 0"] ==
        Whole(text.elements(), 1.0));
}

namespace {

using Channels = Sharded<Axis::channel>;
using Rows = Sharded<Axis::height>;
using Planes = ChannelDropout<1, 4>;

const Shape images{{Axis::batch, 50}, {Axis::channel, 6}, {Axis::height, 5}, {Axis::width, 3}};

}  // namespace

TEST_CASE("dropout by channel: whole planes, each with a fate of its own") {
  const Whole y = drop_ones<Invariant, double, Planes>(1, images)["forward 0"];
  double dropped = 0;
  for (std::size_t plane = 0; plane < 300; ++plane) {
    for (std::size_t i = 0; i < 15; ++i) CHECK(y[plane * 15 + i] == y[plane * 15]);
    dropped += y[plane * 15] == 0 ? 1 : 0;
  }
  // Six standard errors of a share of 300.
  CHECK(std::abs(dropped / 300 - 0.25) < 6 * std::sqrt(0.25 * 0.75 / 300));
  CHECK_THROWS_AS(Planes{}.output_shape(text), shape_error);
}

TEST_CASE(
    "dropout by channel is the same wherever images are split, and in two batches as in one") {
  Shape both = images;
  both[0].units = 100;
  const Whole whole = drop_ones<Invariant, double, Planes>(1, both)["forward 0"];
  for (const int ranks : rank_counts({1, 2, 3, 4, 5, 6, 7, 8})) {
    CAPTURE(ranks);
    const auto check = [&](const Observed& o) {
      Whole joined = o["forward 0"];
      CHECK(o["backward 0"] == joined);
      joined.insert(joined.end(), o["forward 1"].begin(), o["forward 1"].end());
      CHECK(joined == whole);
      CHECK(o["evaluated"] == Whole(images.elements(), 1.0));
    };
    check(drop_ones<Batch, double, Planes>(ranks, images, 2));
    check(drop_ones<Channels, double, Planes>(ranks, images, 2));
    check(drop_ones<Rows, double, Planes>(ranks, images, 2));
  }
}

TEST_CASE("what is dropped is 0 whatever it was, forward and backward") {
  const auto check = [](const Whole& of_ones, const Whole& found, double number) {
    REQUIRE(found.size() == of_ones.size());
    CHECK(share_of_zeros(found) > 0);
    for (std::size_t i = 0; i < found.size(); ++i) {
      if (of_ones[i] == 0)
        CHECK(found[i] == 0);
      else
        CHECK((found[i] == number || (std::isnan(found[i]) && std::isnan(number))));
    }
  };
  const Whole elements = drop_ones<Invariant>(1, text)["forward 0"];
  const Whole planes = drop_ones<Invariant, double, Planes>(1, images)["forward 0"];
  for (const double number : {HUGE_VAL, -HUGE_VAL, std::nan("")}) {
    CAPTURE(number);
    const Observed e = drop_ones<Features>(any_ranks(3), text, 1, 1, number);
    const Observed p = drop_ones<Rows, double, Planes>(any_ranks(3), images, 1, 1, number);
    for (const char* pass : {"forward 0", "backward 0"}) {
      check(elements, e[pass], number);
      check(planes, p[pass], number);
    }
  }
}
