#pragma once
// A mixture of experts and its balancing loss by their formulas, in double, on one rank; gradients
// by differences. No code of the library computes here.

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numeric>
#include <vector>

namespace testing {

/// Rows are [features], weights as `Experts` has them.
struct Mixture {
  using Numbers = std::vector<double>;
  using Choices = std::vector<std::vector<std::size_t>>;  // of each row

  std::size_t experts, chosen, features, hidden;
  Numbers router, gate, up, down;

  Numbers logits(const double* x) const {
    Numbers found(experts);
    for (std::size_t e = 0; e < experts; ++e)
      found[e] = product(router.data() + e * features, x, features);
    return found;
  }

  /// The numbers of the largest logits of each row; of equal ones the lowest first.
  Choices choose(const Numbers& x) const {
    Choices found;
    for (std::size_t r = 0; r < x.size() / features; ++r) {
      const Numbers of = logits(x.data() + r * features);
      std::vector<std::size_t> order(experts);
      std::iota(order.begin(), order.end(), std::size_t{0});
      std::stable_sort(order.begin(), order.end(),
                       [&](std::size_t a, std::size_t b) { return of[a] > of[b]; });
      order.resize(chosen);
      found.push_back(order);
    }
    return found;
  }

  Numbers output(const Numbers& x, const Choices& choices) const {
    Numbers y(x.size());
    for (std::size_t r = 0; r < choices.size(); ++r) {
      const Numbers of = logits(x.data() + r * features);
      double sum = 0;
      for (const std::size_t e : choices[r]) sum += std::exp(of[e]);
      for (const std::size_t e : choices[r])
        add_expert(e, std::exp(of[e]) / sum, x.data() + r * features, y.data() + r * features);
    }
    return y;
  }

  /// E Σ f_e P_e over the rows that `counts` has as true.
  double balance(const Numbers& x, const Choices& choices, const std::vector<bool>& counts) const {
    const auto rows = static_cast<double>(std::count(counts.begin(), counts.end(), true));
    Numbers often(experts), mean(experts);
    for (std::size_t r = 0; r < choices.size(); ++r) {
      if (!counts[r]) continue;
      for (const std::size_t e : choices[r]) often[e] += 1 / rows;
      const Numbers of = logits(x.data() + r * features);
      double sum = 0;
      for (const double logit : of) sum += std::exp(logit);
      for (std::size_t e = 0; e < experts; ++e) mean[e] += std::exp(of[e]) / sum / rows;
    }
    return static_cast<double>(experts) *
           std::inner_product(often.begin(), often.end(), mean.begin(), 0.0);
  }

 private:
  static double product(const double* a, const double* b, std::size_t n) {
    return std::inner_product(a, a + n, b, 0.0);
  }

  void add_expert(std::size_t e, double weight, const double* x, double* y) const {
    Numbers h(hidden);
    for (std::size_t f = 0; f < hidden; ++f) {
      const double g = product(gate.data() + (e * hidden + f) * features, x, features);
      h[f] = g / (1 + std::exp(-g)) * product(up.data() + (e * hidden + f) * features, x, features);
    }
    for (std::size_t n = 0; n < features; ++n)
      y[n] += weight * product(down.data() + (e * features + n) * hidden, h.data(), hidden);
  }
};

/// The gradient of f() by each of `numbers`, which f reads, by central differences.
template <class F>
std::vector<double> differences(std::vector<double>& numbers, F&& f) {
  constexpr double step = 1e-4;
  std::vector<double> slopes;
  for (double& number : numbers) {
    const double before = number;
    number = before + step;
    const double above = f();
    number = before - step;
    const double below = f();
    number = before;
    slopes.push_back((above - below) / (2 * step));
  }
  return slopes;
}

}  // namespace testing
