// A run that is stopped, saved and resumed goes on as if it had never been stopped: at the same
// number of ranks bit by bit, at another as close as that number of ranks comes anyway.

#include <doctest/doctest.h>

#include <cmath>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "shardwise/checkpoint/checkpoint_folder.hpp"
#include "shardwise/checkpoint/stop_request.hpp"
#include "shardwise/checkpoint/training.hpp"
#include "shardwise/layers/dropout.hpp"
#include "shardwise/layers/elementwise.hpp"
#include "shardwise/layers/linear.hpp"
#include "shardwise/model/model.hpp"
#include "shardwise/train/adamw.hpp"
#include "shardwise/train/cross_entropy.hpp"
#include "shardwise/train/rms_prop.hpp"
#include "shardwise/train/sgd.hpp"
#include "shardwise/train/step.hpp"
#include "support/each_rank.hpp"
#include "support/messages.hpp"
#include "support/temporary_folder.hpp"
#include "support/trained.hpp"
#include "unit/train/rows.hpp"

using namespace testing;

namespace {

struct Mlp
    : Sequential<ColumnParallelLinear<9, 13>, Gelu, Dropout<1, 4>, RowParallelLinear<13, 10>> {};

constexpr std::size_t samples = 20;
constexpr std::size_t batch = 6;  // four batches an epoch, the last one smaller

constexpr AdamW adamw{.learning_rate = 0.05};
constexpr Sgd dampened{.learning_rate = 0.05, .momentum = 0.9, .dampening = 0.5};
constexpr RmsProp rms_prop{
    .learning_rate = 0.01, .epsilon = 0.1, .momentum = 0.5, .centered = true};

/// A run as a program has it: made anew, and gone on with.
template <class P, class Rule>
class Training {
 public:
  Training(ThreadCommunicator& ranks, const Rule& rule, std::uint64_t seed = 3)
      : model_(ranks, Seed{seed}),
        optimizer_(model_, rule),
        sampler_(samples, place_of(ranks), {.batch_size = batch, .seed = Seed{seed + 1}}) {}

  void save(const std::filesystem::path& path) {
    save_checkpoint(path, model_, optimizer_, {.sampler = sampler_.state()});
  }
  void load(const std::filesystem::path& path) {
    sampler_.set_state(load_checkpoint(path, model_, optimizer_).position.sampler);
  }
  void save_in(const CheckpointFolder& folder, const SaveOptions& options = {}) {
    folder.save(model_, optimizer_, {.sampler = sampler_.state()}, options);
  }
  bool load_newest(const CheckpointFolder& folder) {
    const auto loaded = folder.load_newest(model_, optimizer_);
    if (loaded) sampler_.set_state(loaded->position.sampler);
    return loaded.has_value();
  }
  std::uint64_t steps_done() const { return model_.step() - 1; }
  bool is_due(const CheckpointFolder& folder) const { return folder.is_due(model_); }

  /// Steps until `stop` or for `count` steps, with checkpoints in `folder`; returns the losses.
  std::vector<double> steps_until(StopRequest& stop, const CheckpointFolder& folder, int count) {
    HostRanks ranks(model_.run());
    std::vector<double> losses;
    for (bool ends = false; !ends && count-- > 0;) {
      losses.push_back(steps(1).front());
      ends = stop.agreed(ranks);
      if (ends || is_due(folder)) save_in(folder);
    }
    return losses;
  }

  /// Steps with a rate that falls, as a schedule would have it.
  std::vector<double> steps(int count) {
    using T = typename Precision::compute;
    std::vector<double> losses;
    for (int i = 0; i < count; ++i) {
      const auto chosen = sampler_.next().whole;
      const Place place = place_of(model_.ranks());
      Tensor<T, Invariant> x(Shape{{Axis::batch, chosen.size()}, {Axis::feature, 9}}, place);
      Tensor<std::int32_t, Invariant> labels(Shape{{Axis::batch, chosen.size()}}, place);
      for (std::size_t row = 0; row < chosen.size(); ++row) {
        labels[row] = witness::made_label(chosen[row], 10);
        for (std::size_t k = 0; k < 9; ++k) {
          x[row * 9 + k] = static_cast<T>(static_cast<accumulate_t<T>>(
              witness::made(2, std::int64_t{chosen[row]} * 9 + std::int64_t(k))));
        }
      }
      losses.push_back(train_step(model_, x.view(), labels.view(), CrossEntropy{}, optimizer_));
      optimizer_.set_learning_rate(optimizer_.rule().learning_rate * 0.95);
    }
    return losses;
  }

  /// Uses the model, so that packed and rounded copies of its parameters are made. Returns what it
  /// gives for zeros.
  std::vector<double> use() {
    const auto y = model_.evaluate(zeros().view());
    std::vector<double> numbers;
    for (const auto number : y.span()) numbers.push_back(detail::rounded<double>(number));
    return numbers;
  }
  /// Begins a step of two samples and adds one of them, calls f(), and returns the error of the
  /// step's end.
  template <class F>
  std::string interrupted(F&& f) {
    Step step(optimizer_, 2);
    const Tensor<std::int32_t, Invariant> label(Shape{{Axis::batch, 1}}, place_of(model_.ranks()));
    step.add(zeros().view(), label.view(), CrossEntropy{});
    f();
    return message_of<argument_error>([&] { step.finish(); });
  }
  void load_only_weights(const std::filesystem::path& path) { load_weights(path, model_); }

  NamedNumbers parameters() { return parameters_of(model_); }

 private:
  using Precision = typename detail::precision_of<P>::type;

  auto zeros() {
    return Tensor<typename Precision::compute, Invariant>(
        Shape{{Axis::batch, 1}, {Axis::feature, 9}}, place_of(model_.ranks()));
  }

  Model<Mlp, Context<P, Reference, ThreadCommunicator>> model_;
  Optimizer<Rule, Model<Mlp, Context<P, Reference, ThreadCommunicator>>> optimizer_;
  DistributedSampler sampler_;
};

constexpr int before = 6;  // in the middle of the second epoch
constexpr int after = 7;

/// The losses that `f(training)` returns on `size` ranks, and the parameters behind it, as rank 0
/// has them.
template <class P, class Rule, class F>
TrainingResult course(int size, const Rule& rule, F&& f, std::uint64_t seed = 3) {
  return on_each_rank(size, [&](ThreadCommunicator& ranks) -> TrainingResult {
    Training<P, Rule> training(ranks, rule, seed);
    std::vector<double> losses = f(training);
    return {std::move(losses), training.parameters()};
  })[0];
}

template <class P, class Rule>
TrainingResult never_stopped(int size, const Rule& rule) {
  return course<P>(size, rule, [](auto& training) {
    training.steps(before);
    return training.steps(after);
  });
}

template <class P, class Rule>
void save_after(int size, const Rule& rule, const std::filesystem::path& path) {
  course<P>(size, rule, [&](auto& training) {
    const auto losses = training.steps(before);
    training.save(path);
    return losses;
  });
}

/// Into a run of other seeds, which has gone another way.
template <class P, class Rule>
TrainingResult resumed(int size, const Rule& rule, const std::filesystem::path& path) {
  const auto go_on = [&](auto& training) {
    training.steps(1);
    training.use();
    training.load(path);
    return training.steps(after);
  };
  return course<P>(size, rule, go_on, 99);
}

}  // namespace

TEST_CASE("a resumed run is the run that never stopped") {
  const TemporaryFolder folder("shardwise_resume");
  std::map<int, TrainingResult> whole;
  for (const int size : {1, 2, 3, 4, 8}) whole[size] = never_stopped<double>(size, adamw);
  for (const int p : {1, 2, 3, 8}) {
    const auto path = folder.path() / "run.safetensors";
    save_after<double>(p, adamw, path);
    for (const int q : {1, 2, 3, 4, 8}) {
      CAPTURE(p);
      CAPTURE(q);
      const TrainingResult got = resumed<double>(q, adamw, path);
      CHECK(got.losses.size() == after);
      // Rounding alone, grown over thirteen steps: sums over other shards.
      check_near(got, whole[q], p == q ? 0 : 1e-11);
    }
  }
  // The bound is one that a mistake would not keep: one step more or less is far away.
  CHECK(std::abs(whole[1].losses[0] - whole[1].losses[1]) > 1e-3);
}

TEST_CASE("parameters that are wider than what is computed with") {
  using Mixed = Precision<bf16, float>;
  const TemporaryFolder folder("shardwise_resume_mixed");
  const auto path = folder.path() / "run.safetensors";
  for (const int p : {1, 3}) {
    save_after<Mixed>(p, dampened, path);
    CHECK(TensorFiles(path).tensors().at("0.weight").info.dtype == detail::file_dtype_v<float>);
    CHECK(TensorFiles(path).metadata().at("format") == "pt");  // Hugging Face's readers need it
    check_near(resumed<Mixed>(p, dampened, path), never_stopped<Mixed>(p, dampened), 0);
  }
}

TEST_CASE("layers read what was loaded, and a step that was begun before is discarded") {
  using Mixed = Precision<bf16, float>;
  const TemporaryFolder folder("shardwise_resume_begun");
  const auto path = folder.path() / "run.safetensors";
  save_after<Mixed>(2, dampened, path);
  run_ranks(2, [&](ThreadCommunicator& ranks) {
    Training<Mixed, Sgd> weights(ranks, dampened, 99), run(ranks, dampened, 99);
    run.load(path);
    const auto expected = run.use();
    CHECK(weights.use() != expected);
    weights.load_only_weights(path);
    CHECK(weights.use() == expected);
    const auto next = run.steps(1);
    CHECK(contains(run.interrupted([&] { run.load(path); }), "after the step's end"));
    CHECK(run.steps(1) == next);
  });
}

TEST_CASE("an optimizer goes on only with the moments that it has") {
  const TemporaryFolder folder("shardwise_resume_moments");
  const auto path = folder.path() / "run.safetensors";
  save_after<double>(2, rms_prop, path);
  for (const int q : {2, 3, 8}) {
    CAPTURE(q);
    const double bound = q == 2 ? 0 : 1e-11;
    check_near(resumed<double>(q, rms_prop, path), never_stopped<double>(q, rms_prop), bound);
  }
  save_after<double>(2, RmsProp{.centered = true}, path);
  CHECK(
      contains(message_of<data_error>([&] { resumed<double>(2, RmsProp{.momentum = 0.9}, path); }),
               "another optimizer (RmsProp, 2 moments: s, a) than is here (RmsProp, 2 moments: "
               "s, v)"));
}

TEST_CASE("a loss scale goes on where it stood") {
  const auto course = [](LossScaler& scaler, int first, int last) {
    std::vector<double> scales;
    for (int step = first; step < last; ++step) {
      scaler.update(step % 5 == 0);
      scales.push_back(scaler.scale());
    }
    return scales;
  };
  const DynamicLossScale options{.initial = 64, .interval = 3};
  for (int cut = 1; cut <= 9; ++cut) {  // behind 0, 1 and 2 steps in a row
    CAPTURE(cut);
    LossScaler whole(options);
    course(whole, 1, cut);
    LossScaler other(options);
    other.set_state(whole.state());
    CHECK(course(other, cut, 20) == course(whole, cut, 20));
    CHECK(other.state() == whole.state());
    CHECK(other.skipped() == 3);
    CHECK_THROWS_AS(other.set_state({.scale = 0}), argument_error);
    CHECK(other.state() == whole.state());
  }
}

namespace {

/// Ranks of which the first waits, before its part of an all-reduce, for the second to be told.
struct ToldMeanwhile {
  ThreadCommunicator& inner;

  int rank() const { return inner.rank(); }
  int size() const { return inner.size(); }
  template <class T>
  void all_reduce(std::span<const T> in, std::span<T> out, Reduction reduction) {
    if (rank() == 0) inner.barrier();
    inner.all_reduce(in, out, reduction);
  }
  template <class T>
  void broadcast(std::span<T> numbers, int root) {
    inner.broadcast(numbers, root);
  }
};

using Trained = Training<double, AdamW>;

/// Calls f(training) on each of `size` ranks.
template <class F>
void on_ranks(int size, F&& f) {
  run_ranks(size, [&](ThreadCommunicator& ranks) {
    Trained training(ranks, adamw);
    f(training, ranks);
  });
}

const auto handler_of = [](int signal) {
  struct sigaction action {};
  ::sigaction(signal, nullptr, &action);
  return action.sa_handler;
};

}  // namespace

TEST_CASE("a rank that is told to stop after another has asked stops that one, too") {
  const auto before = handler_of(SIGTERM);
  {
    StopRequest stop;
    CHECK((handler_of(SIGTERM) != before));
    run_ranks(2, [&](ThreadCommunicator& inner) {
      ToldMeanwhile ranks{inner};
      CHECK_FALSE(stop.agreed(inner));
      if (inner.rank() == 1) {
        inner.barrier();
        std::raise(SIGTERM);
      }
      CHECK(stop.agreed(ranks));
    });
    CHECK(stop.signal() == SIGTERM);
    CHECK(stop.exit_code() == 75);
    CHECK_THROWS_AS(StopRequest{}, argument_error);
  }
  CHECK((handler_of(SIGTERM) == before));
  CHECK_THROWS_AS(StopRequest({SIGUSR1, SIGKILL}), argument_error);
  CHECK((handler_of(SIGUSR1) == SIG_DFL));
  const StopRequest another{SIGUSR1};  // and nothing is left of those before
  CHECK(another.exit_code() == 0);
}

TEST_CASE("a run that a signal stops goes on at any number of ranks") {
  const TemporaryFolder temporary("shardwise_stopped");
  for (const int p : {1, 3}) {
    const CheckpointFolder folder(temporary.path() / std::to_string(p), {.every = 4});
    StopRequest stop{SIGUSR2};
    on_ranks(p, [&](Trained& training, ThreadCommunicator& ranks) {
      CHECK_FALSE(training.load_newest(folder));
      training.steps_until(stop, folder, before - 1);
      if (ranks.rank() == p - 1) std::raise(SIGUSR2);
      CHECK(training.steps_until(stop, folder, after).size() == 1);
    });
    CHECK(stop.exit_code() == stopped_exit_code);
    for (const int q : {1, 3, 8}) {
      const TrainingResult got = course<double>(q, adamw, [&](auto& training) {
        CHECK(training.load_newest(folder));
        CHECK(training.steps_done() == before);
        return training.steps(after);
      });
      check_near(got, never_stopped<double>(q, adamw), p == q ? 0 : 1e-11);
    }
  }
}

TEST_CASE("a folder keeps the newest whole checkpoints, and files that are not its own") {
  for (const std::uint64_t most : {UINT64_MAX, std::uint64_t{4000}}) {  // one file, and several
    const TemporaryFolder temporary("shardwise_kept");
    const CheckpointFolder folder(temporary.path(), {.every = 2, .keep = 2});
    const std::vector<std::string> others{"notes.txt",
                                          "step-000000001",
                                          "step-1.safetensors",
                                          "step-000000001x.safetensors",
                                          "step-000000001-best.safetensors",
                                          "step-000000001-c-00001-of-00002.safetensors",
                                          "step-000000001-a-1-of-2.safetensors",
                                          "step-000000001-a-00001-of-00002.safetensors.md",
                                          "step-000000001.md",
                                          "step-000000099.safetensors"};
    for (const std::string& name : others) temporary.write(name, "another's");
    const std::vector<std::string> left{"step-000000001.safetensors.saving",
                                        "step-000000001-a-00001-of-00002.safetensors"};
    for (const std::string& name : left) temporary.write(name, "by a save that was killed");
    const auto published = [&] {
      std::vector<std::uint64_t> steps;
      for (std::uint64_t i = 1; i < 20; ++i) {
        const auto path = folder.path_after(i);
        if (std::filesystem::exists(path) || std::filesystem::exists(detail::index_path(path)))
          steps.push_back(i);
      }
      return steps;
    };
    on_ranks(2, [&](Trained& training, ThreadCommunicator& ranks) {
      CHECK_FALSE(training.is_due(folder));
      for (std::uint64_t i = 1; i <= 7; ++i) {
        training.steps(1);
        if (training.is_due(folder)) training.save_in(folder, {.max_shard_bytes = most});
      }
      if (ranks.rank() == 0) CHECK(published() == std::vector<std::uint64_t>{4, 6});
      ranks.barrier();
      if (ranks.rank() == 0) {  // the one of 6 steps is damaged, and does not count
        for (const auto& name : temporary.names())
          if (name.starts_with("step-000000006") && !name.ends_with(".json"))
            temporary.shorten(temporary.path() / name, 1);
      }
      ranks.barrier();
      training.steps(1);
      training.save_in(folder, {.max_shard_bytes = most});
      if (ranks.rank() == 0) CHECK(published() == std::vector<std::uint64_t>{4, 6, 8});
      training.steps(1);
      training.save_in(folder, {.max_shard_bytes = most});
      if (ranks.rank() == 0) CHECK(published() == std::vector<std::uint64_t>{8, 9});
    });
    on_ranks(2,
             [&](Trained& training, ThreadCommunicator& ranks) {  // an earlier one does not count
               training.steps(3);
               training.save_in(folder, {.max_shard_bytes = most});
               if (ranks.rank() == 0) CHECK(published() == std::vector<std::uint64_t>{3, 8, 9});
             });
    for (const std::string& name : others) CHECK(bytes_of(temporary.path() / name) == "another's");
    for (const std::string& name : left)
      CHECK_FALSE(std::filesystem::exists(temporary.path() / name));
  }
}

TEST_CASE("a damaged newest checkpoint is passed over with a sentence, another model's is not") {
  const TemporaryFolder temporary("shardwise_newest");
  std::vector<std::string> told;
  const CheckpointFolder folder(temporary.path(), {.keep = 9, .tell = [&](const std::string& what) {
                                                     told.push_back(what);
                                                   }});
  on_ranks(3, [&](Trained& training, ThreadCommunicator&) {
    for (int i = 0; i < 3; ++i) {
      training.steps(1);
      training.save_in(folder, {.max_shard_bytes = i == 1 ? 4000 : UINT64_MAX});
    }
  });
  const auto newest = [&](int size) {
    std::uint64_t steps = 0;
    on_ranks(size, [&](Trained& training, ThreadCommunicator& ranks) {
      training.load_newest(folder);
      if (ranks.rank() == 0) steps = training.steps_done();
    });
    return steps;
  };
  CHECK(newest(2) == 3);
  // No run has so many steps: the file is another's, and does not hide the run's own.
  std::filesystem::copy(folder.path_after(3), folder.path_after(UINT64_MAX));
  CHECK(newest(2) == 3);
  CHECK(told.empty());
  temporary.shorten(folder.path_after(3), 1);
  for (const int size : {1, 2, 3}) {
    told.clear();
    CHECK(newest(size) == 2);
    REQUIRE(told.size() == 1);
    check_mentions(told[0], {"step-000000003.safetensors: ", "cut short", "it is passed over"});
  }
  std::filesystem::remove(temporary.path() / "step-000000002-a-00002-of-00002.safetensors");
  told.clear();
  CHECK(newest(2) == 1);
  REQUIRE(told.size() == 2);
  check_mentions(told[1], {"step-000000002-a-00002-of-00002.safetensors", "No such file"});

  // What fits another optimizer is whole, and the run begins nowhere else.
  const auto refusals = [&](const auto& rule) {
    return on_each_rank(3, [&](ThreadCommunicator& ranks) {
      Training<double, std::decay_t<decltype(rule)>> training(ranks, rule);
      const auto before = training.parameters();
      std::string text = message_of<data_error>([&] { training.load_newest(folder); });
      CHECK(training.parameters() == before);
      CHECK(training.steps_done() == 0);
      return text;
    });
  };
  for (const std::string& text : refusals(dampened))
    check_mentions(text, {"step-000000001.safetensors", "another optimizer"});
  temporary.write("step-000000001.safetensors", "");
  for (const std::string& text : refusals(adamw))
    check_mentions(text, {"not one of its checkpoints is whole", "has 0 bytes", "begin anew"});
  CHECK_THROWS_AS(CheckpointFolder(temporary.path(), {.keep = 0}), argument_error);
  const CheckpointFolder under_a_file(folder.path_after(1), {});
  on_ranks(2, [&](Trained& training, ThreadCommunicator&) {
    const auto path = folder.path_after(1).string();
    check_mentions(message_of<data_error>([&] { training.save_in(under_a_file); }),
                   {path, "cannot be made"});
    check_mentions(message_of<data_error>([&] { training.load_newest(under_a_file); }),
                   {path, "cannot be listed"});
  });
}
