// Everything that layers hand to for_each and reduce_each compiles as a kernel.

#include <type_traits>

#include "shardwise/backend/activation.hpp"
#include "shardwise/backend/cuda/launch.hpp"
#include "shardwise/backend/detail/attention_loops.hpp"
#include "shardwise/core/device_random_stream.hpp"
#include "shardwise/core/tensor_memory.hpp"
#include "shardwise/layers/batch_norm.hpp"
#include "shardwise/layers/bias.hpp"
#include "shardwise/layers/class_token.hpp"
#include "shardwise/layers/concat.hpp"
#include "shardwise/layers/dropout.hpp"
#include "shardwise/layers/elementwise.hpp"
#include "shardwise/layers/embedding.hpp"
#include "shardwise/layers/end_rows.hpp"
#include "shardwise/layers/global_average_pool.hpp"
#include "shardwise/layers/global_max_pool.hpp"
#include "shardwise/layers/group_norm.hpp"
#include "shardwise/layers/head_norm.hpp"
#include "shardwise/layers/initializer.hpp"
#include "shardwise/layers/planes_to_tokens.hpp"
#include "shardwise/layers/position_embedding.hpp"
#include "shardwise/layers/prelu.hpp"
#include "shardwise/layers/rope.hpp"
#include "shardwise/layers/row_norm.hpp"
#include "shardwise/layers/scale_channels.hpp"
#include "shardwise/layers/softmax.hpp"
#include "shardwise/layers/times.hpp"
#include "shardwise/layers/transposed_convolution.hpp"
#include "shardwise/layers/upsample.hpp"
#include "shardwise/model/sum.hpp"
#include "unit/far/scale_anywhere.hpp"

namespace sw = shardwise;
using namespace sw::detail;

template <class... Functors>
void compile() {
  static_assert((std::is_trivially_copyable_v<Functors> && ...));
  (static_cast<void>(&cuda::run_each<Functors>), ...);
}

/// The sums of rows with these terms.
template <class A, class Terms, class Put = PutInto<A>>
void compile_sums() {
  static_assert(std::is_trivially_copyable_v<Terms> && std::is_trivially_copyable_v<Put>);
  static_cast<void>(&cuda::combine_rows<A, Terms, Plus, Put>);
}

template <class F, class T>
void activation() {
  compile<Applied<F, T>, TimesSlope<F, T>>();
}

/// Two values, the first of them through a function.
template <class F, class T>
void product() {
  compile<Multiplied<F, T>, MultipliedBack<F, T>, InItsRow<ScaledPlanes<F, T>>>();
  compile_sums<sw::accumulate_t<T>, ProductTerms<T>, PutFactorGradient<F, T>>();
}

template <bool Centred, bool HasWeight, bool HasBias, class T>
void norm() {
  using A = sw::accumulate_t<T>;
  using Rows = NormStatistics<Centred, A>;
  compile_sums<A, NormValue<T>>();
  compile_sums<A, NormSquare<Rows, T>>();
  compile_sums<A, NormSlope<HasWeight, T>>();
  compile_sums<A, NormSlopeAlong<HasWeight, Rows, T>>();
  compile_sums<NormGradient<A>, NormGradientTerms<Rows, T>, PutNormGradient<HasBias, T>>();
  compile<InItsRow<NormOutput<HasWeight, HasBias, Rows, T>>,
          InItsRow<NormInputGradient<Centred, HasWeight, Rows, T>>>();
}

template <bool HasWeight, bool HasBias, class T>
void batch_norm() {
  compile<InItsChannel<BatchNormOutput<HasWeight, HasBias, T>>,
          InItsChannel<BatchNormInputGradient<HasWeight, T>>>();
}

template <bool HasAffine, class T>
void group_norm() {
  using A = sw::accumulate_t<T>;
  using Rows = NormStatistics<true, A>;
  compile<InItsRow<GroupNormOutput<HasAffine, Rows, T>>,
          InItsRow<GroupNormInputGradient<HasAffine, Rows, T>>>();
  compile_sums<A, PlaneAlong<Rows, T>>();
  compile_sums<A, WeightedPlanes<HasAffine, T>>();
}

/// Numbers of rows that are combined by Combine.
template <class A, class Terms, class Combine>
void compile_reduction() {
  static_assert(std::is_trivially_copyable_v<Terms>);
  static_cast<void>(&cuda::combine_rows<A, Terms, Combine, PutInto<A>>);
}

template <class T>
void layers() {
  using A = sw::accumulate_t<T>;
  activation<sw::activations::Relu, T>();
  activation<sw::activations::Gelu, T>();
  activation<sw::activations::GeluTanh, T>();
  activation<sw::activations::Silu, T>();
  activation<sw::activations::Tanh, T>();
  activation<sw::activations::Sigmoid, T>();
  activation<sw::activations::LeakyRelu<1, 100>, T>();
  activation<sw::activations::Elu<1, 1>, T>();
  activation<sw::activations::Softplus, T>();
  activation<sw::activations::HardSwish, T>();
  norm<true, true, true, T>();
  norm<true, false, false, T>();
  norm<false, true, false, T>();
  product<sw::activations::Identity, T>();
  product<sw::activations::Silu, T>();
  product<sw::activations::Gelu, T>();
  product<sw::activations::Sigmoid, T>();
  group_norm<true, T>();
  group_norm<false, T>();
  batch_norm<true, true, T>();
  batch_norm<false, false, T>();
  compile_sums<TwoSums, TermsOfChannel<BothTerms<ChannelValue<T>, ChannelSquare<T>>>,
               PutChannelSums>();
  compile_sums<TwoSums, TermsOfChannel<BothTerms<ChannelValue<T>, ChannelAlong<T>>>,
               PutChannelSums>();
  compile<ChannelGradient<T>, BatchStatistics<A>, RunningStatistics<A>>();
  compile<OnPiece<DropElements<T, sw::detail::DeviceRandomStream>>, DropPlanes<T, sw::detail::DeviceRandomStream>,
          OnPiece<UniformValues<T>>, OnPiece<NormalValues<T>>>();
  compile<InItsChannel<PReluElements<T>>, InItsChannel<BiasedChannel<sw::activations::Relu, T>>>();
  compile_sums<double, TermsOfChannel<ChannelValue<T>>>();
  compile_sums<double, TermsOfChannel<PReluTerms<T>>>();
  compile_reduction<A, NormValue<T>, Largest>();
  compile_sums<A, SoftmaxTerms<T>>();
  compile_sums<A, ProductTerms<T>>();
  compile<InItsRow<SoftmaxOutput<T>>, InItsRow<SoftmaxInputGradient<T>>>();
  compile_reduction<A, PlaneTerms<T>, Largest>();
  compile_reduction<double, PlaceOfLargest<T>, Smallest>();
  compile<PutLargest<T>, GradientOfLargest<T>>();
  compile_sums<A, PlaneTerms<T>, PutPlaneMean<T>>();
  compile<InItsRow<PlaneShares<T>>, Summed<T, 2>, Fill<T>, Copy<T>>();
  compile<InItsRow<TakenRows<T>>, AddedRows<T>, StoredSums<T>>();
  compile<InItsRow<SwappedAxes<T>>, InItsRow<WithClassToken<T>>, InItsRow<WithoutClassToken<T>>>();
  compile<InItsRow<Biased<T>>, InItsRow<CopiedRows<T>>, InItsRow<AddedPositions<T>>>();
  compile<InItsRow<UpsampledRows<T, 2>>, InItsRow<UpsampledRowsBack<T, 2>>>();
  compile<PositionOfRow, PutFrequency, InItsRow<RopeTurns<A>>, TurnedHeads<T>>();
  compile_sums<A, SummedRows<T>, StoreSum<T>>();
  compile_sums<A, SummedRows<A>, StoreSum<T>>();
  compile<EndRowOf, InItsRow<EndRow<T>>, InItsRow<EndRowGradient<T>>>();
  using Stream = sw::detail::DeviceRandomStream;
  compile<AttentionForward<T, Stream>, AttentionBackwardQueries<T, Stream>,
          AttentionBackwardKeys<T, Stream>>();
  compile<ScaleElement<T>, FactorGradient<T>>();  // of a user's layer
}

template void layers<float>();
template void layers<double>();
template void layers<sw::bf16>();
template void layers<sw::fp16>();
