#pragma once
// Attention by products of oneDNN.

#include <concepts>

#include "shardwise/backend/attention.hpp"
#include "shardwise/backend/detail/attention_loops.hpp"
#include "shardwise/backend/onednn/attention_heads.hpp"
#include "shardwise/backend/onednn/attention_query.hpp"
#include "shardwise/backend/onednn/onednn.hpp"
#include "shardwise/backend/onednn/processor.hpp"
#include "shardwise/backend/onednn/threads.hpp"

namespace shardwise {

/// Attention; see AttentionBackend. For 64 or 128 queries at a time it holds the scores of one head
/// by all keys from the first to the last that one of them sees, and all keys of the head
/// transposed. So memory is linear in the sequence, and products outside the mask are mostly not
/// computed. Backward computes scores again, and has five products. Where the mask cuts through a
/// block a weight is 0, not skipped: a NaN or an infinity of a token reaches its block.
///
/// In bf16, scores, their softmax and all sums are float. What the second product reads is rounded
/// to bf16 once: the exponentials of scores, at most 1, and in backward weights and the gradients
/// of scores. So is each result. A processor without products of bf16 multiplies floats, and
/// rounds results alone.
///
/// Forward for one query in each sample runs by loops over its keys, see AttentionOfQuery, with
/// nothing rounded to bf16 but the result. Its memory grows to the next power of two of keys.
///
/// The library's threads compute products; one thread computes the rest. Does not allocate in
/// shardwise once a call was as large, but for descriptors of matrices in bf16 with oneDNN 3.
/// Throws backend_error if the library fails.
/// source   Dao 2023 (FlashAttention-2), for the order of the five products
template <detail::OneDnnReal T>
class OneDnn::Attention {
 public:
  ///@{
  /// As `AttentionBackend` says.
  explicit Attention(OneDnn& backend) : backend_(&backend) {}

  template <class Stream>
  void forward(const detail::AttentionOperands<T, Stream>& of, T* y) {
    using Operands = detail::AttentionOperands<T, Stream>;
    if (of.tokens.queries.here == 1)
      return detail::onednn::AttentionOfQuery<T, Operands>(backend_->attention_, of).forward(y);
    run(of, [=](auto heads) { heads.forward(y); });
  }

  template <class Stream>
  void backward(const detail::AttentionOperands<T, Stream>& of, const T* dy, T* dq, T* dk, T* dv) {
    run(of, [=](auto heads) { heads.backward(dy, dq, dk, dv); });
  }
  ///@}

 private:
  template <class Stream, class F>
  void run(const detail::AttentionOperands<T, Stream>& of, const F& f) {
    if (std::same_as<T, float> || detail::onednn::multiplies_bf16()) {
      run_by<T>(of, f);
    } else {
      run_by<float>(of, f);
    }
  }

  template <class Factor, class Operands, class F>
  void run_by(const Operands& of, const F& f) {
    if (of.heads.size == 0) return;
    const detail::onednn::ThreadLimit limit(backend_->threads_);
    f(detail::onednn::AttentionOfHeads<Factor, T, Operands>(backend_->session_,
                                                            backend_->attention_, of));
  }

  OneDnn* backend_;
};

}  // namespace shardwise
