#pragma once
// The command line, and what it asks for.

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "split/engine.hpp"
#include "split/ranks.hpp"
#include "split/result_file.hpp"
#include "split/shapes.hpp"

namespace split {

struct Options {
  std::vector<std::string> shapes, files, presets;
  PresetSizes sizes;
  std::vector<int> ranks;
  std::vector<std::string> dtypes{"float"}, backends;
  std::vector<std::string> outputs;
  bool resume = false, overwrite = false;
  Effort effort;
};

/// What `-h` shows below the options.
inline std::string explanation() {
  return R"(For each shape it measures one product y[rows, out] = x[rows, in] W^T + b and the pair of
products in -> out -> in, from whole inputs to whole outputs on every rank:
  unsplit               one rank computes, the others are idle
  column                W split by output feature; outputs are gathered
  row                   W split by input feature; outputs are summed
  column-row            the pair, one sum behind the second product
  column-gather-column  the pair, a gather behind each product
Times are medians in microseconds, all ways in turns. 'product' is the ranks' products alone,
'sending' the redistributions alone, 'exposed' the total less the products. 'efficiency' is the
speed over unsplit by the number of ranks, 'of peak' the share of what as many ranks reach in
square products of that dtype by the best backend of this program. Bytes are what ranks pass into
collectives, of all together; memory is that of the rank that holds most, without what a backend
packs.
Presets: )" +
         names_of_presets() +
         ". resnet50 are its convolutions as products (im2col), not convolutions.";
}

inline void add_options(CLI::App& app, Options& o) {
  app.footer(explanation());
  app.add_option("-s,--shapes", o.shapes, "rows x in x out, such as 512x4096x1024")->delimiter(',');
  app.add_option("--shapes-file", o.files, "a file with a shape in each line, # for comments");
  app.add_option("-p,--preset", o.presets, "shapes of a network, by name")->delimiter(',');
  app.add_option("--rows", o.sizes.rows, "rows of the presets gpt3, llama-70b and mlp [512]")
      ->delimiter(',')
      ->check(CLI::Range(1, 1000000000));
  app.add_option("--images", o.sizes.images, "images of the preset resnet50 [4]")
      ->check(CLI::Range(1, 100000));
  app.add_option("--shrink", o.sizes.shrink, "divide in and out of presets by this [1]")
      ->check(CLI::Range(1, 1000000));
  app.add_option("-r,--ranks", o.ranks,
                 std::string(communicator) == "threads"
                     ? "numbers of ranks, which are threads [1,2]"
                     : "number of ranks: that of the processes, which mpiexec starts")
      ->delimiter(',')
      ->check(CLI::Range(1, 1024));
  app.add_option("-t,--dtypes", o.dtypes, "float, bf16 or double [float]")
      ->delimiter(',')
      ->check(CLI::IsMember({"float", "bf16", "double"}));
  app.add_option("-b,--backends", o.backends,
                 "onednn, cblas or reference [the fastest of each dtype]")
      ->delimiter(',')
      ->check(CLI::IsMember({"onednn", "cblas", "reference"}));
  app.add_option("-o,--output", o.outputs,
                 "also write rows to a file .csv or .json; may be repeated");
  auto* resume =
      app.add_flag("--resume", o.resume, "keep the rows that outputs have, measure the rest");
  app.add_flag("--overwrite", o.overwrite, "begin outputs anew")->excludes(resume);
  app.add_option("--rounds", o.effort.rounds, "how often everything is measured, in turns [15]")
      ->check(CLI::Range(1, 100000));
}

/// All shapes that are asked for, each once.
/// throws   std::runtime_error if there is none, or one that cannot be
inline std::vector<NamedShape> shapes_of(const Options& o) {
  std::vector<NamedShape> all;
  const auto add = [&](const NamedShape& shape) {
    const bool known = std::any_of(all.begin(), all.end(), [&](const NamedShape& other) {
      return other.name == shape.name && other.extents() == shape.extents();
    });
    if (!known) all.push_back(shape);
  };
  for (const std::string& text : o.shapes) add(parse_shape(text));
  for (const std::string& path : o.files)
    for (const NamedShape& shape : read_shapes(path)) add(shape);
  for (const std::string& name : o.presets)
    for (const NamedShape& shape : preset(name, o.sizes)) add(shape);
  if (all.empty())
    throw std::runtime_error(
        "no shape to measure: name some by --shapes, --shapes-file or --preset (" +
        names_of_presets() + ")");
  return all;
}

/// The engine of least preference number for a dtype: the fastest one that the program has.
inline const Engine& best_engine(const std::string& dtype) {
  const Engine* best = nullptr;
  for (const Engine& engine : engines())
    if (engine.dtype == dtype && (best == nullptr || engine.preference < best->preference))
      best = &engine;
  return *best;  // `reference` has every dtype
}

/// Every dtype by every chosen backend that computes it; `note` gets a line for what is left out.
/// throws   std::runtime_error for a backend that this program was built without, and for a dtype
///          that none of the chosen backends computes
inline std::vector<const Engine*> engines_of(const Options& o, std::string& note) {
  std::vector<const Engine*> chosen;
  for (const std::string& backend : o.backends) {
    const bool built = std::any_of(engines().begin(), engines().end(),
                                   [&](const Engine& engine) { return engine.backend == backend; });
    if (!built)
      throw std::runtime_error("this program was built without the backend " + backend +
                               ": its library was not found; see docs/backends.md");
  }
  for (const std::string& dtype : o.dtypes) {
    if (o.backends.empty()) chosen.push_back(&best_engine(dtype));
    std::string lacking;
    bool found = o.backends.empty();
    for (const std::string& backend : o.backends) {
      const auto engine = std::find_if(engines().begin(), engines().end(), [&](const Engine& e) {
        return e.backend == backend && e.dtype == dtype;
      });
      if (engine == engines().end()) {
        lacking += (lacking.empty() ? "" : " and ") + backend;
        continue;
      }
      found = true;
      chosen.push_back(&*engine);
    }
    if (!found)
      throw std::runtime_error(
          "no chosen backend computes in " + dtype + ": " + lacking +
          " does not; docs/backends.md says which one does, or leave --backends out");
    if (!lacking.empty())
      note += std::string(program) + ": note: " + lacking + " does not compute in " + dtype +
              ", so that pair is left out\n";
  }
  return chosen;
}

}  // namespace split
