// Everything that layers hand to for_each compiles as a kernel.

#include <type_traits>

#include "shardwise/backend/activation.hpp"
#include "shardwise/backend/cuda/launch.hpp"
#include "shardwise/backend/tensor_memory.hpp"
#include "shardwise/layers/batch_norm.hpp"
#include "shardwise/layers/dropout.hpp"
#include "shardwise/layers/elementwise.hpp"
#include "shardwise/layers/global_average_pool.hpp"
#include "shardwise/layers/initializer.hpp"
#include "shardwise/layers/row_norm.hpp"
#include "shardwise/model/bound_residual.hpp"

namespace sw = shardwise;
using namespace sw::detail;

template <class... Functors>
void compile() {
  static_assert((std::is_trivially_copyable_v<Functors> && ...));
  (static_cast<void>(&cuda::run_each<Functors>), ...);
}

template <class F, class T>
void activation() {
  compile<Applied<F, T>, TimesSlope<F, T>>();
}

template <bool Centred, bool HasWeight, bool HasBias, class T>
void norm() {
  using A = sw::accumulate_t<T>;
  using Rows = NormStatistics<Centred, A>;
  compile<SumRow<NormValue<T>, A>, SumRow<NormSquare<Rows, T>, A>,
          SumRow<NormSlope<HasWeight, T>, A>, SumRow<NormSlopeAlong<HasWeight, Rows, T>, A>,
          NormOutput<HasWeight, HasBias, Rows, T>, NormInputGradient<Centred, HasWeight, Rows, T>,
          NormGradients<1, HasBias, Rows, T>>();
}

template <bool HasWeight, bool HasBias, class T>
void batch_norm() {
  compile<InItsChannel<BatchNormOutput<HasWeight, HasBias, T>>,
          InItsChannel<BatchNormInputGradient<HasWeight, T>>>();
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
  norm<true, true, true, T>();
  norm<true, false, false, T>();
  norm<false, true, false, T>();
  batch_norm<true, true, T>();
  batch_norm<false, false, T>();
  compile<SumsOfChannels<1, ChannelValue<T>>, SumsOfChannels<1, ChannelSquare<T>>,
          SumsOfChannels<1, ChannelAlong<T>>, ChannelGradient<T>, BatchStatistics<A>,
          RunningStatistics<A>>();
  compile<OnPiece<DropElements<T>>, DropPlanes<T>, OnPiece<UniformValues<T>>,
          OnPiece<NormalValues<T>>>();
  compile<PlaneMeans<T>, PlaneShares<T>, Added<T>, Fill<T>, Copy<T>>();
}

template void layers<float>();
template void layers<double>();
template void layers<sw::bf16>();
template void layers<sw::fp16>();
