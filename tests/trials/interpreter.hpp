#pragma once
// Runs a program of trials on one rank of any communicator, with its fault if the rank is at fault.

#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <filesystem>
#include <memory>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "shardwise/comm/communicator.hpp"
#include "shardwise/comm/mark.hpp"
#include "shardwise/core/philox.hpp"
#include "trials/bare_call.hpp"
#include "trials/outcome.hpp"
#include "trials/program.hpp"

namespace trials {

struct Planted {};
struct Left {};

/// One rank of a program. `Training` is that of training.hpp.
template <shardwise::Communicator C, class Training>
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
      // So that ranks do not always come to a step in one order.
      const shardwise::RandomStream random(shardwise::Seed{program_.seed}, i, 0);
      if (random.bits(static_cast<std::uint64_t>(me_)) % 4 == 0) std::this_thread::yield();
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
    std::unique_ptr<Training> training;
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
      case Fault::memory_runs_out:
      case Fault::disk_is_full:
        Training::perform_without(program_, [&] { perform(i, step); });
        return i;
      case Fault::never_comes:
        while (true) std::this_thread::sleep_for(std::chrono::hours(1));
      case Fault::is_killed:
      case Fault::is_stopped:
        // MPICH's launcher loses what a process has printed just before it is killed.
        std::this_thread::sleep_for(std::chrono::milliseconds(500));
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
        return training_of(*group).train(step.elements - program_.steps[number].elements);
      case Act::checkpoint:
        return training_of(*group).checkpoint(file_of(number));
      default: {
        const Members& members = members_[program_.steps[number].group];
        return BareCall<C>{group->ranks, me_, members, number, step}.make();
      }
    }
  }

  static Training& training_of(Group& group) {
    if (!group.training) group.training = std::make_unique<Training>(group.ranks);
    return *group.training;
  }

  /// Of the step's group alone.
  std::filesystem::path file_of(std::size_t number) const {
    const int first = members_[program_.steps[number].group][0];
    return folder_ /
           shardwise::detail::sentence({program_.seed, "-", number, "-", first, ".safetensors"});
  }

  const Program& program_;
  std::filesystem::path folder_;
  int me_;  ///< in the world
  std::vector<Members> members_;
  std::vector<std::optional<Group>> groups_;
};

/// Runs a rank, and calls report(outcome) before its error reaches the communicator.
template <class Training, class C, class Report>
void run_rank(const Program& program, C& world, const std::filesystem::path& folder,
              const Report& report) {
  using End = Outcome::End;
  try {
    shardwise::mark_step(0);
    Interpreter<C, Training>(program, world, folder).run();
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
