#pragma once
// A training step of the perceptron written by hand: oneDNN's products, and plain loops for the
// mean of squared differences and for the rule that changes the weights.

#include <array>
#include <cmath>
#include <concepts>
#include <cstddef>
#include <vector>

#include "models/mlp_by_hand.hpp"

namespace by_hand {

/// p -= rate g
struct Sgd {
  float rate = 1e-2F;

  void start_step() {}
  float operator()(float p, float g, float&, float&) const { return p - rate * g; }
};

/// As in algorithm 2 of Loshchilov and Hutter 2019, all that is the same for every element being
/// worked out beforehand.
struct AdamW {
  float rate = 1e-4F, beta1 = 0.9F, beta2 = 0.999F, epsilon = 1e-8F, decay = 0.01F;
  float corrected_rate = 0, root_scale = 0;
  int steps = 0;

  void start_step() {
    ++steps;
    corrected_rate = rate / (1 - std::pow(beta1, static_cast<float>(steps)));
    root_scale = 1 / std::sqrt(1 - std::pow(beta2, static_cast<float>(steps)));
  }
  float operator()(float p, float g, float& m, float& v) const {
    m = beta1 * m + (1 - beta1) * g;
    v = beta2 * v + (1 - beta2) * g * g;
    return (1 - rate * decay) * p - corrected_rate * m / (std::sqrt(v) * root_scale + epsilon);
  }
};

/// Weights change in float. In bf16 those that layers read are rounded in the same loop.
template <class T, class Rule>
class Step {
 public:
  Step(Library& library, const bench::MlpProblem<T>& problem, const std::vector<T>& target,
       By by = By::matmul)
      : mlp(library, problem, by), target_(&target) {
    const std::array<std::vector<T>*, 4> weights{&mlp.w1, &mlp.b1, &mlp.w2, &mlp.b2};
    const std::array<std::vector<T>*, 4> gradients{&mlp.dw1, &mlp.db1, &mlp.dw2, &mlp.db2};
    for (std::size_t k = 0; k < weights.size(); ++k) {
      Parameter& p = parameters_[k];
      p.used = weights[k];
      p.gradient = gradients[k];
      p.exact.assign(weights[k]->begin(), weights[k]->end());
      if constexpr (std::same_as<Rule, AdamW>) {
        p.moment1.resize(p.exact.size());
        p.moment2.resize(p.exact.size());
      }
    }
  }

  /// Returns the loss.
  double operator()() {
    mlp.forward();
    const double loss = loss_and_gradient();
    mlp.backward();
    rule_.start_step();
    for (Parameter& p : parameters_) update(p);
    return loss;
  }

  /// The weights w1 (0) and w2 (2), before they are rounded.
  const std::vector<float>& weight(std::size_t number) const {
    if constexpr (std::same_as<T, float>)
      return *parameters_[number].used;
    else
      return parameters_[number].exact;
  }

  Mlp<T> mlp;

 private:
  struct Parameter {
    std::vector<T>* used = nullptr;
    std::vector<T>* gradient = nullptr;
    std::vector<float> exact;  // what `used` is rounded from; for float not used
    std::vector<float> moment1, moment2;
  };

  double loss_and_gradient() {
    const std::size_t n = mlp.y.size();
    const float slope = 2.0F / static_cast<float>(n);
    double sum = 0;
    for (std::size_t i = 0; i < n; ++i) {
      const float difference = static_cast<float>(mlp.y[i]) - static_cast<float>((*target_)[i]);
      sum += static_cast<double>(difference * difference);
      mlp.dy[i] = static_cast<T>(slope * difference);
    }
    return sum / static_cast<double>(n);
  }

  void update(Parameter& p) {
    const Rule rule = rule_;
    float none = 0;
    T* const used = p.used->data();
    const T* const gradient = p.gradient->data();
    float *const exact = p.exact.data(), *const m = p.moment1.data(), *const v = p.moment2.data();
    const std::size_t n = p.used->size();
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC ivdep
#endif
    for (std::size_t i = 0; i < n; ++i) {
      const float before = std::same_as<T, float> ? static_cast<float>(used[i]) : exact[i];
      const float g = static_cast<float>(gradient[i]);
      float after;
      if constexpr (std::same_as<Rule, AdamW>)
        after = rule(before, g, m[i], v[i]);
      else
        after = rule(before, g, none, none);
      if constexpr (!std::same_as<T, float>) exact[i] = after;
      used[i] = static_cast<T>(after);
    }
  }

  const std::vector<T>* target_;
  std::array<Parameter, 4> parameters_;
  Rule rule_;
};

}  // namespace by_hand
