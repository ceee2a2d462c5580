#pragma once
// A run that saves itself in a folder, and goes on from there when its program is started again.

#include <CLI/CLI.hpp>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <optional>
#include <string>

#include "shardwise/checkpoint/checkpoint_folder.hpp"
#include "shardwise/checkpoint/stop_request.hpp"

namespace example {

/// The options --checkpoints and --save-every.
struct CheckpointOptions {
  std::string folder;
  std::uint64_t every = 1000;
};

inline void add_checkpoint_options(CLI::App& app, CheckpointOptions& options) {
  app.add_option("--checkpoints", options.folder,
                 "folder in which the run is saved and from which it goes on; on SIGTERM or "
                 "SIGUSR1 the program saves it and ends with exit code 75");
  app.add_option("--save-every", options.every,
                 "steps from one checkpoint to the next; 0: none but at the end of a stopped run");
}

// begin: checkpoints
/// The checkpoints of a run; does nothing unless a folder was named. The ranks share it.
class Checkpoints {
 public:
  explicit Checkpoints(const CheckpointOptions& options)
      : folder_(options.folder, {.every = options.every}) {
    if (!options.folder.empty()) stop_.emplace({SIGTERM, SIGUSR1});
  }

  /// Sets the run to its newest checkpoint, if there is one, and returns its position.
  template <class M, class Optimizer>
  std::optional<shardwise::RunPosition> resume(M& model, Optimizer& optimizer) const {
    if (!stop_) return std::nullopt;
    const auto loaded = folder_.load_newest(model, optimizer);
    if (!loaded) return std::nullopt;
    if (model.ranks().rank() == 0)
      std::printf("goes on after step %ju\n", static_cast<std::uintmax_t>(model.step() - 1));
    return loaded->position;
  }

  /// Saves the run after a step if that is due, or if a signal came; returns whether to end.
  template <class M, class Optimizer>
  bool save(M& model, Optimizer& optimizer, const shardwise::RunPosition& position) {
    if (!stop_) return false;
    shardwise::HostRanks ranks(model.run());
    const bool ends = stop_->agreed(ranks);
    if (ends || folder_.is_due(model)) folder_.save(model, optimizer, position);
    if (ends && ranks.rank() == 0)
      std::printf("stopped by signal %d after step %ju\n", stop_->signal(),
                  static_cast<std::uintmax_t>(model.step() - 1));
    return ends;
  }

  /// For `main` to return.
  int exit_code() const { return stop_ ? stop_->exit_code() : 0; }

 private:
  shardwise::CheckpointFolder folder_;
  std::optional<shardwise::StopRequest> stop_;
};
// end: checkpoints

}  // namespace example
