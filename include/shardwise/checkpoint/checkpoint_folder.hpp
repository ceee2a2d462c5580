#pragma once
// A folder of checkpoints of one run: one every N steps, of which the newest K stay.

#include <charconv>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <limits>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "shardwise/checkpoint/checksum.hpp"
#include "shardwise/checkpoint/save_parts.hpp"
#include "shardwise/checkpoint/tensor_files.hpp"
#include "shardwise/checkpoint/training.hpp"
#include "shardwise/core/compiled.hpp"
#include "shardwise/core/error.hpp"
#include "shardwise/core/file.hpp"
#include "shardwise/model/agree.hpp"
#include "shardwise/model/host_ranks.hpp"
#include "shardwise/model/stages.hpp"
#include "shardwise/train/optimizer.hpp"

namespace shardwise {

/// Options of a CheckpointFolder, the same on all ranks.
struct CheckpointFolderOptions {
  std::uint64_t every = 0;  ///< a checkpoint is due after so many steps; 0: never
  std::size_t keep = 2;     ///< how many whole checkpoints stay, at least 1
  /// Called on rank 0 with a sentence for each checkpoint that is passed over; without it, the
  /// sentence goes to standard error.
  std::function<void(const std::string&)> tell{};
};

/// The checkpoints of one run. That of 1,200 steps is "step-000001200.safetensors", in one file or
/// several, as `save_checkpoint` writes it. One program at a time uses a folder.
class CheckpointFolder {
 public:
  /// `folder` need not exist.
  /// throws   argument_error if none are to stay
  explicit CheckpointFolder(std::filesystem::path folder, CheckpointFolderOptions options = {});

  /// The path of the checkpoint after `steps` steps.
  std::filesystem::path path_after(std::uint64_t steps) const { return folder_ / name_of(steps); }

  /// Whether a checkpoint is due now, between two steps of the model.
  template <class M>
  bool is_due(M& model) const {
    const std::uint64_t steps = model.step() - 1;
    return options_.every > 0 && steps > 0 && steps % options_.every == 0;
  }

  /// Saves a run between two steps, and then removes what is older than the newest K whole
  /// checkpoints: other checkpoints, and files of saves that did not end. Files with other names,
  /// and checkpoints after more steps than this one, stay. A collective.
  /// sends    as save_checkpoint, and two agreements of all ranks
  /// throws   as save_checkpoint; data_error if the folder cannot be made or listed
  template <class M, class O>
  requires detail::OptimizerOf<O, M>
  void save(M& model, O& optimizer, const RunPosition& position,
            const SaveOptions& options = {}) const {
    auto& run = detail::runs_of(model).first();
    HostRanks ranks(run);
    detail::on_all_ranks(ranks, [&] {
      if (ranks.rank() == 0) make_folder(folder_);
    });
    const std::uint64_t steps = run.step.number - 1;
    save_checkpoint(path_after(steps), model, optimizer, position, options);
    detail::on_all_ranks(ranks, [&] {
      if (ranks.rank() == 0) remove_older_than(steps);
    });
  }

  /// Loads the newest checkpoint that is whole, and returns what load_checkpoint returns; nothing
  /// if the folder has no checkpoint. One that is damaged (rank 0 cannot open it, it has no valid
  /// header, a file is missing or too short, or a tensor is not what its checksum says) is passed
  /// over with a sentence. A collective.
  /// sends    for each checkpoint that it tries: as load_checkpoint, one agreement of all ranks,
  /// and
  ///          one int64 of rank 0
  /// throws   data_error if all are damaged, or if the folder cannot be listed. Otherwise as
  ///          load_checkpoint for the newest that is whole: one of another model or optimizer, or
  ///          that another rank cannot open, is an error, and is not passed over. Model and
  ///          optimizer are then as before
  template <class M, class O>
  requires detail::OptimizerOf<O, M> std::optional<LoadedCheckpoint> load_newest(
      M& model, O& optimizer, const LoadOptions& options = {})
  const {
    detail::require_own(model, optimizer, "load_newest");
    HostRanks ranks(detail::runs_of(model).first());
    std::int64_t steps = std::numeric_limits<std::int64_t>::max();
    std::optional<std::string> damage;  // of the one tried last
    for (;;) {
      detail::on_all_ranks(ranks, [&] {
        if (ranks.rank() == 0) steps = newest_before(steps, damage);
      });
      ranks.broadcast(std::span(&steps, 1), 0);
      if (steps == none) return std::nullopt;
      try {
        return load_checkpoint(path_after(static_cast<std::uint64_t>(steps)), model, optimizer,
                               options);
      } catch (const detail::checksum_error& e) {  // on every rank
        damage = e.what();
      }
    }
  }

 private:
  /// All files of one number of steps.
  struct Files {
    std::vector<std::filesystem::path> paths;
    bool is_published = false;  // otherwise they are of a save that did not end
  };
  using Listed = std::map<std::uint64_t, Files, std::greater<>>;  // the newest first
  static constexpr std::int64_t none = -1;

  static std::string name_of(std::uint64_t steps) {
    char text[48];
    std::snprintf(text, sizeof text, "step-%09ju.safetensors", static_cast<std::uintmax_t>(steps));
    return text;
  }

  /// The steps in the name of a file that a save writes; nothing for other names, such as those of
  /// 2^32 and more steps, which no run has.
  static std::optional<std::uint64_t> steps_in(std::string_view name) {
    constexpr std::string_view begin = "step-";
    if (!name.starts_with(begin)) return std::nullopt;
    std::uint64_t steps = 0;
    std::from_chars(name.data() + begin.size(), name.data() + name.size(), steps);
    const std::string stem = std::filesystem::path(name_of(steps)).stem().string();
    const bool is_ours = name.starts_with(stem) && is_ending(name.substr(stem.size()));
    return is_ours && steps >> 32 == 0 ? std::optional(steps) : std::nullopt;
  }

  /// Whether the names of files that a save writes end so, behind the steps.
  static bool is_ending(std::string_view ending) {
    constexpr std::string_view saving = detail::saving_ending;
    if (ending.ends_with(saving)) ending.remove_suffix(saving.size());
    return ending == ".safetensors" || ending == detail::index_path(".safetensors").string() ||
           detail::generation_in(std::string(ending)).has_value();
  }

  /// Makes the folder, and those above it that are not there.
  void make_folder(const std::filesystem::path& folder) const;

  Listed listed() const {
    Listed all;
    std::error_code code;
    std::filesystem::directory_iterator entry(folder_, code);
    if (code == std::errc::no_such_file_or_directory) return all;
    for (; !code && entry != std::filesystem::directory_iterator(); entry.increment(code)) {
      const std::string name = entry->path().filename().string();
      const auto steps = steps_in(name);
      if (!steps) continue;
      Files& files = all[*steps];
      files.paths.push_back(entry->path());
      const std::string whole = name_of(*steps);
      if (name == whole || name == detail::index_path(whole).string()) files.is_published = true;
    }
    if (code) fail("listed", code);
    return all;
  }

  /// The steps of the newest checkpoint after fewer than `bound` steps that looks whole, or `none`
  /// if the folder has no checkpoint. `damage` is that of the checkpoint after `bound` steps.
  /// throws   data_error if all are damaged
  std::int64_t newest_before(std::int64_t bound, std::optional<std::string> damage) const;

  /// Damaged checkpoints do not count among the K: else they could take the place of whole ones.
  void remove_older_than(std::uint64_t saved) const;

  /// Why the checkpoint after `steps` steps cannot be loaded, by its headers and the sizes of its
  /// files; nothing if it looks whole.
  std::optional<std::string> damage_of(std::uint64_t steps) const {
    try {
      const TensorFiles files(path_after(steps));
      return std::nullopt;
    } catch (const data_error& e) {
      return e.what();
    }
  }

  void tell(const std::string& sentence) const {
    if (options_.tell) return options_.tell(sentence);
    std::fprintf(stderr, "shardwise: %s\n", sentence.c_str());
  }

  [[noreturn]] void fail(const char* what, std::error_code code) const {
    throw data_error(
        {"checkpoint folder ", folder_.string(), ": cannot be ", what, ": ", code.message()});
  }

  std::filesystem::path folder_;
  CheckpointFolderOptions options_;
};

}  // namespace shardwise

#ifdef SHARDWISE_INLINE

namespace shardwise {

SHARDWISE_INLINE CheckpointFolder::CheckpointFolder(std::filesystem::path folder,
                                                    CheckpointFolderOptions options)
    : folder_(std::move(folder)), options_(std::move(options)) {
  if (options_.keep == 0) {
    throw argument_error(
        {"CheckpointFolder: keep is 0, so each checkpoint would be removed at "
         "once; keep at least 1"});
  }
}

SHARDWISE_INLINE void CheckpointFolder::make_folder(const std::filesystem::path& folder) const {
  std::error_code code;
  if (std::filesystem::is_directory(folder, code)) return;
  const std::filesystem::path above = folder.parent_path();
  if (!above.empty() && above != folder) make_folder(above);
  if (!folder.has_filename()) return;  // "run/"
  std::filesystem::create_directory(folder, code);
  if (code) fail("made", code);
  detail::sync_folder_of(folder, "checkpoint");
}

SHARDWISE_INLINE std::int64_t CheckpointFolder::newest_before(
    std::int64_t bound, std::optional<std::string> damage) const {
  if (damage) tell(*damage + "; it is passed over");
  for (const auto& [steps, files] : listed()) {
    if (!files.is_published || static_cast<std::int64_t>(steps) >= bound) continue;
    damage = damage_of(steps);
    if (!damage) return static_cast<std::int64_t>(steps);
    tell(*damage + "; it is passed over");
  }
  if (!damage) return none;
  throw data_error({"checkpoint folder ", folder_.string(),
                    ": not one of its checkpoints is whole; the oldest: ", *damage,
                    ". Bring one back from a copy, or remove them to begin anew"});
}

SHARDWISE_INLINE void CheckpointFolder::remove_older_than(std::uint64_t saved) const {
  std::size_t whole = 0;
  for (const auto& [steps, files] : listed()) {
    if (steps > saved) continue;
    if (whole == options_.keep) {
      for (const auto& path : files.paths) detail::remove_file(path);
    } else if (files.is_published && !damage_of(steps)) {
      ++whole;
    }
  }
}

}  // namespace shardwise

#endif  // SHARDWISE_INLINE
