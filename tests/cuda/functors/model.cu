// The loops of redistributions and models as kernels.

#include "reduce.hpp"
#include "shardwise/backend/cuda/launch.hpp"
#include "shardwise/model/finite.hpp"
#include "shardwise/model/precision.hpp"
#include "shardwise/redistribute/run.hpp"
using namespace shardwise;
using namespace shardwise::detail;

template <class T>
void use(cuda::Session& s, T* a, T* b) {
  cuda::launch_each(s, 5, Fill<T>{a, T{}});
  cuda::launch_each(s, 5, Copy<T>{a, b});
  cuda::launch_each(s, 5, BoxElementCopy<T>({{Axis::batch, 2}}, a, BoxIn{}, b, BoxIn{}));
  cuda::launch_each(s, 5, SlabCopy<T>{});
  cuda::launch_each(s, 5, SlabAdd<T>{});
  cuda::launch_each(s, 5, RoundEach<T>{});
  cuda::launch_each(s, 5, RoundTo<T, float>{});
  cuda::launch_each(s, 5, RoundTo<float, T>{});
  std::uint8_t* bad = nullptr;
  compile_sum(s, std::uint8_t{0}, IsNotFinite<T>{a}, Largest{}, bad);
}
template void use(cuda::Session&, float*, float*);
template void use(cuda::Session&, double*, double*);
template void use(cuda::Session&, bf16*, bf16*);
template void use(cuda::Session&, fp16*, fp16*);
