#pragma once
// A whole training run in a checkpoint, to resume at any number of ranks.

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "shardwise/checkpoint/weights.hpp"
#include "shardwise/core/compiled.hpp"
#include "shardwise/core/error.hpp"
#include "shardwise/core/names.hpp"
#include "shardwise/data/sampler.hpp"
#include "shardwise/model/host_ranks.hpp"
#include "shardwise/model/stages.hpp"
#include "shardwise/train/loss_scaler.hpp"
#include "shardwise/train/optimizer.hpp"

namespace shardwise {

/// The state of a run outside the model and its optimizer.
struct RunPosition {
  DistributedSampler::State sampler{};  ///< default for a run without a sampler
  LossScaler::State loss_scale{};       ///< default for a run without a LossScaler
};

/// The result of load_checkpoint.
struct LoadedCheckpoint {
  RunPosition position;  ///< of the saved run
  /// All metadata of the file: those of the run and of its author.
  std::map<std::string, std::string> metadata;
};

namespace detail {

/// The numbers of a run outside tensors. In the file they are metadata, as text.
struct RunState {
  std::uint64_t step = 0;
  std::uint64_t seed = 0;
  std::string rule;  // the optimizer's, with its number of moments: "AdamW, 2 moments"
  std::uint64_t optimizer_steps = 0;
  double learning_rate = 0;
  RunPosition position{};
};

///@{
/// The shortest text that is read as the same number, and what reads it: false for other texts.
std::string state_text(double number);
bool read_state(const std::string& text, double& out);
///@}

/// Adds the state to the metadata of a file.
void add_state(const RunState& state, std::map<std::string, std::string>& metadata);

/// Reads a RunState.
/// throws   data_error if an entry is missing, not a number, or not a valid state
RunState read_run_state(const TensorFiles& files);

/// With the names of the moments, if their number does not say which they are.
template <UpdateRule Rule>
std::string rule_text(const Rule& rule) {
  std::string text = name_of<Rule>() + ", " + std::to_string(rule.moments()) + " moments";
  if constexpr (requires { rule.moment_names(); }) text += ": " + rule.moment_names();
  return text;
}

/// The parts of the optimizer's state: "optimizer.0.weight.moment1" has the second number of each
/// element of "0.weight".
template <class Context, class O>
std::vector<TensorPart> moment_parts(Run<Context>& run, O& optimizers, const TensorNames& names,
                                     Passing passing) {
  PartsOfModels all;
  const auto add = [&](auto& optimizer) {
    auto& parts = all.emplace_back();
    const std::size_t count = optimizer.rule().moments();
    optimizer.model().visit_stored([&](auto& parameter) {
      const Interval kept = optimizer.kept_of(parameter.slot);
      auto* moments = optimizer.moments_of(parameter.slot);
      for (std::size_t i = 0; i < count; ++i) {
        FileTensor file = in_file(names, parameter.name);
        file.name = optimizer_prefix + file.name + ".moment" + std::to_string(i);
        auto* const first = kept.size == 0 ? nullptr : moments + i;
        add_parts(parts, file, parameter.value, first, count,
                  cuts_moments(optimizer.keep()) ? std::optional(kept) : std::nullopt);
      }
    });
    reach(optimizer.model().backend(), parts);
  };
  on_all_stages(run, [&] { for_each_optimizer(optimizers, add); });
  return parts_of_all_stages(run, all, passing);
}

}  // namespace detail

/// Writes a training run, between two steps, as one checkpoint: the model like save_weights, and
///
///     optimizer.NAME.moment0   the optimizer's state of parameter NAME, split like it
///     __metadata__             step, seed, the optimizer's rule, steps and learning rate,
///                              `position`, and `options.metadata`
///
/// Other options of the optimizer's rule are the program's and are not written. A collective, of
/// all stages of a pipeline: a rank that has several gives its PipelineChunks and its
/// PipelineOptimizer.
/// sends    as save_weights
/// throws   as save_parts; argument_error for another model's optimizer
template <class M, class O>
requires detail::OptimizerOf<O, M>
void save_checkpoint(const std::filesystem::path& path, M& model, O& optimizer,
                     const RunPosition& position = {}, const SaveOptions& options = {}) {
  detail::require_own(model, optimizer, "save_checkpoint");
  auto& run = detail::runs_of(model).first();
  const detail::RunState state{run.step.number,
                               run.seed.value,
                               detail::rule_text(optimizer.rule()),
                               optimizer.steps(),
                               optimizer.rule().learning_rate,
                               position};
  SaveOptions all = options;
  detail::add_state(state, all.metadata);
  HostRanks ranks(run);
  constexpr auto passing = detail::Passing::first;
  const auto of_model = detail::model_parts(model, options.names, passing);
  const auto of_optimizer = detail::moment_parts(run, optimizer, options.names, passing);
  save_parts(path, ranks, detail::joined(of_model, of_optimizer), all);
}

/// Sets model and optimizer to the state of a saved run, at any number of ranks, and discards a
/// step that was begun. Returns the position of its sampler. The run continues as if it had not
/// stopped; at the same number of ranks bit by bit. A collective, of all stages of a pipeline.
/// sends    as load_weights
/// throws   data_error for a file without a run or without its parameters, and for the run of
///          another optimizer; else as load_parts. Model and optimizer are then as before on every
///          rank
template <class M, class O>
requires detail::OptimizerOf<O, M> LoadedCheckpoint load_checkpoint(
    const std::filesystem::path& path, M& model, O& optimizer, const LoadOptions& options = {}) {
  detail::require_own(model, optimizer, "load_checkpoint");
  constexpr auto passing = detail::Passing::each;
  const auto of_model = detail::model_parts(model, options.names, passing);
  auto& run = detail::runs_of(model).first();
  const auto of_optimizer = detail::moment_parts(run, optimizer, options.names, passing);
  HostRanks ranks(run);
  const TensorFiles files = open_checkpoint(path, ranks);
  detail::check_has_parameters(files, of_model);
  const detail::RunState state = detail::read_run_state(files);
  if (state.rule != detail::rule_text(optimizer.rule())) {
    throw data_error({files.name(), ": was trained by another optimizer (", state.rule,
                      ") than is here (", detail::rule_text(optimizer.rule()),
                      "); go on with that one, or begin a new one after load_weights"});
  }
  load_parts(files, ranks, detail::joined(of_model, of_optimizer), options,
             [](const std::string&) { return false; });
  detail::for_each_model(model, [&](auto& one) {
    one.discard_step();
    one.values_changed();
    one.set_step(state.step);
    one.run().seed = Seed{state.seed};
  });
  optimizer.set_steps(state.optimizer_steps);
  optimizer.set_learning_rate(state.learning_rate);
  return {state.position, files.metadata()};
}

}  // namespace shardwise

#ifdef SHARDWISE_INLINE

#include <charconv>
#include <limits>
#include <optional>
#include <system_error>

#include "shardwise/checkpoint/json.hpp"

namespace shardwise::detail {

/// Calls f(key, member) for each.
template <class State, class F>
void visit_state(State& state, F&& f) {
  f("shardwise.step", state.step);
  f("shardwise.seed", state.seed);
  f("shardwise.optimizer", state.rule);
  f("shardwise.optimizer.steps", state.optimizer_steps);
  f("shardwise.optimizer.learning_rate", state.learning_rate);
  f("shardwise.sampler.seed", state.position.sampler.seed);
  f("shardwise.sampler.epoch", state.position.sampler.epoch);
  f("shardwise.sampler.position", state.position.sampler.position);
  f("shardwise.loss_scale", state.position.loss_scale.scale);
  f("shardwise.loss_scale.in_a_row", state.position.loss_scale.in_a_row);
  f("shardwise.loss_scale.skipped", state.position.loss_scale.skipped);
}

inline std::string state_text(const std::string& text) { return text; }

inline std::string state_text(std::uint64_t number) { return std::to_string(number); }

SHARDWISE_INLINE std::string state_text(double number) {
  char text[32];
  const auto [end, code] = std::to_chars(text, text + sizeof text, number);
  return {text, end};
}

inline bool read_state(const std::string& text, std::string& out) {
  out = text;
  return true;
}

inline bool read_state(const std::string& text, std::uint64_t& out) {
  const char* end = text.data() + text.size();
  const auto [last, code] = std::from_chars(text.data(), end, out);
  return code == std::errc() && last == end;
}

SHARDWISE_INLINE bool read_state(const std::string& text, double& out) {
  const std::optional<double> number = json_number(text);
  out = number.value_or(out);
  return number.has_value();
}

SHARDWISE_INLINE void add_state(const RunState& state,
                                std::map<std::string, std::string>& metadata) {
  visit_state(state,
              [&](const char* key, const auto& value) { metadata[key] = state_text(value); });
}

SHARDWISE_INLINE RunState read_run_state(const TensorFiles& files) {
  RunState state;
  visit_state(state, [&files](const char* key, auto& value) {
    const auto found = files.metadata().find(key);
    if (found == files.metadata().end()) {
      throw data_error(
          {files.name(), ": has no ", key,
           " in its metadata, so it holds weights but no run of training; load_weights "
           "loads it"});
    }
    if (!read_state(found->second, value)) {
      throw data_error({files.name(), ": has ", in_quotes(found->second), " as ", key,
                        ", which is no number that can be there"});
    }
  });
  const auto require = [&files](bool fine, const char* what, const auto& value) {
    if (fine) return;
    throw data_error(
        {files.name(), ": its metadata are those of no run: the ", what, " is ", value});
  };
  constexpr std::uint64_t bound = std::uint64_t{1} << 32;
  const std::uint64_t epoch = state.position.sampler.epoch;
  const double scale = state.position.loss_scale.scale;
  require(state.step > 0 && state.step < bound, "step", state.step);
  require(state.optimizer_steps < bound, "number of steps of the optimizer", state.optimizer_steps);
  require(epoch < bound, "epoch", epoch);
  require(state.learning_rate >= 0, "learning rate", state.learning_rate);
  require(scale >= std::numeric_limits<float>::min() && scale <= std::numeric_limits<float>::max(),
          "loss scale", scale);
  return state;
}

}  // namespace shardwise::detail

#endif  // SHARDWISE_INLINE
