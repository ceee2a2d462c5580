// The loops of losses, steps and metrics as kernels.

#include "reduce.hpp"
#include "shardwise/backend/cuda/launch.hpp"
#include "shardwise/train/accuracy.hpp"
#include "shardwise/train/adamw.hpp"
#include "shardwise/train/binary_cross_entropy.hpp"
#include "shardwise/train/cross_entropy.hpp"
#include "shardwise/train/given_alike.hpp"
#include "shardwise/train/huber.hpp"
#include "shardwise/train/lion.hpp"
#include "shardwise/train/loss_of_elements.hpp"
#include "shardwise/train/mean_squared_error.hpp"
#include "shardwise/train/negative_log_likelihood.hpp"
#include "shardwise/train/recorded_loss.hpp"
#include "shardwise/train/recorded_results.hpp"
#include "shardwise/train/rms_prop.hpp"
#include "shardwise/train/sgd.hpp"
#include "shardwise/train/step.hpp"
using namespace shardwise;
using namespace shardwise::detail;

// nvcc finds the shapes that a loss says, too.
static_assert(plan_loss<Sharded<Axis::feature>>(CrossEntropy{},
                                                Shape{{Axis::batch, 64}, {Axis::feature, 10}}) ==
              CollectiveList{all_reduce(64), all_reduce(128)});

/// A function of a program's own.
struct OwnSquare {
  template <class A>
  constexpr std::pair<A, A> operator()(A prediction, A target) const {
    return {(prediction - target) * (prediction - target), 2 * (prediction - target)};
  }
};

template <class T>
void losses(cuda::Session& s, T* a, accumulate_t<T>* sums, double* sum) {
  using A = accumulate_t<T>;
  const View<const T, Invariant> logits(a, {{Axis::batch, 2}, {Axis::feature, 3}}, {});
  const View<const std::int32_t, Invariant> labels(nullptr, {{Axis::batch, 2}}, {});
  const LogitRows<T> rows(logits, labels);
  const TargetShares<A> shares(0.1, 3);
  const LossOutput<T> out{rows, shares, A(2), sums, sums};
  const WholeRows<A> whole{sums, sums, 3};
  compile_rows<A>(s, LogitValues<T>{rows}, Largest{}, PutInto<A>{sums});
  compile_rows<LogitSums<A>>(s, LogitTerms<T>{rows, sums}, Plus{},
                             PutRowSums<T>{rows, sums, 3, sums});
  cuda::launch_each(s, 5, PutRowLoss<T>{out, whole});
  cuda::launch_each(s, 5, InItsRow<PutGradient<T>>{3, {out, whole}});
  compile_sum(s, 0.0, WeightOfRow{nullptr, -100, {}}, Plus{}, sum);
  compile_sum(s, 0.0, CheckedWeight{nullptr}, Plus{}, sum);
  compile_sum(s, 0.0, LossOfRow<A>{sums, {nullptr, 3}}, Plus{}, sum);
  compile_sum(s, 0.0, PutLikelihood<T>{rows, {nullptr, 3}, A(2), sums}, Plus{}, sum);
  const auto compile_elements = [&]<class F>(const F& term) {
    compile_sum(s, 0.0, PutTerm<T, F>{term, a, a, A(2), sums}, Plus{}, sum);
  };
  compile_elements(SquaredDifference{});
  compile_elements(SquaredWithin<A>{1, 1});
  compile_elements(LogisticTerm<A>{});
  compile_elements(WeightedLogisticTerm<A>{sums});
  cuda::launch_each(s, 5, PutClassWeight<A>{{}, 1, 1, 0, sums});
  compile_elements(OwnTerm<OwnSquare>{});
  compile_sum(s, A(0), ScaleAndCheck<T>{a, A(2)}, Plus{}, sums);

  std::int64_t* count = nullptr;
  std::int32_t* ahead = nullptr;
  compile_sum(s, std::int64_t{0}, IsAheadOfK{ahead, 1}, Plus{}, count);
  cuda::launch_each(s, 5, LogitOfLabel<T>{rows, sums});
  compile_rows<std::int32_t>(s, AheadOfLabel<T>{rows, sums}, Plus{}, PutInto<std::int32_t>{ahead});
  std::uint8_t* bad = nullptr;
  compile_sum(s, std::uint8_t{0}, IsNoClass{nullptr, 3}, Largest{}, bad);
}

template <class T>
void gradients(cuda::Session& s, T* a, double* sum) {
  cuda::launch_each(s, 5, detail::Scale<T, T>{a, a, 2});
  cuda::launch_each(s, 5, detail::Scale<T, float>{nullptr, a, 2});
  cuda::launch_each(s, 5, CutDown<T>{a, nullptr});
  compile_sum(s, 0.0, Square<T>{a}, Plus{}, sum);
  compile_sum(s, 0.0, Magnitude<T>{a}, Largest{}, sum);
  constexpr std::size_t shares = detail::holdings.size();
  compile_sum(s, 0.0, InShares<Square<T>, shares>{{a}, {}}, Plus{}, sum);
  compile_sum(s, 0.0, InShares<Magnitude<T>, shares>{{a}, {}}, Largest{}, sum);
}

/// What ranks compare of their inputs.
template <class T>
void alike(cuda::Session& s, std::uint32_t* sum) {
  compile_sum(s, std::uint32_t{0}, BitsAt<T>{nullptr}, Plus{}, sum);
}

template <class P, class Given, class Rule>
void update(cuda::Session& s, const Rule& rule) {
  using Update = decltype(rule.template update<accumulate_t<typename P::parameter>>(1));
  using Loop = UpdateElement<P, const Update*, Given, decltype(moments_of(rule))>;
  const Loop loop{nullptr, moments_of(rule), nullptr, nullptr, nullptr};
  cuda::launch_each(s, 5, loop);
  cuda::launch_each(s, 5, UnlessStopped<Loop>{nullptr, loop});
  cuda::launch_each(
      s, 1, Fill<Update>{nullptr, rule.template update<accumulate_t<typename P::parameter>>(1)});
}

template <class T>
void use(cuda::Session& s, T* a) {
  losses<T>(s, a, nullptr, nullptr);
  gradients<T>(s, a, nullptr);
  alike<T>(s, nullptr);
  update<Precision<T>, T>(s, Sgd{});
  update<Precision<T>, T>(s, AdamW{});
  update<Precision<T>, T>(s, RmsProp{});
  update<Precision<T>, T>(s, Lion{});
  update<Precision<T, float>, T>(s, AdamW{});
  update<Precision<T, float>, float>(s, Sgd{});
}
void recorded(cuda::Session& s) {
  cuda::launch_each(s, 1, Divide{nullptr, 1, nullptr});
  cuda::launch_each(s, 1, AddTerm{nullptr, nullptr});
  cuda::launch_each(s, 1, NoteLoss{nullptr, nullptr});
  cuda::launch_each(s, 1, NoteNorm{nullptr, Norm::euclidean, 1, nullptr});
  cuda::launch_each(s, 1, Fill<RecordedResults>{nullptr, {}});
}
template void use(cuda::Session&, float*);
template void use(cuda::Session&, double*);
template void use(cuda::Session&, bf16*);
template void use(cuda::Session&, fp16*);
template void alike<std::uint8_t>(cuda::Session&, std::uint32_t*);
template void alike<std::int32_t>(cuda::Session&, std::uint32_t*);
template void alike<std::int64_t>(cuda::Session&, std::uint32_t*);
