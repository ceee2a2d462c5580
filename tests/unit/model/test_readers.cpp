// Models that read the weights of another model: beside it and each other, on threads of their own,
// they answer what the model alone answers.

#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <csignal>
#include <cstddef>
#include <deque>
#include <memory>
#include <string>
#include <thread>
#include <type_traits>
#include <vector>

#include "ranks/generate.hpp"
#include "shardwise/comm/rank_group.hpp"
#include "shardwise/core/dtype.hpp"
#include "shardwise/layers/batch_norm.hpp"
#include "shardwise/layers/elementwise.hpp"
#include "shardwise/layers/linear.hpp"
#include "shardwise/model/model.hpp"
#include "shardwise/model/sequential.hpp"
#include "shardwise/train/mean_squared_error.hpp"
#include "shardwise/train/optimizer.hpp"
#include "shardwise/train/sgd.hpp"
#include "shardwise/train/step.hpp"
#include "support/messages.hpp"

using namespace shardwise;
using testing::check_mentions;
using testing::message_of;

namespace {

struct Mlp
    : Sequential<ColumnParallelLinear<7, 11>, BatchNorm<11>, Relu, RowParallelLinear<11, 5>> {};
template <class P, class Ranks>
using Net = Model<Mlp, Context<P, Reference, Ranks>>;
using Mixed = Precision<bf16, float>;

Tensor<float, Invariant> rows(std::size_t count, int seed, Place place = {}) {
  Tensor<float, Invariant> made({{Axis::batch, count}, {Axis::feature, 7}}, place);
  float next = static_cast<float>(seed);
  for (float& one : made.span()) one = next = 0.6F - next * 0.75F;
  return made;
}

template <class M>
auto answer(M& model, const Tensor<float, Invariant>& x) {
  using T = typename M::dtype;
  Tensor<T, Invariant> in(x.global(), place_of(model.ranks()));
  std::ranges::transform(x.span(), in.span().begin(),
                         [](float one) { return static_cast<T>(one); });
  const auto y = model.evaluate(in.view()).span();
  return std::vector<float>(y.begin(), y.end());
}

/// Some steps, so that weights and running statistics are no initial ones.
template <class M>
void train(M& model) {
  using T = typename M::dtype;
  const Place place = place_of(model.ranks());
  Tensor<T, Invariant> x({{Axis::batch, 6}, {Axis::feature, 7}}, place);
  Tensor<T, Invariant> target({{Axis::batch, 6}, {Axis::feature, 5}}, place);
  const auto numbers = rows(6, 3);
  std::ranges::transform(numbers.span(), x.span().begin(),
                         [](float one) { return static_cast<T>(one); });
  Optimizer optimizer(model, Sgd{.learning_rate = 0.125});
  for (int i = 0; i < 3; ++i)
    train_step(model, x.view(), target.view(), MeanSquaredError{}, optimizer);
}

const std::vector<int> seeds{1, 2, 3, 4, 5};

}  // namespace

TEST_CASE_TEMPLATE("readers on threads of their own answer as the model alone", P, float, Mixed) {
  SingleRank ranks;
  Net<P, SingleRank> model(ranks, Seed{1});
  train(model);
  std::vector<decltype(answer(model, rows(1, 1)))> right;
  for (const int seed : seeds) right.push_back(answer(model, rows(3, seed)));
  Net<P, SingleRank> other(ranks, Seed{1});
  CHECK(answer(other, rows(3, 1)) != right[0]);

  using Reader = decltype(Model(model));
  static_assert(std::is_same_v<typename Reader::use, ForwardOnly>);
  std::deque<Reader> readers;
  for (int t = 0; t < 4; ++t) readers.emplace_back(model);
  readers.emplace_back(readers[0]);  // a reader of the same weights
  std::atomic<int> wrong = 0, answers = 0;
  std::vector<std::thread> threads;
  const auto ask = [&](auto& one) {
    for (int i = 0; i < 40; ++i)
      for (std::size_t s = 0; s < seeds.size(); ++s) {
        wrong += answer(one, rows(3, seeds[s])) == right[s] ? 0 : 1;
        ++answers;
      }
  };
  for (Reader& reader : readers) threads.emplace_back([&] { ask(reader); });
  ask(model);  // beside them
  for (std::thread& one : threads) one.join();
  CHECK(wrong == 0);
  CHECK(answers == 6 * 40 * 5);
}

TEST_CASE("a model with readers is only evaluated, and trains again when they have ended") {
  SingleRank ranks;
  Net<float, SingleRank> model(ranks, Seed{1}), twin(ranks, Seed{1});
  train(model);
  train(twin);
  const auto weight = model.gather("0.weight");
  Tensor<float, Invariant> dy({{Axis::batch, 3}, {Axis::feature, 5}}, {});
  const auto x = rows(3, 1);
  {
    Model reader(model);
    const std::vector<std::string> words{"Mlp", "1 reader(s) share the weights of this model",
                                         "end them before you train, change, load or save it"};
    check_mentions(message_of<argument_error>([&] { train(model); }), words);
    check_mentions(message_of<argument_error>([&] { model.forward(x.view()); }), words);
    check_mentions(message_of<argument_error>([&] { model.set("0.weight", weight.view()); }),
                   words);
    check_mentions(message_of<argument_error>([&] { model.values_changed(); }), words);
    check_mentions(message_of<argument_error>([&] { model.next_step(); }), words);
    check_mentions(message_of<argument_error>([&] { model.gradients_written(); }), words);
    check_mentions(message_of<argument_error>([&] { model.visit_parameters([](auto&) {}); }),
                   words);
    check_mentions(message_of<argument_error>([&] { model.visit_stored([](auto&) {}); }), words);
    check_mentions(message_of<argument_error>([&] { model.visit_buffers([](auto&) {}); }), words);
    const std::vector<std::string> of_reader{"Mlp", "reads the weights of another one"};
    check_mentions(message_of<argument_error>([&] { reader.set("0.weight", weight.view()); }),
                   of_reader);
    check_mentions(message_of<argument_error>([&] { reader.visit_parameters([](auto&) {}); }),
                   of_reader);
    CHECK(answer(reader, x) == answer(model, x));
    CHECK(reader.gather("0.weight").span()[3] == weight.span()[3]);
  }
  CHECK(answer(model, x) == answer(twin, x));
  train(model);
  train(twin);
  CHECK(answer(model, x) == answer(twin, x));
  Model reader(model);
  CHECK(answer(reader, x) == answer(twin, x));
}

TEST_CASE("a reader cannot be made in a call of another thread") {
  SingleRank ranks;
  Net<float, SingleRank> model(ranks, Seed{1});
  std::string message;
  model.visit_parameters([&](auto&) {
    std::thread([&] { message = message_of<argument_error>([&] { Model reader(model); }); }).join();
  });
  check_mentions(message, {"in a call of another thread"});
  model.next_step();  // there is no reader
}

TEST_CASE("a model that ends before its readers ends the process, and says why") {
  std::array<int, 2> ends{};
  REQUIRE(pipe(ends.data()) == 0);
  const pid_t child = fork();
  if (child == 0) {
    std::signal(SIGABRT, SIG_DFL);
    dup2(ends[1], STDERR_FILENO);
    SingleRank ranks;
    auto model = std::make_unique<Net<float, SingleRank>>(ranks, Seed{1});
    Model reader(*model);
    model.reset();
    _exit(0);
  }
  close(ends[1]);
  std::string errors;
  std::array<char, 512> piece{};
  for (ssize_t got; (got = read(ends[0], piece.data(), piece.size())) > 0;)
    errors.append(piece.data(), static_cast<std::size_t>(got));
  close(ends[0]);
  int status = 0;
  CHECK(waitpid(child, &status, 0) == child);
  CHECK(WIFSIGNALED(status));
  check_mentions(errors, {"shardwise: a Model ends before the readers that share its weights"});
}

TEST_CASE("two groups of kept ranks share the parts of one model") {
  for (int size = 1; size <= 4; ++size) {
    CAPTURE(size);
    using Split = Net<float, ThreadCommunicator>;
    SingleRank alone;
    Net<float, SingleRank> one(alone, Seed{1});
    train(one);
    RankGroup group(size, [](ThreadCommunicator& ranks) {
      auto model = std::make_unique<Split>(ranks, Seed{1});
      train(*model);
      return model;
    });
    std::vector<Split*> parts(static_cast<std::size_t>(size));
    group.call(
        [&](auto& model) { parts[static_cast<std::size_t>(model->ranks().rank())] = model.get(); });
    std::vector<std::vector<float>> right;  // of the split model, without readers
    for (const int seed : seeds)
      right.push_back(group.call([&](auto& model) { return answer(*model, rows(3, seed)); }));
    for (std::size_t i = 0; i < right[0].size(); ++i)
      CHECK(right[0][i] == doctest::Approx(answer(one, rows(3, 1))[i]).epsilon(1e-4));

    RankGroup readers(size, [&](ThreadCommunicator& ranks) {
      return Model(*parts[static_cast<std::size_t>(ranks.rank())], ranks);
    });
    std::atomic<int> wrong = 0;
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t) {
      threads.emplace_back([&, t] {
        for (int i = 0; i < 20; ++i)
          for (std::size_t s = 0; s < seeds.size(); ++s) {
            const auto x = rows(3, seeds[s]);
            const auto y = t % 2 == 0
                               ? readers.call([&](auto& reader) { return answer(reader, x); })
                               : group.call([&](auto& model) { return answer(*model, x); });
            wrong += y == right[s] ? 0 : 1;
          }
      });
    }
    for (std::thread& thread : threads) thread.join();
    CHECK(wrong == 0);
  }
}

TEST_CASE("readers on wrong ranks are refused") {
  using Split = Net<float, ThreadCommunicator>;
  run_ranks(2, [](ThreadCommunicator& ranks) {
    Split model(ranks, Seed{1});
    check_mentions(
        message_of<argument_error>([&] { Model reader(model); }),
        {"Mlp", "a reader on the threads of its model", "another run_ranks or RankGroup"});
    ThreadCommunicator part = ranks.split(0, ranks.rank());
    check_mentions(message_of<argument_error>([&] { Model reader(model, part); }),
                   {"a reader on the threads of its model"});
    run_ranks(1, [&](ThreadCommunicator& single) {
      check_mentions(
          message_of<argument_error>([&] { Model reader(model, single); }),
          {"a reader on rank 0 of 1 of a model on rank", "only on the same rank of equally many"});
    });
    model.next_step();
  });
}

TEST_CASE("threads of a program ask ranks that are kept, and a model of their own") {
  const auto x = rows(3, 1);
  // begin: group
  RankGroup group(3, [](ThreadCommunicator& ranks) {  // on the thread of each rank
    return Net<float, ThreadCommunicator>(ranks, Seed{1});
  });
  const std::vector<float> split = group.call([&](auto& model) {  // on every rank
    Tensor<float, Invariant> in(x.global(), place_of(model.ranks()));
    std::ranges::copy(x.span(), in.span().begin());
    const auto y = model.evaluate(in.view()).span();
    return std::vector<float>(y.begin(), y.end());  // of rank 0
  });
  // end: group

  SingleRank alone;
  Net<float, SingleRank> model(alone, Seed{1});
  std::vector<std::vector<float>> answers(2);
  // begin: readers
  std::deque<decltype(Model(model))> readers;
  std::vector<std::thread> threads;
  for (std::vector<float>& mine : answers) {
    auto& reader = readers.emplace_back(model);  // its own memory, the weights of the model
    threads.emplace_back([&] {
      const auto y = reader.evaluate(x.view()).span();
      mine.assign(y.begin(), y.end());
    });
  }
  for (std::thread& one : threads) one.join();
  // end: readers
  for (const std::vector<float>& one : answers) {
    CHECK(one == answer(model, x));
    for (std::size_t i = 0; i < one.size(); ++i)
      CHECK(one[i] == doctest::Approx(split[i]).epsilon(1e-5));
  }
}

TEST_CASE("readers write text at the same time, each with a cache of its own") {
  using Writer = testing::text::Writer<float, 0, Reference, SingleRank>;
  SingleRank ranks;
  Writer model(ranks);
  const auto write = [](auto& net, std::int32_t first) {
    Generator generator(net, {.sequences = 1, .tokens = 12}, {});
    const std::vector<std::int32_t> prompt{first, 3};
    generator.add(prompt);
    std::vector<std::int32_t> text;
    for (int i = 0; i < 8; ++i) text.push_back(generator.step()[0].id);
    return text;
  };
  std::vector<std::vector<std::int32_t>> right, written(4);
  for (std::int32_t i = 0; i < 4; ++i) right.push_back(write(model, i));
  std::deque<decltype(Model(model))> readers;
  for (int i = 0; i < 4; ++i) readers.emplace_back(model);
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < 4; ++i)
    threads.emplace_back([&, i] { written[i] = write(readers[i], static_cast<std::int32_t>(i)); });
  for (std::thread& one : threads) one.join();
  CHECK(written == right);
}

TEST_CASE("a reader takes no memory for weights") {
  struct Wide : Sequential<ColumnParallelLinear<300, 400>, Relu, RowParallelLinear<400, 300>> {};
  SingleRank ranks;
  Model<Wide, Context<float, Reference, SingleRank>> model(ranks, Seed{1});
  Model reader(model);
  CHECK(model.run().pool.reserved() > 2 * 300 * 400 * sizeof(float));
  CHECK(reader.run().pool.reserved() < 10'000);
  CHECK(reader.values().data() == model.values().data());
}

TEST_CASE("a reader is not made while a step of its model is under way") {
  SingleRank ranks;
  Net<float, SingleRank> model(ranks, Seed{1});
  Optimizer optimizer(model, Sgd{});
  const auto x = rows(3, 1);
  const Tensor<float, Invariant> target({{Axis::batch, 3}, {Axis::feature, 5}}, {});
  const auto make = [&] { Model reader(model); };
  {
    Step step(optimizer, 3);
    step.add(x.view(), target.view(), MeanSquaredError{});
    check_mentions(message_of<argument_error>(make), {"step is under way, which changes"});
    step.finish();
  }
  make();
  model.forward(x.view());
  model.backward(target.view());
  model.settle_gradients();
  check_mentions(message_of<argument_error>(make), {"step is under way, which changes"});
  optimizer.end_step();
  make();
}
