#pragma once
// A training step of the GPT by hand on one rank: a loop over the kernels of `OneDnn`, with all
// memory taken beforehand.

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <list>
#include <optional>
#include <vector>

#include "models/gpt_model.hpp"
#include "models/gpt_rows_by_hand.hpp"
#include "models/mlp_step_by_hand.hpp"

namespace by_hand {

namespace sw = shardwise;

/// All parameters, each tensor behind the one before, in the order of the model.
struct GptNumbers {
  std::vector<float> values, gradients, moments1, moments2;
  std::uint64_t version = 0;  // of the values
};

/// A linear layer whose weight begins at `at`; its bias, if it has one, follows.
class GptLinear {
 public:
  GptLinear(sw::OneDnn& backend, GptNumbers& numbers, std::size_t rows, std::size_t in,
            std::size_t out, std::size_t at, bool bias = true)
      : kernel_(backend, in, out),
        numbers_(&numbers),
        rows_(rows),
        weight_(at),
        bias_(bias ? at + in * out : 0) {}

  void forward(const float* x, float* y) {
    kernel_.forward(rows_, x, weight(), bias_ == 0 ? nullptr : &numbers_->values[bias_],
                    sw::Activation::none, y);
  }
  void backward(const float* x, const float* dy, float* dx) {
    kernel_.backward_input(rows_, dy, weight(), dx);
    kernel_.backward_weight(rows_, x, dy, sw::Write::replace, &numbers_->gradients[weight_],
                            bias_ == 0 ? nullptr : &numbers_->gradients[bias_]);
  }

 private:
  sw::Weight<float> weight() const { return {&numbers_->values[weight_], numbers_->version}; }

  sw::OneDnn::Linear<float> kernel_;
  GptNumbers* numbers_;
  std::size_t rows_, weight_, bias_;
};

/// A normalisation whose weight begins at `at`.
class GptNorm {
 public:
  GptNorm(GptNumbers& numbers, std::size_t rows, std::size_t n, std::size_t at)
      : norm_(rows, n), numbers_(&numbers), weight_(at), bias_(at + n) {}

  void forward(const float* x, float* y) {
    norm_.forward(x, &numbers_->values[weight_], &numbers_->values[bias_], y);
  }
  /// Adds to dx.
  void backward(const float* x, const float* dy, float* dx) const {
    norm_.backward(x, &numbers_->values[weight_], dy, dx, &numbers_->gradients[weight_],
                   &numbers_->gradients[bias_]);
  }

 private:
  Norm norm_;
  GptNumbers* numbers_;
  std::size_t weight_, bias_;
};

/// Gradients of values in a block, which all blocks share.
struct GptScratch {
  explicit GptScratch(const bench::GptSizes& s)
      : narrow(s.rows() * s.features), q(narrow), k(narrow), v(narrow), wide(s.rows() * s.hidden) {}

  std::vector<float> narrow, q, k, v, wide;
};

/// x += attention(norm(x)), x += down(gelu(up(norm(x)))).
class GptBlock {
 public:
  /// `at` becomes the place behind its parameters.
  GptBlock(sw::OneDnn& backend, GptNumbers& numbers, const bench::GptSizes& s, std::size_t& at)
      : sizes_(s),
        attention_(backend),
        norm1_(numbers, s.rows(), s.features, taken(at, 2 * s.features)),
        q_(narrow(backend, numbers, at)),
        k_(narrow(backend, numbers, at)),
        v_(narrow(backend, numbers, at)),
        out_(narrow(backend, numbers, at)),
        norm2_(numbers, s.rows(), s.features, taken(at, 2 * s.features)),
        up_(backend, numbers, s.rows(), s.features, s.hidden,
            taken(at, (s.features + 1) * s.hidden)),
        down_(backend, numbers, s.rows(), s.hidden, s.features,
              taken(at, (s.hidden + 1) * s.features)) {
    for (auto* const each : {&x, &normal1_, &query_, &key_, &value_, &seen_, &middle_, &normal2_})
      each->resize(s.rows() * s.features);
    for (auto* const each : {&before_, &after_}) each->resize(s.rows() * s.hidden);
  }

  /// Of x; gives `y`.
  void forward(std::vector<float>& y) {
    norm1_.forward(x.data(), normal1_.data());
    q_.forward(normal1_.data(), query_.data());
    k_.forward(normal1_.data(), key_.data());
    v_.forward(normal1_.data(), value_.data());
    attention_.forward(operands(), seen_.data());
    out_.forward(seen_.data(), middle_.data());
    add(x, middle_);
    norm2_.forward(middle_.data(), normal2_.data());
    up_.forward(normal2_.data(), before_.data());
    loops::independent_loop(after_.size(), [x = before_.data(), y = after_.data()](std::size_t i) {
      y[i] = Gelu::value(x[i]);
    });
    down_.forward(after_.data(), y.data());
    add(middle_, y);
  }

  /// Makes the gradient of x out of that of y.
  void backward(std::vector<float>& gradient, GptScratch& d) {
    down_.backward(after_.data(), gradient.data(), d.wide.data());
    loops::independent_loop(d.wide.size(), [x = before_.data(), g = d.wide.data()](std::size_t i) {
      g[i] *= Gelu::slope(x[i]);
    });
    up_.backward(normal2_.data(), d.wide.data(), d.narrow.data());
    norm2_.backward(middle_.data(), d.narrow.data(), gradient.data());

    out_.backward(seen_.data(), gradient.data(), d.narrow.data());
    attention_.backward(operands(), d.narrow.data(), d.q.data(), d.k.data(), d.v.data());
    q_.backward(normal1_.data(), d.q.data(), d.narrow.data());
    k_.backward(normal1_.data(), d.k.data(), d.q.data());
    v_.backward(normal1_.data(), d.v.data(), d.k.data());
    add(d.q, d.k, d.narrow);
    norm1_.backward(x.data(), d.narrow.data(), gradient.data());
  }

  std::vector<float> x;  // what is read

 private:
  using Gelu = sw::activations::GeluTanh;

  static std::size_t taken(std::size_t& at, std::size_t count) {
    at += count;
    return at - count;
  }
  GptLinear narrow(sw::OneDnn& backend, GptNumbers& numbers, std::size_t& at) const {
    const std::size_t n = sizes_.features;
    return {backend, numbers, sizes_.rows(), n, n, taken(at, (n + 1) * n)};
  }

  /// b += a
  static void add(const std::vector<float>& a, std::vector<float>& b) {
    loops::independent_loop(a.size(),
                            [a = a.data(), b = b.data()](std::size_t i) { b[i] += a[i]; });
  }
  /// c += a + b
  static void add(const std::vector<float>& a, const std::vector<float>& b, std::vector<float>& c) {
    loops::independent_loop(a.size(), [a = a.data(), b = b.data(), c = c.data()](std::size_t i) {
      c[i] += a[i] + b[i];
    });
  }

  sw::detail::AttentionOperands<float, sw::RandomStream> operands() const {
    const bench::GptSizes& s = sizes_;
    const sw::TokenRows all{s.samples, s.tokens, s.tokens, 0, 0};
    const std::size_t size = s.features / s.heads;
    return {{all, all, sw::Sequences(s.tokens), true, 0},
            {size, 1, s.heads, s.heads, 0, s.heads, 0},
            1 / std::sqrt(static_cast<float>(size)),
            0,
            {sw::RandomStream(sw::Seed{1}, 0, 0), 0, 0},
            query_.data(),
            key_.data(),
            value_.data()};
  }

  bench::GptSizes sizes_;
  sw::OneDnn::Attention<float> attention_;
  GptNorm norm1_;
  GptLinear q_, k_, v_, out_;
  GptNorm norm2_;
  GptLinear up_, down_;
  std::vector<float> normal1_, query_, key_, value_, seen_, middle_, normal2_, before_, after_;
};

/// The whole step. Begins with the parameters of a model.
class GptStep {
 public:
  template <class C>
  GptStep(const bench::GptSizes& s, const bench::GptBatch& batch, bench::Gpt<C>& model)
      : sizes_(s),
        batch_(&batch),
        scratch_(s),
        x_(s.rows() * s.features),
        normal_(x_),
        gradient_(x_),
        logits_(s.rows() * s.vocabulary) {
    numbers_.values = model.parameters();
    for (auto* const each : {&numbers_.gradients, &numbers_.moments1, &numbers_.moments2})
      each->resize(numbers_.values.size());
    std::size_t at = (s.vocabulary + s.tokens) * s.features;
    for (std::size_t i = 0; i < s.layers; ++i) blocks_.emplace_back(backend_, numbers_, s, at);
    norm_.emplace(numbers_, s.rows(), s.features, at);
    head_.emplace(backend_, numbers_, s.rows(), s.features, s.vocabulary, 0, false);
  }

  /// Returns the loss.
  double operator()() {
    ++numbers_.version;
    embed(blocks_.front().x.data());
    for (auto block = blocks_.begin(); block != blocks_.end(); ++block)
      block->forward(std::next(block) == blocks_.end() ? x_ : std::next(block)->x);
    norm_->forward(x_.data(), normal_.data());
    head_->forward(normal_.data(), logits_.data());
    const double loss = cross_entropy(batch_->labels, sizes_.vocabulary, logits_.data());
    head_->backward(normal_.data(), logits_.data(), scratch_.narrow.data());
    std::fill(gradient_.begin(), gradient_.end(), 0.0F);
    norm_->backward(x_.data(), scratch_.narrow.data(), gradient_.data());
    for (auto block = blocks_.rbegin(); block != blocks_.rend(); ++block)
      block->backward(gradient_, scratch_);
    add_to_tables();
    update();
    return loss;
  }

  /// In the order of the model.
  const std::vector<float>& parameters() const { return numbers_.values; }

 private:
  const float* positions() const { return &numbers_.values[sizes_.vocabulary * sizes_.features]; }

  /// x = the row of the token + that of its position
  void embed(float* x) const {
    const std::size_t n = sizes_.features;
    for (std::size_t r = 0; r < sizes_.rows(); ++r) {
      const float* const token = &numbers_.values[static_cast<std::size_t>(batch_->ids[r]) * n];
      const float* const place = positions() + r % sizes_.tokens * n;
      for (std::size_t i = 0; i < n; ++i) x[r * n + i] = token[i] + place[i];
    }
  }

  /// The table has the gradient of the logits already.
  void add_to_tables() {
    const std::size_t n = sizes_.features, places = sizes_.vocabulary * n;
    float* const gradients = numbers_.gradients.data();
    std::fill_n(gradients + places, sizes_.tokens * n, 0.0F);
    for (std::size_t r = 0; r < sizes_.rows(); ++r) {
      float* const token = gradients + static_cast<std::size_t>(batch_->ids[r]) * n;
      float* const place = gradients + places + r % sizes_.tokens * n;
      for (std::size_t i = 0; i < n; ++i) {
        token[i] += gradient_[r * n + i];
        place[i] += gradient_[r * n + i];
      }
    }
  }

  void update() {
    rule_.start_step();
    loops::independent_loop(
        numbers_.values.size(),
        [rule = rule_, p = numbers_.values.data(), g = numbers_.gradients.data(),
         m = numbers_.moments1.data(),
         v = numbers_.moments2.data()](std::size_t i) { p[i] = rule(p[i], g[i], m[i], v[i]); });
  }

  bench::GptSizes sizes_;
  const bench::GptBatch* batch_;
  sw::OneDnn backend_;
  GptNumbers numbers_;
  GptScratch scratch_;
  std::list<GptBlock> blocks_;
  std::optional<GptNorm> norm_;
  std::optional<GptLinear> head_;
  std::vector<float> x_, normal_, gradient_, logits_;
  AdamW rule_{.rate = static_cast<float>(bench::gpt_rule.learning_rate)};
};

}  // namespace by_hand
