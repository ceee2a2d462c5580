#pragma once
// The models that contend, and one of them on some ranks with a problem's numbers.

#include <oneapi/dnnl/dnnl.h>

#include <cstdio>
#include <filesystem>
#include <stdexcept>
#include <string>
#include <vector>

#include "peers/results.hpp"
#include "peers/turns.hpp"
#include "shardwise/backend/onednn/onednn.hpp"
#include "shardwise/shardwise.hpp"

namespace peers {

/// The perceptron, by column and then by row.
struct Mlp : sw::Sequential<sw::ColumnParallelLinear<1024, 4096>, sw::Relu,
                            sw::RowParallelLinear<4096, 1024>> {};

/// Three convolutions that keep channels and extent.
template <class Split>
using Convolution = sw::Conv2d<Split, sw::dynamic, sw::dynamic, sw::kernel(3, {.padding = 1})>;
template <class Split>
struct Convolutions : sw::Sequential<Convolution<Split>, sw::Relu, Convolution<Split>, sw::Relu,
                                     Convolution<Split>> {
  using Layer = Convolution<Split>;
  explicit Convolutions(std::size_t channels) : Convolutions(Layer(channels, channels)) {}
  explicit Convolutions(const Layer& each)
      : Convolutions::Sequential(each, sw::Relu{}, each, sw::Relu{}, each) {}
};

/// The architecture for inputs of shape `x`.
template <class Architecture>
Architecture architecture_for(const sw::Shape& x) {
  if constexpr (std::is_default_constructible_v<Architecture>) {
    return {};
  } else {
    return Architecture(x[1].extent());
  }
}

/// The names and global shapes of all parameters.
struct Named {
  std::string name;
  sw::Shape shape;
};
template <class Model>
std::vector<Named> parameters_of(Model& model) {
  std::vector<Named> all;
  model.visit_parameters([&](auto& p) { all.push_back({p.name, p.spec.shape}); });
  return all;
}

/// A model that computes in T, with the numbers of a folder.
template <class Architecture, class T, class C>
class Ours {
 public:
  Ours(C& ranks, const std::filesystem::path& folder)
      : folder_(folder),
        place_(sw::place_of(ranks)),
        in_(shape_of_x(folder)),
        architecture_(architecture_for<Architecture>(in_)),
        out_(architecture_.output_shape(in_)),
        x_(as_t(load(folder, "x", in_))),
        dy_(as_t(load(folder, "dy", out_))),
        model_(architecture_, ranks, sw::Seed{1}, in_) {
    for (const Named& one : parameters_of(model_)) {
      const std::vector<T> whole = as_t(load(folder, one.name, one.shape));
      model_.set(one.name, {whole.data(), one.shape, place_});
    }
  }

  void run(bool training) {
    const sw::View<const T, sw::Invariant> x(x_.data(), in_, place_);
    if (!training) {
      model_.evaluate(x);
      return;
    }
    model_.forward(x);
    model_.backward({dy_.data(), out_, place_});
    model_.settle_gradients();
    model_.next_step();
  }

  /// Throws unless a step gives what the folder says.
  void require_results(bool speaks) {
    const sw::View<const T, sw::Invariant> x(x_.data(), in_, place_);
    const std::vector<float> y = load(folder_, "y", out_);
    require_exact<T>("y of evaluate", model_.evaluate(x).span(), y, speaks);
    require_exact<T>("y", model_.forward(x).span(), y, speaks);
    model_.backward({dy_.data(), out_, place_});
    model_.settle_gradients();
    for (const Named& one : parameters_of(model_)) {
      const sw::Tensor<T, sw::Invariant> gradient = model_.gather_gradient(one.name);
      require_exact<T>("grad." + one.name, {gradient.data(), gradient.size()},
                       load(folder_, "grad." + one.name, one.shape), speaks);
    }
    model_.next_step();
  }

 private:
  static std::vector<T> as_t(const std::vector<float>& values) {
    std::vector<T> rounded;
    for (const float value : values) rounded.push_back(static_cast<T>(value));
    return rounded;
  }

  std::filesystem::path folder_;
  sw::Place place_;
  sw::Shape in_;
  Architecture architecture_;
  sw::Shape out_;
  std::vector<T> x_, dy_;
  sw::Model<Architecture, sw::Context<T, sw::OneDnn, C>> model_;
};

inline void print_versions() {
  const dnnl_version_t* version = dnnl_version();
  std::printf("version oneDNN %d.%d.%d\n", version->major, version->minor, version->patch);
#ifdef __clang__
  std::printf("version compiler %s\n", __VERSION__);
#else
  std::printf("version compiler g++ %s\n", __VERSION__);
#endif
}

template <class Architecture, class T, class C, class Next>
void contend_as(C& ranks, const std::filesystem::path& folder, Next next) {
  const sw::detail::onednn::ThreadLimit one_thread(1);
  const bool speaks = ranks.rank() == 0;
  if (speaks) print_versions();
  Ours<Architecture, T, C> ours(ranks, folder);
  ours.require_results(speaks);
  take_turns(speaks, next, [&](bool training) { ours.run(training); });
}

/// Checks and takes turns as the command line `PROGRAM <plan> <dtype> <folder>` says.
template <class C, class Next>
void contend(C& ranks, const std::vector<std::string>& arguments, Next next) {
  if (arguments.size() != 4)
    throw std::runtime_error("usage: " + arguments[0] +
                             " mlp|output|height float|bf16 FOLDER, with the lines of turns.hpp "
                             "on standard input");
  const std::string what = arguments[1] + " " + arguments[2];
  const std::filesystem::path folder = arguments[3];
  using Output = Convolutions<sw::split::output>;
  using Height = Convolutions<sw::split::height>;
  if (what == "mlp float") return contend_as<Mlp, float>(ranks, folder, next);
  if (what == "mlp bf16") return contend_as<Mlp, sw::bf16>(ranks, folder, next);
  if (what == "output float") return contend_as<Output, float>(ranks, folder, next);
  if (what == "output bf16") return contend_as<Output, sw::bf16>(ranks, folder, next);
  if (what == "height float") return contend_as<Height, float>(ranks, folder, next);
  if (what == "height bf16") return contend_as<Height, sw::bf16>(ranks, folder, next);
  throw std::runtime_error(arguments[0] + ": there is no '" + what +
                           "', only mlp, output or height in float or bf16");
}

}  // namespace peers
