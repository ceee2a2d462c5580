#pragma once
// The parts of trials that need a model: training steps, checkpoints, and what they run out of.

#include <cmath>
#include <cstddef>
#include <filesystem>
#include <vector>

#include "shardwise/backend/reference.hpp"
#include "shardwise/checkpoint/training.hpp"
#include "shardwise/comm/communicator.hpp"
#include "shardwise/comm/single_rank.hpp"
#include "shardwise/layers/elementwise.hpp"
#include "shardwise/layers/linear.hpp"
#include "shardwise/model/model.hpp"
#include "shardwise/train/mean_squared_error.hpp"
#include "shardwise/train/sgd.hpp"
#include "shardwise/train/step.hpp"
#include "support/count_allocations.hpp"
#include "support/full_disk.hpp"
#include "trials/bare_call.hpp"
#include "trials/program.hpp"

namespace trials {

/// The thread's allocations fail after the next `allocations`.
class NoMemory {
 public:
  explicit NoMemory(long allocations) { testing::own_allocations_left = allocations; }
  NoMemory(const NoMemory&) = delete;
  NoMemory& operator=(const NoMemory&) = delete;
  ~NoMemory() { testing::own_allocations_left = -1; }
};

struct Mlp : shardwise::Sequential<shardwise::ColumnParallelLinear<6, 10>, shardwise::Relu,
                                   shardwise::RowParallelLinear<10, 4>> {};

/// Where the model of a group computes, and how its ranks talk.
template <shardwise::Communicator C>
struct OnHost {
  using Ranks = C;
  using Backend = shardwise::Reference;
  Ranks& ranks;
  Backend backend{};
};

/// A model of a group in training, alike in all groups. `Where` is made of the group.
template <shardwise::Communicator C, class Where = OnHost<C>>
class Training {
 public:
  explicit Training(C& ranks)
      : where_{ranks},
        model_(Mlp{}, where_.ranks, shardwise::Seed{1}, {}, where_.backend),
        optimizer_(model_, shardwise::Sgd{.learning_rate = 0.1, .momentum = 0.9}) {}

  /// One step, whose loss must be that of one rank.
  void train(std::size_t more_samples) {
    const double wanted = losses_of_one_rank()[steps_];
    const double loss = step(samples + more_samples);
    expect(std::abs(loss - wanted) <= 1e-4 * wanted);
  }

  /// Saves the run, and loads it again.
  void checkpoint(const std::filesystem::path& path) {
    shardwise::save_checkpoint(path, model_, optimizer_, {});
    shardwise::load_checkpoint(path, model_, optimizer_);
    if (model_.run().ranks.rank() == 0) std::filesystem::remove(path);
  }

  /// Calls `perform` without a disk, or without memory.
  template <class Perform>
  static void perform_without(const Program& program, const Perform& perform) {
    if (program.fault == Fault::disk_is_full) {
      const testing::FullDisk disk(0);
      return perform();
    }
    const NoMemory none(program.allocations);
    perform();
  }

 private:
  template <shardwise::Communicator, class>
  friend class Training;

  static constexpr std::size_t samples = 5;

  double step(std::size_t batch) {
    using shardwise::Axis;
    const auto place = shardwise::place_of(model_.run().ranks);
    shardwise::Tensor<float, shardwise::Invariant> x({{Axis::batch, batch}, {Axis::feature, 6}},
                                                     place);
    shardwise::Tensor<float, shardwise::Invariant> y({{Axis::batch, batch}, {Axis::feature, 4}},
                                                     place);
    for (std::size_t i = 0; i < x.size(); ++i)
      x[i] = static_cast<float>((i * 7 + steps_) % 11) / 11;
    for (std::size_t i = 0; i < y.size(); ++i) y[i] = static_cast<float>((i * 5 + steps_) % 3) / 3;
    ++steps_;
    const auto inputs = model_.to_device(x.view());
    const auto targets = model_.to_device(y.view());
    return shardwise::train_step(model_, inputs.view(), targets.view(),
                                 shardwise::MeanSquaredError{}, optimizer_);
  }

  /// The losses of the first steps, of which a program has no more.
  static const std::vector<double>& losses_of_one_rank() {
    static const std::vector<double> losses = [] {
      shardwise::SingleRank alone;
      Training<shardwise::SingleRank> training(alone);
      std::vector<double> all(8);
      for (double& loss : all) loss = training.step(samples);
      return all;
    }();
    return losses;
  }

  using M =
      shardwise::Model<Mlp,
                       shardwise::Context<float, typename Where::Backend, typename Where::Ranks>>;

  Where where_;
  M model_;
  shardwise::Optimizer<shardwise::Sgd, M> optimizer_;
  std::size_t steps_ = 0;
};

}  // namespace trials
