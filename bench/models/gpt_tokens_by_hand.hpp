#pragma once
// A GPT that reads the next tokens of some sequences by hand on one rank: oneDNN's products, with
// packed weights from two rows on, and plain loops.

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <list>
#include <vector>

#include "kernels/by_hand.hpp"
#include "models/gpt_model.hpp"
#include "models/gpt_rows_by_hand.hpp"
#include "shardwise/backend/detail/elementary.hpp"
#include "shardwise/backend/onednn/processor.hpp"

namespace by_hand {

namespace sw = shardwise;

/// Features of a head, and tokens whose keys lie together.
inline constexpr std::size_t at_once = 64;

/// sums[j] += Σ a[i] m[i, j], for 64 columns.
template <class T>
void add_product(const float* a, std::size_t rows, const T* m, float* sums) {
  loops::onednn::in_fused_vectors([=] {
    std::array<float, at_once> some;
    for (std::size_t j = 0; j < at_once; ++j) some[j] = sums[j];
    for (std::size_t i = 0; i < rows; ++i)
      for (std::size_t j = 0; j < at_once; ++j)
        some[j] += a[i] * static_cast<float>(m[i * at_once + j]);
    for (std::size_t j = 0; j < at_once; ++j) sums[j] = some[j];
  });
}

/// The keys and values of one head in one sequence, each read from memory in one run: values
/// [token, feature], and keys [block of 64 tokens, feature, token in it].
template <class T>
class HeadCache {
 public:
  explicit HeadCache(std::size_t tokens)
      : keys_((tokens + at_once - 1) / at_once * at_once * at_once), values_(tokens * at_once) {}

  void put(std::size_t token, const T* key, const T* value) {
    T* const to = &keys_[token / at_once * at_once * at_once + token % at_once];
    for (std::size_t i = 0; i < at_once; ++i) to[i * at_once] = key[i];
    std::copy_n(value, at_once, &values_[token * at_once]);
  }

  /// y = the attention of one query over the first `tokens`; `scores` is memory for them.
  void attend(const T* query, std::size_t tokens, std::vector<float>& scores, T* y) const {
    constexpr float scale = 0.125F * 1.44269504F;  // of heads of 64, for powers of two
    std::array<float, at_once> q, sums{};
    for (std::size_t i = 0; i < at_once; ++i) q[i] = scale * static_cast<float>(query[i]);
    std::fill(scores.begin(), scores.end(), 0.0F);
    for (std::size_t token = 0; token < tokens; token += at_once)
      add_product(q.data(), at_once, &keys_[token * at_once], &scores[token]);
    const float inverse = 1 / weigh(scores.data(), tokens);
    add_product(scores.data(), tokens, values_.data(), sums.data());
    for (std::size_t i = 0; i < at_once; ++i) y[i] = static_cast<T>(sums[i] * inverse);
  }

 private:
  /// Scores become powers of two; returns their sum.
  static float weigh(float* scores, std::size_t count) {
    float sum = 0;
    loops::onednn::in_fused_vectors([=, &sum] {
      const float highest = loops::lane_reduce<32>(
          count, -std::numeric_limits<float>::infinity(), [=](std::size_t i) { return scores[i]; },
          [](float a, float b) { return a < b ? b : a; });
      sum = loops::lane_reduce<32>(
          count, 0.0F,
          [=](std::size_t i) { return scores[i] = loops::power_of_two(scores[i] - highest); },
          loops::Plus{});
    });
    return sum;
  }

  std::vector<T> keys_, values_;
};

/// The keys and values of all heads: [layer, sequence, head].
template <class T>
class GptCache {
 public:
  GptCache(const bench::GptSizes& s, std::size_t sequences, std::size_t tokens)
      : of_layer_(sequences * s.heads), heads_(s.layers * of_layer_, HeadCache<T>(tokens)) {}

  HeadCache<T>* of_layer(std::size_t layer) { return &heads_[layer * of_layer_]; }

 private:
  std::size_t of_layer_;
  std::vector<HeadCache<T>> heads_;
};

/// All parameters in the order of the model, but queries, keys and values are one product.
template <class T>
class GptWeights {
 public:
  explicit GptWeights(const std::vector<std::vector<T>>& of_model) {
    for (std::size_t i = 0; i < of_model.size();) {
      const bool in_block = i >= tables && i + 2 < of_model.size();
      if (in_block && (i - tables) % of_block == 2) {
        for (const std::size_t part : {0U, 1U}) {  // weights, biases
          std::vector<T> joined;
          for (const std::size_t at : {i + part, i + 2 + part, i + 4 + part})
            joined.insert(joined.end(), of_model[at].begin(), of_model[at].end());
          all_.push_back(std::move(joined));
        }
        i += 6;
      } else {
        all_.push_back(of_model[i++]);
      }
    }
  }

  const T* table() const { return all_[0].data(); }
  const T* positions() const { return all_[1].data(); }
  /// The next one; oneDNN takes no pointers to constants.
  T* take() { return all_[next_++].data(); }
  void rewind() { next_ = tables; }

 private:
  static constexpr std::size_t tables = 2, of_block = 16;

  std::vector<std::vector<T>> all_;
  std::size_t next_ = tables;
};

/// The next `tokens` tokens of all sequences, behind those that the cache has.
template <class T>
class GptTokens {
 public:
  GptTokens(const Library& library, const bench::GptSizes& s, std::size_t sequences,
            std::size_t tokens, GptWeights<T>& weights, GptCache<T>& cache)
      : sizes_(s),
        sequences_(sequences),
        tokens_(tokens),
        weights_(&weights),
        cache_(&cache),
        norm_(rows(), s.features),
        scores_(1024 + at_once) {
    for (auto* const each : {&x_, &normal_, &seen_, &added_}) each->resize(rows() * s.features);
    heads_.resize(rows() * 3 * s.features);
    wide_.resize(rows() * s.hidden);
    weights.rewind();
    for (std::size_t i = 0; i < s.layers; ++i) blocks_.push_back(block(library));
    last_ = norm();
    if (tokens > 1) return;  // of a prompt, logits are not needed
    logits.resize(rows() * s.vocabulary);
    no_bias_.resize(s.vocabulary);
    head_ = linear(library, normal_, const_cast<T*>(weights.table()), no_bias_.data(), logits);
  }

  /// ids [sequence, token]
  void operator()(const std::int32_t* ids, std::size_t behind) {
    embed(ids, behind);
    for (std::size_t layer = 0; layer < blocks_.size(); ++layer) {
      const Block& block = blocks_[layer];
      normalize(block.norm1);
      block.heads();
      attend(cache_->of_layer(layer), behind);
      block.out();
      add();
      normalize(block.norm2);
      block.up();
      loops::independent_loop(wide_.size(), [x = wide_.data()](std::size_t i) {
        x[i] = static_cast<T>(sw::activations::GeluTanh::value(static_cast<float>(x[i])));
      });
      block.down();
      add();
    }
    if (logits.empty()) return;
    normalize(last_);
    head_();
  }

  std::vector<T> logits;  // [sequence, vocabulary], of one token

 private:
  struct NormWeights {
    const T *weight, *bias;
  };
  struct Block {
    NormWeights norm1, norm2;
    Product heads, out, up, down;
  };

  std::size_t rows() const { return sequences_ * tokens_; }

  NormWeights norm() {
    const T* const weight = weights_->take();
    return {weight, weights_->take()};
  }
  Product linear(const Library& library, std::vector<T>& x, T* weight, T* bias,
                 std::vector<T>& y) const {
    const auto of_row = [&](const std::vector<T>& v) {
      return static_cast<Dim>(v.size() / rows());
    };
    const Linear<T> layer{
        static_cast<Dim>(rows()), of_row(x), of_row(y), x.data(), weight, bias, y.data()};
    if (rows() == 1) return layer.inner_product(library, Pass::forward);
    return layer.matmul(library, Pass::forward, false, Weights::packed);
  }
  Product linear(const Library& library, std::vector<T>& x, std::vector<T>& y) {
    T* const weight = weights_->take();
    return linear(library, x, weight, weights_->take(), y);
  }
  Block block(const Library& library) {
    Block made;
    made.norm1 = norm();
    made.heads = linear(library, normal_, heads_);
    made.out = linear(library, seen_, added_);
    made.norm2 = norm();
    made.up = linear(library, normal_, wide_);
    made.down = linear(library, wide_, added_);
    return made;
  }

  void embed(const std::int32_t* ids, std::size_t behind) {
    const std::size_t n = sizes_.features;
    for (std::size_t r = 0; r < rows(); ++r) {
      const T* const token = weights_->table() + static_cast<std::size_t>(ids[r]) * n;
      const T* const place = weights_->positions() + (behind + r % tokens_) * n;
      loops::independent_loop(n, [=, x = &x_[r * n]](std::size_t i) {
        x[i] = static_cast<T>(static_cast<float>(token[i]) + static_cast<float>(place[i]));
      });
    }
  }
  void normalize(const NormWeights& of) {
    norm_.forward(x_.data(), of.weight, of.bias, normal_.data());
  }
  void add() {
    loops::independent_loop(x_.size(), [x = x_.data(), y = added_.data()](std::size_t i) {
      x[i] = static_cast<T>(static_cast<float>(x[i]) + static_cast<float>(y[i]));
    });
  }
  void attend(HeadCache<T>* heads, std::size_t behind) {
    const std::size_t n = sizes_.features;
    for (std::size_t r = 0; r < rows(); ++r)
      for (std::size_t head = 0; head < sizes_.heads; ++head) {
        HeadCache<T>& cache = heads[r / tokens_ * sizes_.heads + head];
        const T* const q = &heads_[r * 3 * n + head * at_once];
        const std::size_t token = behind + r % tokens_;
        cache.put(token, q + n, q + 2 * n);
        cache.attend(q, token + 1, scores_, &seen_[r * n + head * at_once]);
      }
  }

  bench::GptSizes sizes_;
  std::size_t sequences_, tokens_;
  GptWeights<T>* weights_;
  GptCache<T>* cache_;
  Norm norm_;
  NormWeights last_{};
  std::vector<Block> blocks_;
  Product head_;
  std::vector<T> x_, normal_, heads_, seen_, added_, wide_, no_bias_;
  std::vector<float> scores_;
};

}  // namespace by_hand
