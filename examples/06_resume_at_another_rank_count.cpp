// A run is saved, and resumed at another number of ranks.
//
//     3 ranks              one file                          2 ranks
//                  ┌──────────────────────────┐
//     [ W1, 0 ] ─> │ header: names and shapes │ ─> [ W1, first half  ]
//     [ W1, 1 ] ─> │ W1  0  1  2              │
//     [ W1, 2 ] ─> │ W2  0  1  2              │ ─> [ W1, second half ]
//                  │ moments, step, seed, ... │
//                  └──────────────────────────┘
//
// Each rank writes and reads only its own part of each tensor. Resumed at the same number of ranks,
// the run repeats the same bits; at another number, sums round in another order. Also built by nvcc
// as gpu_resume_at_another_rank_count, which computes on GPUs with --device cuda.
//
// test: -s 3 -r 2
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "shardwise/checkpoint/training.hpp"
#include "shardwise/data/sampler.hpp"
#include "shardwise/shardwise.hpp"
#include "support/device.hpp"
#include "support/image_batch.hpp"
#include "support/synthetic_images.hpp"

namespace sw = shardwise;

namespace {

struct Mlp : sw::Sequential<sw::ColumnParallelLinear<784, 100>, sw::Relu, sw::Dropout<1, 4>,
                            sw::RowParallelLinear<100, 10>> {};

/// The whole state of a run on one rank.
template <class Ranks, class Backend>
class Run {
 public:
  Run(Ranks& ranks, Backend& backend, const example::ImageSet& set, sw::Seed seed)
      : set_(set),
        model_(Mlp{}, ranks, seed, {}, backend),
        optimizer_(model_, sw::AdamW{.learning_rate = 0.002}),
        sampler_(set.count, place_of(ranks), {.batch_size = 64, .seed = seed}),
        batch_(place_of(ranks)) {}

  std::vector<double> steps(int count) {
    std::vector<double> losses;
    while (count-- > 0) {
      batch_.fill(set_, sampler_.next());
      const auto x = model_.to_device(batch_.images());  // on the host this copies nothing
      const auto labels = model_.to_device(batch_.labels());
      losses.push_back(train_step(model_, x.view(), labels.view(), sw::CrossEntropy{}, optimizer_));
    }
    return losses;
  }

  // begin: checkpoint
  void save(const std::filesystem::path& path) {
    sw::save_checkpoint(path, model_, optimizer_, {.sampler = sampler_.state()});
  }
  void load(const std::filesystem::path& path) {
    sampler_.set_state(sw::load_checkpoint(path, model_, optimizer_).position.sampler);
  }
  // end: checkpoint

 private:
  using Model = sw::Model<Mlp, sw::Context<float, Backend, Ranks>>;

  const example::ImageSet& set_;
  Model model_;
  sw::Optimizer<sw::AdamW, Model> optimizer_;
  sw::DistributedSampler sampler_;
  example::ImageBatch<float, sw::Invariant> batch_;
};

constexpr int before = 10, after = 8;

/// Calls begin(run) on each of `ranks`, then makes eight steps and returns their losses.
template <class Begin>
std::vector<double> last_losses(int ranks, const std::string& device, sw::Seed seed, Begin begin) {
  const example::ImageSet set =
      example::make_synthetic_images(sw::Seed{1}, example::Part::train, 1000);
  std::vector<double> losses;
  sw::run_ranks(ranks, [&](sw::ThreadCommunicator& threads) {
    const auto go = [&](auto& group, auto& backend) {
      Run run(group, backend, set, seed);
      begin(run);
      auto mine = run.steps(after);
      if (threads.rank() == 0) losses = std::move(mine);
    };
    sw::with_device<sw::Reference, example::Devices>(sw::device_choice(device), threads, go);
  });
  return losses;
}

void print_file(const std::filesystem::path& path) {
  const sw::TensorFiles files(path);
  std::printf("%s, %ju bytes:\n", path.filename().c_str(),
              static_cast<std::uintmax_t>(std::filesystem::file_size(path)));
  for (const auto& [name, place] : files.tensors()) {
    std::printf("  %-34s %s", name.c_str(), std::string(place.info.dtype.name).c_str());
    for (const std::uint64_t extent : place.info.shape) {
      std::printf(" %ju", static_cast<std::uintmax_t>(extent));
    }
    std::printf("\n");
  }
  for (const auto& [key, text] : files.metadata()) {
    std::printf("  %-34s %s\n", key.c_str(), text.c_str());
  }
}

}  // namespace

int main(int argc, char** argv) try {
  int saved_at = 3;
  int resumed_at = 2;
  std::string device = "auto";
  std::filesystem::path path =
      std::filesystem::temp_directory_path() /
      ("shardwise_example_06." + std::to_string(::getpid()) + ".safetensors");
  CLI::App app("Saves a run of training and goes on at another number of ranks.");
  app.option_defaults()->always_capture_default();
  app.add_option("-s,--ranks", saved_at, "at how many ranks the run begins");
  app.add_option("-r,--resume-ranks", resumed_at, "at how many ranks it goes on");
  app.add_option("--checkpoint", path,
                 "where to save it and leave it; the name ends in .safetensors");
  example::add_device_option(app, device);
  CLI11_PARSE(app, argc, argv);

  const auto run_and_save = [&](auto& run) {
    run.steps(before);
    run.save(path);
  };
  // A new program loads the checkpoint, which replaces the initial values of its own seed.
  const auto resume = [&](auto& run) { run.load(path); };
  const auto never_stopped = last_losses(saved_at, device, sw::Seed{1}, run_and_save);
  print_file(path);
  const auto same = last_losses(saved_at, device, sw::Seed{99}, resume);
  const auto other = last_losses(resumed_at, device, sw::Seed{99}, resume);
  if (app.count("--checkpoint") == 0) std::filesystem::remove(path);

  std::printf("\nloss of    never stopped   resumed at %d             resumed at %d\n", saved_at,
              resumed_at);
  bool as_promised = true;
  for (std::size_t i = 0; i < never_stopped.size(); ++i) {
    const double off = std::abs(other[i] - never_stopped[i]) / never_stopped[i];
    std::printf("step %2zu    %.9f     %.9f %s    %.9f (%.0e off)\n", before + i + 1,
                never_stopped[i], same[i], same[i] == never_stopped[i] ? "(same)" : "(OFF)",
                other[i], off);
    as_promised = as_promised && same[i] == never_stopped[i] && off < 1e-4;
  }
  if (!as_promised) throw std::runtime_error("the resumed run is another one");
  return 0;
} catch (const std::exception& e) {
  std::fprintf(stderr, "06_resume_at_another_rank_count: %s\n", e.what());
  return 1;
}
