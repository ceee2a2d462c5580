// The loops of benchmarks as kernels.

#include "gpu/linear_by_hand.hpp"
#include "gpu/sampled_product.hpp"
#include "gpu/uniform.hpp"
#include "shardwise/backend/cuda/launch.hpp"
using namespace shardwise;

template <class T>
void use(detail::cuda::Session& s) {
  detail::cuda::launch_each(s, 5, bench::Uniform<T>{});
  detail::cuda::launch_each(s, 5, bench::TakeSample<T>{});
  detail::cuda::launch_each(s, 5, by_hand::ReluGradient<T>{});
}
template void use<float>(detail::cuda::Session&);
template void use<bf16>(detail::cuda::Session&);
template void use<fp16>(detail::cuda::Session&);
