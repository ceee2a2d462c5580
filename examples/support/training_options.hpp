#pragma once
// Command line options of programs that train on images.

#include <CLI/CLI.hpp>
#include <cstddef>
#include <string>
#include <vector>

#include "cnn_data.hpp"
#include "device.hpp"

namespace example {

struct TrainingOptions {
  std::string way{};
  int ranks = 1;
  std::size_t batch = 32;
  int epochs = 3;
  CnnData data{};
  std::string device = "auto";
};

/// Adds the options to `app`; `options` has the defaults.
inline void add_training_options(CLI::App& app, TrainingOptions& options,
                                 const std::vector<std::string>& ways,
                                 const std::vector<std::string>& data) {
  app.option_defaults()->always_capture_default();
  app.add_option("--way", options.way, "how the network is split")->check(CLI::IsMember(ways));
  app.add_option("-s,--split", options.ranks, "over how many ranks");
  app.add_option("-b,--batch", options.batch, "images in one step")->check(CLI::Range(1, 1000000));
  app.add_option("-e,--epochs", options.epochs, "how often all images are seen")
      ->check(CLI::Range(1, 1000000));
  app.add_option("--samples", options.data.samples, "training images to use, 0 for all")
      ->check(CLI::Range(0, 100000000));
  app.add_option("--data", options.data.name, "which images")->check(CLI::IsMember(data));
  app.add_option("--data-dir", options.data.folder,
                 "folder of the data set's files; for cifar10 those of its binary version");
  add_device_option(app, options.device);
}

}  // namespace example
