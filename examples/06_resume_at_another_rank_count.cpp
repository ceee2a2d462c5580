// A run is saved by some ranks and goes on at another number of them, as if it had never stopped.
//
//     3 ranks              one file                          2 ranks
//                  ┌──────────────────────────┐
//     [ W1, 0 ] ─> │ header: names and shapes │ ─> [ W1, first half  ]
//     [ W1, 1 ] ─> │ W1  0  1  2              │
//     [ W1, 2 ] ─> │ W2  0  1  2              │ ─> [ W1, second half ]
//                  │ moments, step, seed, ... │
//                  └──────────────────────────┘
//
// Each rank writes and reads its own part of each tensor and nothing else. Resumed at the same
// number of ranks, the run repeats the very bits; at another, sums round in another order.
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
#include "shardwise/data/synthetic.hpp"
#include "shardwise/shardwise.hpp"
#include "support/image_batch.hpp"

namespace sw = shardwise;

namespace {

struct Mlp : sw::Sequential<sw::ColumnParallelLinear<784, 100>, sw::Relu, sw::Dropout<1, 4>,
                            sw::RowParallelLinear<100, 10>> {};

/// All that a run consists of, on one rank.
class Run {
 public:
  Run(sw::ThreadCommunicator& ranks, const sw::ImageSet& set, sw::Seed seed)
      : set_(set),
        model_(ranks, seed),
        optimizer_(model_, sw::AdamW{.learning_rate = 0.002}),
        sampler_(set.count, place_of(ranks), {.batch_size = 64, .seed = seed}),
        batch_(place_of(ranks)) {}

  std::vector<double> steps(int count) {
    std::vector<double> losses;
    while (count-- > 0) {
      batch_.fill(set_, sampler_.next());
      losses.push_back(
          train_step(model_, batch_.images(), batch_.labels(), sw::CrossEntropy{}, optimizer_));
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
  using Model = sw::Model<Mlp, sw::Context<float, sw::Reference, sw::ThreadCommunicator>>;

  const sw::ImageSet& set_;
  Model model_;
  sw::Optimizer<sw::AdamW, Model> optimizer_;
  sw::DistributedSampler sampler_;
  example::ImageBatch<float, sw::Invariant> batch_;
};

constexpr int before = 10, after = 8;

/// Ten steps, then the checkpoint, then eight more: returns the losses of the latter.
std::vector<double> run_and_save(int ranks, const sw::ImageSet& set,
                                 const std::filesystem::path& path) {
  std::vector<double> losses;
  sw::run_ranks(ranks, [&](sw::ThreadCommunicator& c) {
    Run run(c, set, sw::Seed{1});
    run.steps(before);
    run.save(path);
    auto mine = run.steps(after);
    if (c.rank() == 0) losses = std::move(mine);
  });
  return losses;
}

/// The same eight steps by a program that begins with the checkpoint. What its own seed had made is
/// replaced.
std::vector<double> resume(int ranks, const sw::ImageSet& set, const std::filesystem::path& path) {
  std::vector<double> losses;
  sw::run_ranks(ranks, [&](sw::ThreadCommunicator& c) {
    Run run(c, set, sw::Seed{99});
    run.load(path);
    auto mine = run.steps(after);
    if (c.rank() == 0) losses = std::move(mine);
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
  std::filesystem::path path =
      std::filesystem::temp_directory_path() /
      ("shardwise_example_06." + std::to_string(::getpid()) + ".safetensors");
  CLI::App app("Saves a run of training and goes on at another number of ranks.");
  app.option_defaults()->always_capture_default();
  app.add_option("-s,--ranks", saved_at, "at how many ranks the run begins");
  app.add_option("-r,--resume-ranks", resumed_at, "at how many ranks it goes on");
  app.add_option("--checkpoint", path,
                 "where to save it and leave it; the name ends in .safetensors");
  CLI11_PARSE(app, argc, argv);

  const sw::ImageSet set = sw::make_synthetic_images(sw::Seed{1}, sw::Part::train, 1000);
  const std::vector<double> never_stopped = run_and_save(saved_at, set, path);
  print_file(path);
  const std::vector<double> same = resume(saved_at, set, path);
  const std::vector<double> other = resume(resumed_at, set, path);
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
