#pragma once
// Runs a program of trials on one rank of any communicator, with its fault if the rank is at fault.

#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <filesystem>
#include <memory>
#include <numeric>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "shardwise/backend/reference.hpp"
#include "shardwise/checkpoint/training.hpp"
#include "shardwise/comm/communicator.hpp"
#include "shardwise/comm/mark.hpp"
#include "shardwise/comm/single_rank.hpp"
#include "shardwise/layers/elementwise.hpp"
#include "shardwise/layers/linear.hpp"
#include "shardwise/model/model.hpp"
#include "shardwise/train/mean_squared_error.hpp"
#include "shardwise/train/sgd.hpp"
#include "shardwise/train/step.hpp"
#include "support/count_allocations.hpp"
#include "trials/outcome.hpp"
#include "trials/program.hpp"

namespace trials {

/// Files of this process cannot grow, as on a disk that is full.
class FullDisk {
 public:
  FullDisk() {
    ::getrlimit(RLIMIT_FSIZE, &before_);
    handler_ = std::signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{0, before_.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &limit);
  }
  FullDisk(const FullDisk&) = delete;
  FullDisk& operator=(const FullDisk&) = delete;
  ~FullDisk() {
    ::setrlimit(RLIMIT_FSIZE, &before_);
    std::signal(SIGXFSZ, handler_);
  }

 private:
  rlimit before_{};
  void (*handler_)(int);
};

/// The thread's allocations fail after the next `allocations`.
class NoMemory {
 public:
  explicit NoMemory(long allocations) { testing::own_allocations_left = allocations; }
  NoMemory(const NoMemory&) = delete;
  NoMemory& operator=(const NoMemory&) = delete;
  ~NoMemory() { testing::own_allocations_left = -1; }
};

struct Planted {};
struct Left {};
struct WrongResult {};

struct Mlp : shardwise::Sequential<shardwise::ColumnParallelLinear<6, 10>, shardwise::Relu,
                                   shardwise::RowParallelLinear<10, 4>> {};

/// A model in training, alike in all groups.
template <class C>
struct Training {
  using M = shardwise::Model<Mlp, shardwise::Context<float, shardwise::Reference, C>>;

  M model;
  shardwise::Optimizer<shardwise::Sgd, M> optimizer;
  std::size_t steps = 0;

  explicit Training(C& ranks)
      : model(ranks, shardwise::Seed{1}),
        optimizer(model, shardwise::Sgd{.learning_rate = 0.1, .momentum = 0.9}) {}

  /// The loss of the next step.
  double step(std::size_t samples) {
    using shardwise::Axis;
    const auto place = shardwise::place_of(model.run().ranks);
    shardwise::Tensor<float, shardwise::Invariant> x({{Axis::batch, samples}, {Axis::feature, 6}},
                                                     place);
    shardwise::Tensor<float, shardwise::Invariant> y({{Axis::batch, samples}, {Axis::feature, 4}},
                                                     place);
    for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>((i * 7 + steps) % 11) / 11;
    for (std::size_t i = 0; i < y.size(); ++i) y[i] = static_cast<float>((i * 5 + steps) % 3) / 3;
    ++steps;
    return shardwise::train_step(model, x.view(), y.view(), shardwise::MeanSquaredError{},
                                 optimizer);
  }
};

inline constexpr std::size_t batch = 5;

/// The losses of the first steps on one rank.
inline const std::vector<double>& losses_of_one_rank() {
  static const std::vector<double> losses = [] {
    shardwise::SingleRank alone;
    Training<shardwise::SingleRank> training(alone);
    std::vector<double> all(8);
    for (double& loss : all) loss = training.step(batch);
    return all;
  }();
  return losses;
}

/// One rank of a program.
template <shardwise::Communicator C>
class Interpreter {
 public:
  Interpreter(const Program& program, C& world, std::filesystem::path folder)
      : program_(program),
        folder_(std::move(folder)),
        me_(world.rank()),
        members_(program.groups_of(me_, program.steps.size())) {
    groups_.reserve(program.steps.size() + 1);  // models refer to their group's communicator
    groups_.emplace_back(Group{world, nullptr});
  }

  void run() {
    const bool may_fail = me_ == program_.culprit;
    for (std::size_t i = 0; i < program_.steps.size(); ++i) {
      if (may_fail && i == program_.moment)
        i = perform_with_fault(i);
      else
        perform(i, program_.steps[i]);
    }
    mark(program_.steps.size());
    groups_[0]->ranks.barrier();
    shardwise::mark_step(0);
  }

 private:
  struct Group {
    C ranks;
    std::unique_ptr<Training<C>> training;
  };

  void mark(std::size_t step) const {
    if (program_.marked) shardwise::mark_step(step + 1);
  }

  /// The last step that is done.
  std::size_t perform_with_fault(std::size_t i) {
    const Step step = program_.faulty_step();
    switch (program_.fault) {
      case Fault::throws:
        throw Planted();
      case Fault::leaves:
        throw Left();
      case Fault::skips:
        if (step.act == Act::split) groups_.emplace_back();
        return i;
      case Fault::other_group_first:
        perform(i + 1, program_.steps[i + 1]);
        perform(i, step);
        return i + 1;
      case Fault::memory_runs_out: {
        const NoMemory none(program_.allocations);
        perform(i, step);
        return i;
      }
      case Fault::disk_is_full: {
        const FullDisk disk;
        perform(i, step);
        return i;
      }
      case Fault::never_comes:
        while (true) std::this_thread::sleep_for(std::chrono::hours(1));
      case Fault::is_killed:
      case Fault::is_stopped:
        std::raise(program_.fault == Fault::is_killed ? SIGKILL : SIGSTOP);
        return i;
      default:
        perform(i, step);
        if (program_.steps[i].act == Act::split && step.act != Act::split) groups_.emplace_back();
        return i;
    }
  }

  void perform(std::size_t number, const Step& step) {
    mark(number);
    std::optional<Group>& group = groups_[step.group];
    if (!group) throw Planted();  // the rank has left out the split
    switch (step.act) {
      case Act::barrier:
        return group->ranks.barrier();
      case Act::split: {
        const int member = group->ranks.rank();
        groups_.emplace_back(Group{group->ranks.split(step.color(static_cast<std::size_t>(member)),
                                                      step.reverses() ? -member : member),
                                   nullptr});
        return;
      }
      case Act::train:
        return train(*group, batch + step.elements - program_.steps[number].elements);
      case Act::checkpoint:
        return save_and_load(*group, number);
      default:
        return move(group->ranks, number, step);
    }
  }

  static Training<C>& training_of(Group& group) {
    if (!group.training) group.training = std::make_unique<Training<C>>(group.ranks);
    return *group.training;
  }

  static void train(Group& group, std::size_t samples) {
    Training<C>& training = training_of(group);
    const double wanted = losses_of_one_rank()[training.steps];
    const double loss = training.step(samples);
    expect(std::abs(loss - wanted) <= 1e-4 * wanted);
  }

  void save_and_load(Group& group, std::size_t number) {
    Training<C>& training = training_of(group);
    const std::filesystem::path path =
        folder_ /
        shardwise::detail::sentence({program_.seed, "-", number, "-",
                                     members_[program_.steps[number].group][0], ".safetensors"});
    shardwise::save_checkpoint(path, training.model, training.optimizer, {});
    shardwise::load_checkpoint(path, training.model, training.optimizer);
    if (group.ranks.rank() == 0) std::filesystem::remove(path);
  }

  static void expect(bool right) {
    if (!right) throw WrongResult();
  }

  void move(C& ranks, std::size_t number, const Step& step) {
    using shardwise::Dtype;
    switch (step.dtype) {
      case Dtype::float32:
        return move_of<float>(ranks, number, step);
      case Dtype::float64:
        return move_of<double>(ranks, number, step);
      case Dtype::bfloat16:
        return move_of<shardwise::bf16>(ranks, number, step);
      case Dtype::float16:
        return move_of<shardwise::fp16>(ranks, number, step);
      case Dtype::int32:
        return move_of<std::int32_t>(ranks, number, step);
      case Dtype::int64:
        return move_of<std::int64_t>(ranks, number, step);
      case Dtype::uint8:
        return move_of<std::uint8_t>(ranks, number, step);
    }
  }

  /// What element `i` of rank `rank` is before step `number`: exact in all dtypes, sums too.
  static int value(int rank, std::size_t number, std::size_t i) {
    return static_cast<int>((static_cast<std::size_t>(rank) * 3 + number * 5 + i) % 11);
  }

  /// What element `i` of all ranks becomes.
  static int reduced(const Members& members, const Step& step, std::size_t number, std::size_t i) {
    int all = value(members[0], number, i);
    for (std::size_t m = 1; m < members.size(); ++m) {
      const int one = value(members[m], number, i);
      all = step.reduction == shardwise::Reduction::sum   ? all + one
            : step.reduction == shardwise::Reduction::max ? std::max(all, one)
                                                          : std::min(all, one);
    }
    return all;
  }

  template <class T>
  static std::vector<T> values(int rank, std::size_t number, std::size_t n) {
    std::vector<T> all(n);
    for (std::size_t i = 0; i < n; ++i)
      all[i] = static_cast<T>(static_cast<float>(value(rank, number, i)));
    return all;
  }

  /// `wanted(i)` is what element `i` must be.
  template <class T, class Wanted>
  static void expect_all(const std::vector<T>& values, const Wanted& wanted) {
    for (std::size_t i = 0; i < values.size(); ++i)
      expect(static_cast<float>(values[i]) == static_cast<float>(wanted(i)));
  }

  /// One collective, or a message to the next rank and one from the rank before.
  template <class T>
  void move_of(C& ranks, std::size_t number, const Step& step) {
    const Members& members = members_[program_.steps[number].group];
    const std::size_t size = members.size();
    const auto me = static_cast<std::size_t>(ranks.rank());
    const Counts counts = step.counts(size);
    const std::size_t total = std::accumulate(counts.begin(), counts.end(), std::size_t{0});
    const auto root = static_cast<int>(step.root % size);
    const bool is_root = ranks.rank() == root;
    const auto offset = [&](std::size_t block) {
      return std::accumulate(counts.begin(), counts.begin() + static_cast<std::ptrdiff_t>(block),
                             std::size_t{0});
    };
    const auto sum_of = [&](std::size_t i) { return reduced(members, step, number, i); };
    /// Of all blocks one after the other.
    const auto gathered = [&](std::size_t i) {
      std::size_t block = 0;
      while (i >= counts[block]) i -= counts[block++];
      return value(members[block], number, i);
    };
    switch (step.act) {
      case Act::all_reduce: {
        std::vector<T> data = values<T>(me_, number, step.elements);
        ranks.template all_reduce<T>(data, data, step.reduction);
        return expect_all(data, sum_of);
      }
      case Act::all_gather: {
        const std::vector<T> in = values<T>(me_, number, counts[me]);
        std::vector<T> out(total);
        ranks.template all_gather<T>(in, out, counts);
        return expect_all(out, gathered);
      }
      case Act::reduce_scatter: {
        const std::vector<T> in = values<T>(me_, number, total);
        std::vector<T> out(counts[me]);
        ranks.template reduce_scatter<T>(in, out, counts, step.reduction);
        return expect_all(out, [&](std::size_t i) { return sum_of(offset(me) + i); });
      }
      case Act::broadcast: {
        std::vector<T> data = values<T>(me_, number, step.elements);
        ranks.broadcast(std::span(data), root);
        return expect_all(data, [&](std::size_t i) {
          return value(members[static_cast<std::size_t>(root)], number, i);
        });
      }
      case Act::gather: {
        const std::vector<T> in = values<T>(me_, number, counts[me]);
        std::vector<T> out(is_root ? total : 0);
        ranks.template gather<T>(in, out, counts, root);
        return expect_all(out, gathered);
      }
      case Act::scatter: {
        const std::vector<T> in = values<T>(me_, number, is_root ? total : 0);
        std::vector<T> out(counts[me]);
        ranks.template scatter<T>(in, out, counts, root);
        return expect_all(out, [&](std::size_t i) {
          return value(members[static_cast<std::size_t>(root)], number, offset(me) + i);
        });
      }
      case Act::all_to_all:
        return all_to_all<T>(ranks, members, number, step);
      default: {
        if (size == 1) return;
        const auto next = static_cast<int>((me + 1) % size);
        const auto before = (me + size - 1) % size;
        const std::vector<T> out = values<T>(me_, number, step.elements);
        std::vector<T> in(step.elements);
        ranks.send(std::span<const T>(out), next, static_cast<int>(number));
        ranks.receive(std::span(in), static_cast<int>(before), static_cast<int>(number));
        return expect_all(in, [&](std::size_t i) { return value(members[before], number, i); });
      }
    }
  }

  /// Block r of rank q is as long as block q of rank r.
  template <class T>
  void all_to_all(C& ranks, const Members& members, std::size_t number, const Step& step) {
    const std::size_t size = members.size();
    const auto me = static_cast<std::size_t>(ranks.rank());
    const auto blocks_of = [&](std::size_t member) {
      Counts counts(size);
      for (std::size_t r = 0; r < size; ++r) counts[r] = step.block(member + r);
      return counts;
    };
    const Counts received = blocks_of(me);
    Counts sent = received;
    if (step.moves_count) {
      std::size_t from = 0;
      while (sent[from] == 0) ++from;
      --sent[from];
      ++sent[(from + 1) % size];
    }
    const std::size_t total = std::accumulate(sent.begin(), sent.end(), std::size_t{0});
    const std::vector<T> in = values<T>(me_, number, total);
    std::vector<T> out(total);
    ranks.template all_to_all<T>(in, sent, out, received);
    if (step.moves_count) return;
    std::size_t at = 0;
    for (std::size_t r = 0; r < size; ++r) {
      const Counts theirs = blocks_of(r);
      const std::size_t offset = std::accumulate(
          theirs.begin(), theirs.begin() + static_cast<std::ptrdiff_t>(me), std::size_t{0});
      for (std::size_t i = 0; i < received[r]; ++i, ++at)
        expect(static_cast<float>(out[at]) ==
               static_cast<float>(value(members[r], number, offset + i)));
    }
  }

  const Program& program_;
  std::filesystem::path folder_;
  int me_;  ///< in the world
  std::vector<Members> members_;
  std::vector<std::optional<Group>> groups_;
};

/// Runs a rank, and calls report(outcome) before its error reaches the communicator.
template <class C, class Report>
void run_rank(const Program& program, C& world, const std::filesystem::path& folder,
              const Report& report) {
  using End = Outcome::End;
  try {
    shardwise::mark_step(0);
    Interpreter<C>(program, world, folder).run();
    report(Outcome{End::finished});
  } catch (const Left&) {
    report(Outcome{End::at_fault});
  } catch (const WrongResult&) {
    report(Outcome{End::wrong});
  } catch (const Planted&) {
    report(Outcome{End::at_fault});
    throw;
  } catch (const std::exception& e) {
    report(Outcome{End::told, e.what()});
    throw;
  }
}

}  // namespace trials
